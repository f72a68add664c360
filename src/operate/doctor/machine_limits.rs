//! Checks the limits of this machine: the file system of a SQLite store, and the number of open
//! files.

use super::{Doctor, Finding};
use crate::operate::machine;

/// Open files that a process needs besides its feed streams: other connections, the store, and
/// calls to providers.
const OTHER_FILES: u64 = 1_000;

impl Doctor {
    /// Warns about limits that are too low. Returns nothing if there are none.
    pub(super) fn limits(&self) -> Vec<Finding> {
        let store = machine::network_file_system(&self.config).map(judge_file_system);
        let (_, maximum) = machine::open_files();
        let files = judge_open_files(maximum, self.config.feed.streams);
        store.into_iter().chain(files).collect()
    }
}

fn judge_file_system(name: &str) -> Finding {
    let found = format!("the SQLite file is on {name}, {}", machine::UNSUITABLE);
    let advice = "move it to a disk of this machine, or use MongoDB";
    let finding = match name {
        "FUSE" => Finding::warning(found, advice),
        _ => Finding::error(found, advice),
    };
    finding.for_check("file system")
}

/// Warns if a process may open fewer files than `streams` feed streams and other work need.
fn judge_open_files(limit: Option<u64>, streams: usize) -> Option<Finding> {
    let needed = OTHER_FILES + streams as u64;
    let limit = limit.filter(|limit| *limit < needed)?;
    let finding = Finding::warning(
        format!(
            "a process started here may open {limit} files and connections, and feed.streams = \
             {streams} needs up to {needed}"
        ),
        "raise LimitNOFILE of the unit, or the hard limit of the shell (ulimit -Hn)",
    );
    Some(finding.for_check("open files"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::diagnosis::Severity;

    #[test]
    fn a_network_file_system_is_an_error_and_fuse_a_warning() {
        let nfs = judge_file_system("NFS");

        assert_eq!(nfs.severity, Severity::Error);
        assert!(nfs.result.contains("on NFS, "), "{nfs:?}");
        assert_eq!(judge_file_system("FUSE").severity, Severity::Warning);
    }

    #[test]
    fn a_limit_below_the_streams_is_a_warning() {
        assert_eq!(judge_open_files(None, 100_000), None);
        assert_eq!(judge_open_files(Some(3_000), 2_000), None);
        let low = judge_open_files(Some(1_024), 2_000).unwrap();
        assert_eq!(low.severity, Severity::Warning);
        assert!(low.result.contains("may open 1024 files"), "{low:?}");
    }
}
