//! Writes a page for users to open, completely or not at all.
//!
//! Obstacles are found before the long work whose result the page shows. An earlier page stays
//! until the new one replaces it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::exit::Usage;
use crate::private;

/// The file for a page.
#[derive(Debug)]
pub(super) struct PageFile {
    pub path: PathBuf,
    /// A temporary file in the same folder. It becomes the page when it is complete.
    draft: PathBuf,
}

impl PageFile {
    /// Checks that a page can be written to this path, as far as this is known in advance.
    pub(super) fn at(path: &Path) -> Result<Self, Usage> {
        let shown = path.display();
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            let what = format!("--report: {shown} is a folder");
            return Err(Usage::new(what).instead("name a file in it, such as report.html"));
        };
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let folder = folder.display();
            let what = format!("--report: the folder {folder} does not exist");
            return Err(Usage::new(what).instead(format!("mkdir -p {folder}")));
        }
        let draft = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
        Ok(Self {
            path: path.to_owned(),
            draft: folder.join(draft),
        })
    }

    pub(super) fn write(&self, page: &str) -> anyhow::Result<()> {
        let written = self.replace(page);
        if written.is_err() {
            // An error means that there is no draft to remove.
            let _ = fs::remove_file(&self.draft);
        }
        written.with_context(|| format!("writing the report {}", self.path.display()))
    }

    fn replace(&self, page: &str) -> io::Result<()> {
        let mut file = private::create(&self.draft)?;
        file.write_all(page.as_bytes())?;
        file.sync_all()?;
        drop(file);
        fs::rename(&self.draft, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let names = entries.map(name).map(|name| name.into_string().unwrap());
        names.collect()
    }

    #[test]
    fn a_page_replaces_an_earlier_one_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");

        for page in ["one", "another"] {
            PageFile::at(&path).unwrap().write(page).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), page);
        }

        assert_eq!(names(folder.path()), ["report.html"]);
    }

    #[test]
    fn a_failed_write_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let file = PageFile::at(&path).unwrap();
        // The path becomes a folder during the long work.
        fs::create_dir(&path).unwrap();

        let failure = file.write("page").unwrap_err();

        assert!(
            format!("{failure:#}").starts_with("writing the report "),
            "{failure:#}"
        );
        assert_eq!(names(folder.path()), ["report.html"]);
    }

    #[test]
    fn an_unusable_path_is_rejected_before_the_work_starts() {
        let folder = tempfile::tempdir().unwrap();

        let missing = PageFile::at(&folder.path().join("no/report.html")).unwrap_err();
        let at_folder = PageFile::at(folder.path()).unwrap_err();

        assert!(
            missing.to_string().ends_with("/no does not exist"),
            "{missing}"
        );
        assert!(
            at_folder.to_string().ends_with(" is a folder"),
            "{at_folder}"
        );
    }
}
