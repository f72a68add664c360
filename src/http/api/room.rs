//! Limits the number of connections by the number of files that the process may open.
//!
//! The store, the log and outgoing emails always get descriptors. Further connections wait to be
//! accepted until others end or time out.

/// The minimum number of descriptors for other uses: the store, the log and outgoing emails.
const OTHERS: usize = 64;
/// The maximum number of connections, for any number of descriptors.
const MOST: usize = 25_000;
/// The minimum number of connections.
const FEWEST: usize = 16;

/// Returns the number of connections for a process with this many descriptors.
fn of(descriptors: Option<usize>) -> usize {
    let left = descriptors.map(|all| (all - all / 4).saturating_sub(OTHERS));
    left.unwrap_or(MOST).clamp(FEWEST, MOST)
}

/// Returns the number of connections for each of these threads.
pub(super) fn for_each_of(threads: usize) -> usize {
    (of(descriptors()) / threads.max(1)).max(1)
}

/// Returns the limit of open files. `None` on systems other than Linux, or if there is none.
fn descriptors() -> Option<usize> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    limit_in(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

/// Parses the soft limit in `/proc/self/limits`; `None` if it is unlimited.
fn limit_in(limits: &str) -> Option<usize> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_limit_leaves_file_descriptors_for_the_rest() {
        assert_eq!([Some(256), Some(1_024), Some(64)].map(of), [128, 704, 16]);
        assert_eq!([Some(1 << 20), None].map(of), [MOST, MOST]);
    }

    #[test]
    fn the_limit_is_read_from_the_linux_limits_file() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max processes             63431                63431                processes \n\
                      Max open files            256                  524288               files     \n";
        assert_eq!(limit_in(limits), Some(256));
        assert_eq!(
            limit_in("Max open files            unlimited            unlimited            files"),
            None
        );
        assert_eq!(limit_in(""), None);
    }
}
