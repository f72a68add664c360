//! Creates files and folders that only their owner can access, regardless of the umask.
//!
//! They contain addresses, links and secrets (P8). A new file gets its mode when it is created, so
//! other users can never open it in between. This works on Unix only; elsewhere, the permissions of
//! the folder apply.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The permission bits for everyone except the owner.
const GROUP_AND_WORLD: u32 = 0o077;
/// The permission bits for users outside the file's group.
const WORLD: u32 = 0o007;

/// Returns options that open files for writing. New files get the mode 0600.
pub fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates an empty file, or empties an existing one. An existing file is restricted to its owner
/// before anything is written.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open_options().create(true).truncate(true).open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata = file.metadata()?;
        if metadata.is_file() && metadata.permissions().mode() & GROUP_AND_WORLD != 0 {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(file)
}

/// Writes a file with this content and with the permissions of [`create`].
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> io::Result<()> {
    create(path.as_ref())?.write_all(content.as_ref())
}

/// Replaces a file completely or not at all, with the permissions of [`create`].
pub fn replace(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let write = || {
        let mut file = create(&draft)?;
        file.write_all(content.as_ref())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    };
    write().inspect_err(|_| {
        // This fails if the draft was not created.
        let _ = std::fs::remove_file(&draft);
    })
}

/// Creates the folder and its missing parents with the mode 0700. Existing folders keep their mode.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Returns the mode, such as `644`, if it gives any access to users other than the owner. Returns
/// `None` if the path cannot be read, and on systems other than Unix.
pub fn mode_if_open_to_others(path: &Path) -> Option<String> {
    mode_open_to(GROUP_AND_WORLD, path)
}

/// Like [`mode_if_open_to_others`], but for users outside the file's group. An administrator may
/// own a file that a service reads through its group.
pub fn mode_if_open_to_world(path: &Path) -> Option<String> {
    mode_open_to(WORLD, path)
}

fn mode_open_to(mask: u32, path: &Path) -> Option<String> {
    #[cfg(unix)]
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).ok()?) & 0o777;
    #[cfg(not(unix))]
    let (mode, _) = (0, path);
    (mode & mask != 0).then(|| format!("{mode:03o}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_file_replaces_an_earlier_one_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");

        for page in ["one", "another"] {
            replace(&path, page).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), page);
        }

        assert_eq!(names(folder.path()), ["report.html"]);
    }

    #[test]
    fn a_failed_replacement_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        std::fs::create_dir(&path).unwrap();

        replace(&path, "page").unwrap_err();

        assert_eq!(names(folder.path()), ["report.html"]);
    }
}
