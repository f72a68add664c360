//! The results of importing and exporting.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::run_report::FannedOut;

/// A rejected line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// The line number in the file, from 1. Blank lines count.
    pub line: u64,
    /// The invalid field, such as `digest.hour`; `None` if the whole line is invalid.
    pub field: Option<String>,
    /// The error, for humans.
    pub why: String,
}

/// Prints `line 2, digest.hour: is …`.
impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(field) = &self.field {
            write!(f, ", {field}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// The number of accepted lines, including those that changed nothing.
    #[serde(rename = "taken")]
    pub accepted: u64,
    /// The number of rejected lines. Blank lines are neither accepted nor rejected.
    pub bad: u64,
    /// The first rejected lines, up to the limit of the import.
    pub bad_lines: Vec<BadLine>,
}

/// The result of an import, and of fanning out its events.
#[derive(Debug, Serialize)]
pub(crate) struct ImportAnswer<'a> {
    #[serde(flatten)]
    pub(crate) report: &'a ImportReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fanned_out: Option<&'a FannedOut>,
}

/// The contents of an export. The export writes it to `manifest.json` after all other files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the format of the files.
    pub format: u32,
    /// When the export ended.
    pub at: DateTime<Utc>,
    /// The files, in the order of an import.
    pub files: Vec<FileChecksum>,
    /// The records that the export lacks because they cannot be read.
    pub unreadable: BadRecords,
}

/// Records that were not copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadRecords {
    /// The number of records.
    pub count: u64,
    /// The first 100 of them, each with the reason.
    pub first: Vec<String>,
}

impl BadRecords {
    /// Adds records, each with the reason.
    pub fn add(&mut self, records: impl IntoIterator<Item = String>) {
        for record in records {
            self.count += 1;
            if self.first.len() < 100 {
                self.first.push(record);
            }
        }
    }
}

/// The content of one file, `NAME.ndjson.zst`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChecksum {
    /// A kind of record such as `users`, or a day such as `notifications_20140422`.
    pub name: String,
    /// The number of lines, one for each record.
    pub records: u64,
    /// The SHA-256 of all lines with their line ends, uncompressed, in hexadecimal.
    pub sha256: String,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportedStore {
    /// Whether the store holds exactly the records of the export.
    #[serde(rename = "same")]
    pub is_same: bool,
    /// The parts of the store, compared with their files.
    pub files: Vec<ImportedFile>,
    /// The documents of days that the store rejected. A rejected record of another kind fails the
    /// import.
    pub rejected: BadRecords,
    /// The records that cannot be read from the store after they were written.
    pub unreadable_in_store: BadRecords,
    /// The records that the export lacks.
    pub unreadable: BadRecords,
}

/// One part of a store, compared with its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportedFile {
    /// The name of the file, without its ending.
    pub name: String,
    /// The number of records in the file.
    pub records: u64,
    /// The number of records in the store.
    pub stored: u64,
    /// Whether they are equal, by a checksum of all records.
    #[serde(rename = "same")]
    pub is_same: bool,
}
