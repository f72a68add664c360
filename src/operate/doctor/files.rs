//! Finds files of this instance that other users of the machine can read.
//!
//! New files are private (P8, [`crate::private`]). Open ones come from an older version or an
//! operator.

use std::path::{Path, PathBuf};

use super::{Finding, Setup};
use crate::private;

const FILES: &str = "files";

impl Setup {
    /// Reports which of these files and folders other users can read.
    pub(super) fn files(&self) -> Option<Finding> {
        let what = "where addresses stand, and what links are signed with";
        warning(&self.files, private::open_to_others, ["700", "600"], what)
    }

    /// Reports which files with secrets everyone can read.
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
