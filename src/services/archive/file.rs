//! An exported day: Zstandard-compressed NDJSON, one document a line as canonical Extended JSON, and a last line that vouches for them.
//!
//! The rule (P9): the file gets its name only when it is complete and on disk; it is read back and compared before anybody relies on it.
//! `zstd -dc FILE | head -n -1 | sha256sum` gives the sum in the last line.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use futures::StreamExt;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::domain::Day;
use crate::services::{Error, Progress, Result};
use crate::store::{Days, RawStack};

/// What an exported day holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub day: Day,
    pub stacks: u64,
    /// SHA-256 of all lines before, with their line ends, in hexadecimal.
    pub sha256: String,
}

/// The last line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trailer {
    tidings: Summary,
}

/// Documents restored at once.
const CHUNK: usize = 1_000;

/// `notifications_20140422.ndjson.zst` in this folder.
pub fn path(folder: &Path, day: Day) -> PathBuf {
    folder.join(format!("{}.ndjson.zst", day.collection()))
}

/// Exports a day and reads it back. A file that stands already and says the same is left as it is.
pub async fn write(days: &dyn Days, day: Day, folder: &Path) -> Result<PathBuf> {
    let target = path(folder, day);
    let partial = target.with_extension("zst.partial");
    let failed = |cause| Error::file(format!("exporting to {}", target.display()), cause);
    fs::create_dir_all(folder).map_err(failed)?;
    let written = match write_lines(days, day, &partial).await {
        Ok(summary) => summary,
        Err(error) => {
            // What is left of the attempt is no export; that it cannot be removed either changes nothing of the error.
            let _ = fs::remove_file(&partial);
            return Err(error);
        }
    };
    let read = verify(&partial)?;
    if read != written {
        return Err(Error::Damaged {
            file: partial.display().to_string(),
            why: "does not hold what was written to it; nothing was dropped".into(),
        });
    }
    if target.exists() && verify(&target).is_ok_and(|earlier| earlier != written) {
        let why =
            "holds another export of that day already; move it away first. Nothing was dropped"
                .into();
        return Err(Error::Damaged {
            file: target.display().to_string(),
            why,
        });
    }
    fs::rename(&partial, &target).map_err(failed)?;
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed)?;
    Ok(target)
}

async fn write_lines(days: &dyn Days, day: Day, partial: &Path) -> Result<Summary> {
    let failed = |cause| Error::file(format!("writing {}", partial.display()), cause);
    let mut out = zstd::Encoder::new(File::create(partial).map_err(failed)?, 3).map_err(failed)?;
    out.include_checksum(true).map_err(failed)?;
    let (mut hash, mut stacks) = (Sha256::new(), 0);
    let mut chunks = days.export_day(day);
    while let Some(chunk) = chunks.next().await {
        for line in chunk? {
            for bytes in [line.as_bytes(), b"\n"] {
                hash.update(bytes);
                out.write_all(bytes).map_err(failed)?;
            }
            stacks += 1;
        }
    }
    let summary = Summary {
        day,
        stacks,
        sha256: hex::encode(hash.finalize()),
    };
    serde_json::to_writer(
        &mut out,
        &Trailer {
            tidings: summary.clone(),
        },
    )
    .map_err(|error| failed(error.into()))?;
    out.write_all(b"\n").map_err(failed)?;
    out.finish()
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    Ok(summary)
}

/// Reads a whole export and checks that it is complete and undamaged.
pub fn verify(file: &Path) -> Result<Summary> {
    let damaged = |why: String| Error::Damaged {
        file: file.display().to_string(),
        why,
    };
    let (mut hash, mut stacks, mut last): (_, u64, Option<String>) = (Sha256::new(), 0, None);
    for line in lines(file)? {
        let line =
            line.map_err(|error| damaged(format!("is damaged after {stacks} documents: {error}")))?;
        if let Some(document) = last.replace(line) {
            hash.update(document.as_bytes());
            hash.update(b"\n");
            stacks += 1;
        }
    }
    let Ok(Trailer { tidings }) = serde_json::from_str(last.as_deref().unwrap_or_default()) else {
        return Err(damaged(
            "is no export of tidings, or its end is missing".into(),
        ));
    };
    if tidings.stacks != stacks || tidings.sha256 != hex::encode(hash.finalize()) {
        return Err(damaged(
            "is damaged: its documents do not match the checksum in its last line".into(),
        ));
    }
    Ok(tidings)
}

/// Verifies a file, then puts its documents back.
pub async fn restore(days: &dyn Days, file: &Path, progress: &dyn Progress) -> Result<Summary> {
    let summary = verify(file)?;
    progress.total(summary.stacks);
    let damaged = |error: std::io::Error| Error::file(format!("reading {}", file.display()), error);
    let mut left = summary.stacks;
    let mut lines = lines(file)?;
    while left > 0 {
        let count = left.min(CHUNK as u64);
        let chunk: Vec<RawStack> = lines
            .by_ref()
            .take(count as usize)
            .collect::<std::io::Result<_>>()
            .map_err(damaged)?;
        days.restore_day(summary.day, &chunk).await?;
        progress.advance(count);
        left -= count;
    }
    Ok(summary)
}

fn lines(file: &Path) -> Result<impl Iterator<Item = std::io::Result<String>> + Send + use<>> {
    let failed = |cause| Error::file(format!("opening {}", file.display()), cause);
    let decoder = zstd::Decoder::new(File::open(file).map_err(failed)?).map_err(failed)?;
    Ok(BufReader::new(decoder).lines())
}
