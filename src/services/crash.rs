//! Named points at which a test can have the process die, as if the power had gone.
//!
//! The rule: they are there only where debug assertions are; what is released does not know them. `TIDINGS_CRASH=after-send:3` ends
//! the process the third time it comes to that point. [`POINTS`] names them all, so that a test walks through each.

/// All points, in the order in which an event and its mail come by.
pub const POINTS: [&str; 19] = [
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

/// The process may die here.
#[cfg(debug_assertions)]
pub(super) fn point(name: &str) {
    use std::sync::atomic::{AtomicU32, Ordering};

    static COMES_BY: AtomicU32 = AtomicU32::new(0);
    debug_assert!(POINTS.contains(&name), "{name} is not listed");
    let Ok(armed) = std::env::var("TIDINGS_CRASH") else {
        return;
    };
    let (at, times) = armed.split_once(':').unwrap_or((&armed, "1"));
    if at == name && COMES_BY.fetch_add(1, Ordering::Relaxed) + 1 == times.parse().unwrap_or(1) {
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(super) fn point(_name: &str) {}
