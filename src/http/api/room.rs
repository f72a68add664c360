//! How many connections a server takes at once.
//!
//! The rule: fewer than it may have files open, so that the database, its logs and the next
//! connection always find room. Those that are too many wait to be accepted, and the time-outs of
//! the others make room for them.

/// Descriptors that are not for connections at least: the store's, the log's, those of mails on
/// their way.
const OTHERS: usize = 64;
/// Connections at most, whatever a process may have open.
const MOST: usize = 25_000;
/// And at least.
const FEWEST: usize = 16;

/// So many connections at once, of a process that may have so many descriptors.
fn of(descriptors: Option<usize>) -> usize {
    let left = descriptors.map(|all| (all - all / 4).saturating_sub(OTHERS));
    left.unwrap_or(MOST).clamp(FEWEST, MOST)
}

/// How many connections each of so many threads takes.
pub(super) fn for_each_of(threads: usize) -> usize {
    (of(descriptors()) / threads.max(1)).max(1)
}

/// How many descriptors this process may have; only Linux says so in a file.
fn descriptors() -> Option<usize> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    limit_in(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

/// The soft limit in what Linux says of a process's limits; none if there is none.
fn limit_in(limits: &str) -> Option<usize> {
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_everything_else() {
        assert_eq!([Some(256), Some(1_024), Some(64)].map(of), [128, 704, 16]);
        assert_eq!([Some(1 << 20), None].map(of), [MOST, MOST]);
    }

    #[test]
    fn the_limit_is_read_as_linux_writes_it() {
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
