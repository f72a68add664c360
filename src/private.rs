//! Files and folders that only their owner can read, whatever the umask says: they hold addresses,
//! links and secrets.
//!
//! The rule (P8): the mode is there from the beginning and not set afterward, so there is no
//! moment in which somebody else could open them. It is Unix's to keep; elsewhere files are as
//! their folder has it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// What others than the owner may do with a file, as a bit mask.
#[cfg(unix)]
const OTHERS: u32 = 0o077;
/// What people outside its group may do with it.
#[cfg(unix)]
const EVERYBODY: u32 = 0o007;

/// Opens files for writing. Those that are made are their owner's alone.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// An empty file of this name. One that is there already is emptied, and closed to others before
/// anything is written to it.
pub fn create(path: &Path) -> io::Result<File> {
    let file = options().create(true).truncate(true).open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata = file.metadata()?;
        if metadata.is_file() && metadata.permissions().mode() & OTHERS != 0 {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
    }
    Ok(file)
}

/// A file with this content.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> io::Result<()> {
    create(path.as_ref())?.write_all(content.as_ref())
}

/// Makes the folder, and those above it that are not there.
pub fn folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Whether others than its owner can read, write or enter it, and how that is written down, such as
/// `644`.
pub fn open_to_others(path: &Path) -> Option<String> {
    #[cfg(unix)]
    return open_to(OTHERS, path);
    #[cfg(not(unix))]
    return None;
}

/// The same of people outside its group: what an administrator writes, a service may read through
/// its group.
pub fn open_to_everybody(path: &Path) -> Option<String> {
    #[cfg(unix)]
    return open_to(EVERYBODY, path);
    #[cfg(not(unix))]
    return None;
}

#[cfg(unix)]
fn open_to(mask: u32, path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & mask != 0).then(|| format!("{mode:03o}"))
}
