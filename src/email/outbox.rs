//! The outbox: a folder that stores each email as an `.eml` file, so that no provider is needed.
//!
//! A delivery is one file, named after its id, and the file is complete or absent. Sending a
//! delivery again replaces its file, so repeats are safe. After a disk error the email is retried
//! later, as the email is not at fault.

use std::fs::{self, File};
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::thread;

use async_trait::async_trait;

use super::mime::{compose, tag};
use super::{Certainty, Checked, Mailer, Message, Outcome, Permit, Sender};
use crate::domain::DeliveryId;
use crate::private;

/// A folder of `.eml` files, one for each delivery.
#[derive(Debug, Clone)]
pub struct Outbox {
    folder: PathBuf,
    sender: Sender,
    /// Whether to write an HTML page beside each email.
    pages: bool,
    /// Set once the drafts of killed processes are removed.
    swept: Arc<Once>,
}

impl Outbox {
    /// Creates an outbox. The folder is created with the first email.
    pub fn new(folder: impl Into<PathBuf>, sender: Sender) -> Self {
        Self {
            folder: folder.into(),
            sender,
            pages: false,
            swept: Arc::new(Once::new()),
        }
    }

    /// Enables or disables an HTML page beside each email, for the browser.
    pub fn with_pages(self, pages: bool) -> Self {
        Self { pages, ..self }
    }

    /// Returns the path of a delivery's page, such as `mara-weekly-2026-W47.html`.
    pub fn page(&self, delivery: &DeliveryId) -> PathBuf {
        self.folder.join(page_name(delivery))
    }

    /// Returns the path of a delivery's email.
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
        // A rename is durable only after its folder is synced.
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

    /// Writes several files at a time. Most of the time is spent waiting for the disk, which can
    /// sync several files as fast as one.
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
    /// Puts all messages into one call, as there is no limit.
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        vec![(0..messages.len()).collect()]
    }

    async fn send(&self, _reference: &str, messages: &[Message], permit: &Permit) -> Vec<Outcome> {
        if let Some(reason) = permit.withheld() {
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
                // Fails if another process has written to the folder already.
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

/// The number of files that are written at once.
const WRITERS: usize = 8;

/// The maximum length of the readable part of an email's file name. A page's name may be twice as
/// long.
const READABLE: usize = 60;

/// Returns a short name for readers. Two deliveries may share one; only the names of `.eml` files
/// are unique.
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

/// Returns a name that is unique and valid on any file system: the readable part of the id, and the
/// tag.
fn file_name(delivery: &DeliveryId) -> String {
    let words = delivery
        .as_str()
        .split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-").to_ascii_lowercase();
    name.truncate(READABLE);
    let name = name.trim_end_matches('-');
    let dash = if name.is_empty() { "" } else { "-" };
    format!("{name}{dash}{}.eml", tag(delivery))
}

/// Writes a file atomically. It replaces an earlier file with this name.
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

/// Syncs the folder, which only Unix allows. On other systems the file system's journal protects
/// renames.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Removes the drafts of killed processes, whose locks are free. Failures are only logged, as a
/// leftover draft does not affect any email.
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

/// The suffix of drafts.
const DRAFT: &str = ".part";

/// Creates a hidden draft of a file. It is locked until it is complete, so that [`sweep`] in
/// another process does not remove it.
fn draft(folder: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".{name}.{}-{count}{DRAFT}", std::process::id()));
        match private::options().create_new(true).open(&path) {
            Ok(file) => {
                // On a file system without locks, `sweep` removes no drafts.
                let _ = file.lock();
                return Ok((file, path));
            }
            // A dead process with the same id left this draft. Try the next count.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
