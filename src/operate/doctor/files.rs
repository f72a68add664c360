//! Finds files of this instance that other users of the machine can read.
//!
//! New files are private (P8, [`crate::private`]). Open ones come from an older version or an
//! operator.

use std::path::{Path, PathBuf};

use super::{Doctor, Finding};
use crate::config::{StoreUrl, Transport};
use crate::private;

const FILES: &str = "files";

impl Doctor {
    /// Warns about files with addresses or keys that other users of this machine can read.
    pub(super) fn files(&self) -> Option<Finding> {
        let mut files = Vec::new();
        if let StoreUrl::Sqlite(path) = &self.config.store {
            for end in ["", "-wal", "-shm"] {
                let mut name = path.clone().into_os_string();
                name.push(end);
                files.push(name.into());
            }
        }
        if matches!(self.config.mail.transport, Transport::Outbox) {
            files.push(self.config.mail.outbox.clone());
        }
        let what = "where addresses stand, and what links are signed with";
        warning(&files, private::open_to_others, ["700", "600"], what)
    }

    /// Reports which files with secrets everyone can read.
    pub(super) fn secret_files(&self) -> Option<Finding> {
        let open = private::open_to_everybody;
        warning(
            &self.config.secret_files,
            open,
            ["o-rwx", "o-rwx"],
            "where secrets stand",
        )
    }
}

/// Warns about open files. `folder` and `file` are the modes that close them.
fn warning(
    files: &[PathBuf],
    open: impl Fn(&Path) -> Option<String>,
    [folder, file]: [&str; 2],
    what: &str,
) -> Option<Finding> {
    let open = files.iter().filter_map(|path| Some((path, open(path)?)));
    let open: Vec<(&PathBuf, String)> = open.collect();
    if open.is_empty() {
        return None;
    }
    let name = |(path, mode): &(&PathBuf, String)| format!("{} ({mode})", path.display());
    let names: Vec<String> = open.iter().map(name).collect();
    let close = |(path, _): &(&PathBuf, String)| {
        let mode = if path.is_dir() { folder } else { file };
        format!("chmod {mode} {}", path.display())
    };
    let advice: Vec<String> = open.iter().map(close).collect();
    let names = names.join(", ");
    Some(Finding::warning(
        FILES,
        format!("others on this machine can read {names}, {what}"),
        advice.join("; "),
    ))
}
