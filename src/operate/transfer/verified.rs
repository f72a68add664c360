//! Verifies all files of an export before anything is imported.

use std::fs;
use std::path::Path;

use super::part::{FORMAT, MANIFEST, Part, damaged, failed};
use crate::engine::Result;
use crate::store::{DaySum, Summing};
use crate::wire::transfer::{BadRecords, FileSum, Manifest};

/// A complete export whose files match their counts and checksums.
pub struct Verified {
    /// The SHA-256 of the manifest.
    pub(super) sha256: String,
    /// The files, each with the sum that the store will have.
    pub(super) files: Vec<(Part, DaySum)>,
    /// The records that the export lacks.
    pub(super) unreadable: BadRecords,
}

impl Verified {
    /// Reads and verifies the export in this folder.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::engine::Error::File) if a file is missing or unreadable;
    /// [`Error::Damaged`](crate::engine::Error::Damaged) if one differs from the manifest.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(failed("reading", &path))?;
        let manifest = Manifest::read(&text).map_err(|why| damaged(&path, why))?;
        if manifest.format != FORMAT {
            let why = "is of another format: use the version of tidings that wrote it";
            return Err(damaged(&path, why));
        }
        let files = manifest.files.iter().map(|file| verify(folder, file));
        let mut sum = Summing::default();
        sum.add(&text);
        Ok(Self {
            sha256: sum.end().sha256,
            files: files.collect::<Result<_>>()?,
            unreadable: manifest.unreadable,
        })
    }
}

/// Checks a file, and returns the sum that the store will have.
fn verify(folder: &Path, file: &FileSum) -> Result<(Part, DaySum)> {
    let Some(part) = Part::named(&file.name) else {
        let why = "is of a kind that tidings does not know";
        return Err(damaged(&folder.join(&file.name), why));
    };
    let path = part.path(folder);
    let (sum, expected) = part.read(&path)?;
    match part.file(sum) == *file {
        true => Ok((part, expected)),
        false => Err(damaged(
            &path,
            "does not match its count and checksum in manifest.json; nothing was imported",
        )),
    }
}
