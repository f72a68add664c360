//! Named points where tests abort or suspend the process, as a crash or a sleeping machine would.
//!
//! They exist only with debug assertions; release builds do not contain them.
//! `TIDINGS_CRASH=after-send:3` aborts the process the third time that it reaches the point.
//! `TIDINGS_STOP` suspends it there with `SIGSTOP`. [`EMAIL_POINTS`], [`EXPORT_POINTS`] and
//! [`IMPORT_POINTS`] list all points, so that a test can cover each.

/// All points, in the order in which an event and its email reach them.
pub const EMAIL_POINTS: [&str; 20] = [
    "after-accept",
    "after-push",
    "after-join",
    "before-end",
    "after-end",
    "after-file",
    "after-row",
    "after-forget",
    "before-open",
    "after-open",
    "before-sending",
    "after-sending",
    "after-send",
    "before-settle",
    "after-settle",
    "before-recall",
    "after-recall",
    "after-mark",
    "after-close",
    "after-ask",
];

/// All points of an export, in the order in which it passes them.
pub const EXPORT_POINTS: [&str; 2] = ["export-written", "export-compared"];

/// All points of an import, in the order in which it passes them.
pub const IMPORT_POINTS: [&str; 5] =
    ["import-checked", "import-marked", "import-put", "import-noted", "import-compared"];

/// Aborts or suspends the process here, if a test asked for it.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) {
    use std::sync::atomic::AtomicU32;

    static CRASH_VISITS: AtomicU32 = AtomicU32::new(0);
    static STOP_VISITS: AtomicU32 = AtomicU32::new(0);
    let mut points = EMAIL_POINTS.iter().chain(&EXPORT_POINTS).chain(&IMPORT_POINTS);
    debug_assert!(points.any(|point| *point == name), "{name} is not listed");
    if is_armed("TIDINGS_CRASH", name, &CRASH_VISITS) {
        std::process::abort();
    }
    if is_armed("TIDINGS_STOP", name, &STOP_VISITS) {
        // The shell's parent is this process.
        let stopped =
            std::process::Command::new("/bin/sh").args(["-c", "kill -STOP $PPID"]).status();
        debug_assert!(stopped.is_ok_and(|status| status.success()));
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn point(_name: &str) {}

/// Returns whether the variable names this point and this occurrence: `after-send`, or
/// `after-send:3` for the third.
#[cfg(debug_assertions)]
fn is_armed(variable: &str, name: &str, visits: &std::sync::atomic::AtomicU32) -> bool {
    let Ok(armed) = std::env::var(variable) else {
        return false;
    };
    let (armed_name, nth) = armed.split_once(':').unwrap_or((&armed, "1"));
    armed_name == name
        && visits.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1 == nth.parse().unwrap_or(1)
}
