//! The outbox: a folder that takes every mail as an `.eml` file, so that every command works on a
//! bare machine.
//!
//! The rule: a delivery is one file, named after it, and it is there whole or not at all. Sending a
//! delivery again writes the same file again, so repeating is safe. Whatever the disk refuses is
//! tried later: the mail is not to blame.

use std::fs::{self, File};
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::thread;

use async_trait::async_trait;

use super::mime::{compose, tag};
use super::{Certainty, Checked, Leave, Mailer, Message, Outcome, Sender};
use crate::domain::DeliveryId;
use crate::private;

/// A folder of `.eml` files, one a delivery.
#[derive(Debug, Clone)]
pub struct Outbox {
    folder: PathBuf,
    sender: Sender,
    /// Whether a page for the browser goes beside each mail.
    pages: bool,
    /// Done once drafts of killed processes were removed.
    swept: Arc<Once>,
}

impl Outbox {
    /// An outbox in this folder, which is made when the first mail comes.
    pub fn new(folder: impl Into<PathBuf>, sender: Sender) -> Self {
        Self {
            folder: folder.into(),
            sender,
            pages: false,
            swept: Arc::new(Once::new()),
        }
    }

    /// The same, with the HTML of each mail as a page beside it, if that is wanted.
    pub fn with_pages(self, pages: bool) -> Self {
        Self { pages, ..self }
    }

    /// Where the page of this delivery lies, such as `mara-weekly-2026-W47.html`.
    pub fn page(&self, delivery: &DeliveryId) -> PathBuf {
        self.folder.join(page_name(delivery))
    }

    /// Where the mail of this delivery lies once it is sent.
    pub fn path(&self, delivery: &DeliveryId) -> PathBuf {
        self.folder.join(file_name(delivery))
    }

    fn write_all(&self, messages: &[Message]) -> Vec<Outcome> {
        if messages.is_empty() {
            return Vec::new();
        }
        if let Err(error) = private::folder(&self.folder) {
            return vec![
                try_later("making the outbox folder", &self.folder, &error);
                messages.len()
            ];
        }
        self.swept.call_once(|| sweep(&self.folder));
        let outcomes = self.write_at_once(messages);
        // A rename lasts once its folder is on disk.
        match sync_folder(&self.folder) {
            Ok(()) => outcomes,
            Err(error) => outcomes
                .into_iter()
                .map(|outcome| match outcome {
                    Outcome::Accepted { .. } => {
                        try_later("saving the outbox folder", &self.folder, &error)
                    }
                    other => other,
                })
                .collect(),
        }
    }

    /// Several at a time: most of the time goes by waiting for the disk, and it can save several
    /// files as fast as one.
    fn write_at_once(&self, messages: &[Message]) -> Vec<Outcome> {
        let share = messages.len().div_ceil(WRITERS);
        thread::scope(|scope| {
            let writers: Vec<_> = messages
                .chunks(share)
                .map(|chunk| {
                    scope.spawn(|| chunk.iter().map(|m| self.write(m)).collect::<Vec<_>>())
                })
                .collect();
            writers
                .into_iter()
                .flat_map(|writer| writer.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        })
    }

    fn write(&self, message: &Message) -> Outcome {
        let mail = match compose(message, &self.sender) {
            Ok(mail) => mail,
            Err(reason) => return Outcome::Unsendable { reason },
        };
        let name = file_name(&message.delivery);
        if self.pages {
            let page = page_name(&message.delivery);
            let html = message.filled().html;
            if let Err(error) = replace(&self.folder, &page, html.as_bytes()) {
                return try_later("writing", &self.folder.join(page), &error);
            }
        }
        match replace(&self.folder, &name, &mail) {
            Ok(()) => Outcome::Accepted { provider_id: name },
            Err(error) => try_later("writing", &self.folder.join(name), &error),
        }
    }
}

#[async_trait]
impl Mailer for Outbox {
    /// All at once: there is nobody to be asked for anything.
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        vec![(0..messages.len()).collect()]
    }

    async fn send(&self, _reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        if let Some(reason) = leave.withheld() {
            return vec![Outcome::Withheld { reason }; messages.len()];
        }
        let outbox = self.clone();
        let owned = messages.to_vec();
        let written = tokio::task::spawn_blocking(move || outbox.write_all(&owned)).await;
        written.unwrap_or_else(|stopped| {
            let reason = format!("the outbox was stopped while writing: {stopped}");
            vec![Outcome::Unknown { reason }; messages.len()]
        })
    }

    fn certainty(&self) -> Certainty {
        Certainty::Repeat { within: None }
    }

    async fn check(&self) -> Checked {
        let outbox = self.clone();
        let checked = tokio::task::spawn_blocking(move || {
            let is_new = !outbox.folder.exists();
            private::folder(&outbox.folder)?;
            let (file, draft) = draft(&outbox.folder, "check")?;
            drop(file);
            fs::remove_file(draft)?;
            if is_new {
                // Another may be writing to it already.
                let _ = fs::remove_dir(&outbox.folder);
            }
            Ok::<_, io::Error>(())
        });
        let folder = self.folder.display();
        match checked.await {
            Ok(Ok(())) => {
                Checked::ready(format!("mails are written to {folder}; nobody is sent any"))
            }
            Ok(Err(error)) => Checked::wrong(
                format!("{folder} cannot be written to: {error}"),
                "choose another folder as mail.outbox",
            ),
            Err(stopped) => Checked::Unreached {
                reason: format!("{folder} could not be checked: {stopped}"),
            },
        }
    }

    fn name(&self) -> &str {
        "outbox"
    }

    fn outbox(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn account(&self) -> String {
        format!("outbox {}", self.folder.display())
    }
}

fn try_later(doing: &str, path: &Path, error: &io::Error) -> Outcome {
    Outcome::TryLater {
        reason: format!("{doing} {}: {error}", path.display()),
        after: None,
    }
}

/// How many files are written at once.
const WRITERS: usize = 8;

/// How much of a delivery's id can be read in its file's name.
const READABLE: usize = 60;

/// As people read it; the names of files that mails themselves have are unique.
fn page_name(delivery: &DeliveryId) -> String {
    let text = delivery.as_str();
    let name = text.strip_prefix("digest:").unwrap_or(text);
    let safe = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "._".contains(c) => c,
        _ => '-',
    };
    let name: String = name.chars().take(READABLE * 2).map(safe).collect();
    format!("{}.html", name.trim_start_matches('.'))
}

/// A name that any file system takes and no other delivery has: what can be read of the id, and its
/// tag.
fn file_name(delivery: &DeliveryId) -> String {
    let mut name = String::with_capacity(READABLE + 45);
    for c in delivery.as_str().chars() {
        if name.len() == READABLE {
            break;
        }
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
    }
    if !name.is_empty() && !name.ends_with('-') {
        name.push('-');
    }
    name + &tag(delivery) + ".eml"
}

/// Puts a file into the folder whole, in place of an earlier one of that name.
fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let (mut file, draft) = draft(folder, name)?;
    let written = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| {
            drop(file);
            fs::rename(&draft, folder.join(name))
        });
    written.map_err(|error| match fs::remove_file(&draft) {
        Ok(()) => error,
        Err(left) => io::Error::new(
            error.kind(),
            format!("{error}; and {} is left: {left}", draft.display()),
        ),
    })
}

/// Only Unix lets a folder be opened and synced; elsewhere renames are the file system's own
/// journal's.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Removes the drafts of processes that were killed: nothing holds their locks any more. One that
/// cannot be removed is only named in the log, as it keeps no email from being written.
fn sweep(folder: &Path) {
    let is_draft = |name: &str| name.starts_with('.') && name.ends_with(DRAFT);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_draft)) {
        let path = entry.path();
        let removed = match File::open(&path) {
            Ok(file) if file.try_lock().is_err() => continue,
            Ok(_) => fs::remove_file(&path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{} is left: {error}", path.display());
            }
            _ => {}
        }
    }
}

/// The ending of drafts.
const DRAFT: &str = ".part";

/// A new file beside the one it will become; hidden, and locked until it is whole, so that nothing
/// else writes to it or removes it.
fn draft(folder: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".{name}.{}-{count}{DRAFT}", std::process::id()));
        match private::options().create_new(true).open(&path) {
            Ok(file) => {
                // Where files cannot be locked, `sweep` removes none.
                let _ = file.lock();
                return Ok((file, path));
            }
            // Left by a process of the same number that died: the next count is free.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
