//! The limits of this machine: the file system below a SQLite store, and the number of open files.
//!
//! Known only on Linux. Start with [`prepare_process`], which long-running commands call.

use std::path::Path;

use crate::config::{Config, StoreUrl};

/// The types of network file systems, by their numbers in `linux/magic.h` (statfs(2)).
#[cfg(target_os = "linux")]
const NETWORK_FILE_SYSTEMS: [(u32, &str); 8] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x5346_414f, "AFS"),
    (0x00c3_6400, "Ceph"),
];

/// Why a network file system is unsuitable, as the end of a sentence.
pub(super) const UNSUITABLE: &str = "whose locks and shared memory do not protect SQLite's \
                                     write-ahead log, so accepted events can be lost";

/// Returns the network file system of a SQLite store, such as `NFS`; `None` for a local one or for
/// MongoDB. FUSE may be local, but is unsuitable in most cases.
pub(super) fn network_file_system(config: &Config) -> Option<&'static str> {
    let StoreUrl::Sqlite(path) = &config.store else {
        return None;
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    file_system_of(folder.unwrap_or(Path::new(".")))
}

#[cfg(target_os = "linux")]
fn file_system_of(folder: &Path) -> Option<&'static str> {
    // The numbers have 32 bits on every platform. The field may be wider, and signed.
    name_of(rustix::fs::statfs(folder).ok()?.f_type as u32)
}

#[cfg(target_os = "linux")]
fn name_of(kind: u32) -> Option<&'static str> {
    NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
fn file_system_of(_: &Path) -> Option<&'static str> {
    None
}

/// Returns how many files and connections this process may open at once, now and after
/// [`prepare_process`]; `None` for no limit.
#[cfg(target_os = "linux")]
pub(crate) fn open_files() -> (Option<u64>, Option<u64>) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    (limit.current, limit.maximum)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn open_files() -> (Option<u64>, Option<u64>) {
    (None, None)
}

/// Prepares a long-running command: lets it open as many files as the system permits, and logs a
/// warning if its store is on a network file system.
pub fn prepare_process(config: &Config) {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        // If this fails, the limit stays as it is. Reaching it causes an error elsewhere.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    if let Some(name) = network_file_system(config) {
        tracing::warn!("store: {:?} is on {name}, {UNSUITABLE}", config.store);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_have_names_and_local_ones_have_none() {
        // ext4, tmpfs, overlay, btrfs and xfs.
        for local in [0xef53, 0x0102_1994, 0x794c_7630, 0x9123_683e, 0x5846_5342] {
            assert_eq!(name_of(local), None, "{local:x}");
        }
        assert_eq!(name_of(0x6969), Some("NFS"));
        assert_eq!(name_of(0xff53_4d42), Some("CIFS"));
        // A proc file system is not one that a store can be on, but exists on every machine.
        assert_eq!(file_system_of(Path::new("/proc")), None);
        assert_eq!(file_system_of(Path::new("/nowhere")), None);
    }

    #[test]
    fn a_long_running_command_may_open_as_many_files_as_permitted() {
        prepare_process(&Config::with_defaults());

        let (current, maximum) = open_files();
        assert_eq!(current, maximum);
    }
}
