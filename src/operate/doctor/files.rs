//! Files of ours that others on this machine can read.
//!
//! The rule (P8): whatever is made now is its owner's alone ([`crate::private`]), so what is found
//! here an older program or a person left open.

use std::path::{Path, PathBuf};

use super::{Finding, Setup};
use crate::private;

const FILES: &str = "files";

impl Setup {
    /// What others can read of these files and folders, if anything.
    pub(super) fn files(&self) -> Option<Finding> {
        let what = "where addresses stand, and what links are signed with";
        warning(&self.files, private::open_to_others, ["700", "600"], what)
    }

    /// Which files with secrets everybody can read, if any.
    pub(super) fn secret_files(&self) -> Option<Finding> {
        let open = private::open_to_everybody;
        warning(
            &self.secret_files,
            open,
            ["o-rwx", "o-rwx"],
            "where secrets stand",
        )
    }
}

/// A warning of those files that are open, with what closes a folder and a file.
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
