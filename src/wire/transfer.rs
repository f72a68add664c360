//! The manifest of an export, and the result of an import.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// The contents of an export. The export writes it to `manifest.json` after all other files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the format of the files.
    pub format: u32,
    /// When the export ended.
    pub at: DateTime<Utc>,
    /// The files, in the order of an import.
    pub files: Vec<FileSum>,
    /// The records that the export lacks because they cannot be read.
    pub unreadable: BadRecords,
}

impl Manifest {
    /// Returns the text of `manifest.json`.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("a manifest has no maps")
    }

    /// Parses the text of `manifest.json`.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
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
pub struct FileSum {
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
    pub same: bool,
    /// The parts of the store, compared with their files.
    pub files: Vec<ImportedFile>,
    /// The documents of days that the store rejected. A rejected record of another kind fails the
    /// import.
    pub rejected: BadRecords,
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
    pub same: bool,
}
