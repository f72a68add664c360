//! Files of ours that others on this machine can read.
//!
//! The rule (P8): whatever is made now is its owner's alone ([`crate::private`]), so what is found here an older program or a person left open.

use std::path::PathBuf;

use super::{Finding, Setup};
use crate::private;

const FILES: &str = "files";

impl Setup {
    /// What others can read of these files and folders, if anything.
    pub(super) fn files(&self) -> Option<Finding> {
        let open = self.files.iter();
        let open = open.filter_map(|path| Some((path, private::open_to_others(path)?)));
        let open: Vec<(&PathBuf, String)> = open.collect();
        if open.is_empty() {
            return None;
        }
        let name = |(path, mode): &(&PathBuf, String)| format!("{} ({mode})", path.display());
        let names: Vec<String> = open.iter().map(name).collect();
        let close = |(path, _): &(&PathBuf, String)| {
            let mode = if path.is_dir() { 700 } else { 600 };
            format!("chmod {mode} {}", path.display())
        };
        let advice: Vec<String> = open.iter().map(close).collect();
        Some(Finding::warning(
            FILES,
            format!(
                "others on this machine can read {}, which hold addresses and what links are signed with",
                names.join(", ")
            ),
            advice.join("; "),
        ))
    }
}
