//! The outbox: a folder that stores each email as an `.eml` file, so that no provider is needed.
//!
//! A delivery is one file, named after its id, and the file is complete or absent. Sending a
//! delivery again replaces its file, so repeats are safe. After a disk error the email is retried
//! later, as the email is not at fault.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::mime::{compose, delivery_tag};
use super::{CheckResult, Mailer, Message, Outcome, Resolution, SendPermit, SenderAddress};
use crate::domain::DeliveryId;
use crate::private;

/// A folder of `.eml` files, one for each delivery.
#[derive(Debug, Clone)]
pub struct Outbox {
    folder: PathBuf,
    sender: SenderAddress,
    /// Whether to write an HTML page beside each email.
    pages: bool,
}

impl Outbox {
    /// Creates an outbox. The folder is created with the first email. With `pages`, it gets an HTML
    /// page beside each email, for the browser.
    pub fn new(folder: impl Into<PathBuf>, sender: SenderAddress, pages: bool) -> Self {
        Self { folder: folder.into(), sender, pages }
    }

    /// Returns the path of a delivery's page, such as `mara-weekly-2026-W47.html`.
    pub fn page_path(&self, delivery: &DeliveryId) -> PathBuf {
        self.folder.join(page_name(delivery))
    }

    fn write_all(&self, messages: &[Message]) -> Vec<Outcome> {
        if messages.is_empty() {
            return Vec::new();
        }
        if let Err(error) = private::create_folder(&self.folder) {
            return vec![try_later(&self.folder, &error); messages.len()];
        }
        let mut outcomes: Vec<Outcome> =
            messages.iter().map(|message| self.write(message)).collect();
        // A rename is durable only after its folder is synced.
        if let Err(error) = sync_folder(&self.folder) {
            let is_accepted = |outcome: &&mut Outcome| matches!(outcome, Outcome::Accepted(..));
            for outcome in outcomes.iter_mut().filter(is_accepted) {
                *outcome = try_later(&self.folder, &error);
            }
        }
        outcomes
    }

    fn write(&self, message: &Message) -> Outcome {
        let email = match compose(message, &self.sender) {
            Ok(email) => email,
            Err(reason) => return Outcome::Unsendable(reason),
        };
        let page = self.pages.then(|| {
            let html = message.fill_links().html.into_bytes();
            (page_name(&message.delivery), html)
        });
        let name = file_name(&message.delivery);
        for (name, content) in page.into_iter().chain([(name.clone(), email)]) {
            let path = self.folder.join(name);
            if let Err(error) = private::replace(&path, content) {
                return try_later(&path, &error);
            }
        }
        Outcome::Accepted(name)
    }

    /// Checks that the folder can be written to, and leaves it as it was.
    fn try_writing(&self) -> io::Result<()> {
        let (is_new, probe) = (!self.folder.exists(), self.folder.join(".check"));
        private::create_folder(&self.folder)?;
        private::write(&probe, "")?;
        fs::remove_file(probe)?;
        if is_new {
            // Fails if another process has written to the folder already.
            let _ = fs::remove_dir(&self.folder);
        }
        Ok(())
    }
}

#[async_trait]
impl Mailer for Outbox {
    /// Puts all messages into one call, as there is no limit.
    fn split_into_calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        vec![(0..messages.len()).collect()]
    }

    async fn send(
        &self,
        _reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome> {
        if let Some(reason) = permit.withheld_reason() {
            return vec![Outcome::Withheld(reason); messages.len()];
        }
        let outbox = self.clone();
        let owned = messages.to_vec();
        let outcomes = tokio::task::spawn_blocking(move || outbox.write_all(&owned)).await;
        outcomes.unwrap_or_else(|error| {
            let reason = format!("the outbox was stopped while writing: {error}");
            vec![Outcome::Unknown(reason); messages.len()]
        })
    }

    fn resolution(&self) -> Resolution {
        Resolution::Repeat { within: None }
    }

    async fn check(&self) -> CheckResult {
        let outbox = self.clone();
        let attempt = tokio::task::spawn_blocking(move || outbox.try_writing());
        let folder = self.folder.display();
        match attempt.await.map_err(io::Error::other).flatten() {
            Ok(()) => CheckResult::ready(format!("emails are written to {folder}; none is sent")),
            Err(error) => CheckResult::wrong(
                format!("{folder} cannot be written to: {error}"),
                "choose another folder as mail.outbox",
            ),
        }
    }

    fn name(&self) -> &str {
        "outbox"
    }

    fn outbox(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn account_id(&self) -> String {
        format!("outbox {}", self.folder.display())
    }
}

fn try_later(path: &Path, error: &io::Error) -> Outcome {
    Outcome::TryLater(format!("writing {}: {error}", path.display()), None)
}

/// The maximum length of the readable part of an email's file name. A page's name may be twice as
/// long.
const MAX_READABLE_CHARS: usize = 60;

/// Returns a short name for readers. Two deliveries may share one; only the names of `.eml` files
/// are unique.
fn page_name(delivery: &DeliveryId) -> String {
    let id = delivery.as_str();
    let to_safe = |c: char| if c.is_ascii_alphanumeric() || "._".contains(c) { c } else { '-' };
    let readable = id.strip_prefix("digest:").unwrap_or(id).chars().take(MAX_READABLE_CHARS * 2);
    let name: String = readable.map(to_safe).collect();
    format!("{}.html", name.trim_start_matches('.'))
}

/// Returns a name that is unique and valid on any file system: the readable part of the id, and the
/// tag.
fn file_name(delivery: &DeliveryId) -> String {
    let words = delivery.as_str().split(|c: char| !c.is_ascii_alphanumeric());
    let mut name = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-");
    name.make_ascii_lowercase();
    name.truncate(MAX_READABLE_CHARS);
    name.truncate(name.trim_end_matches('-').len());
    if !name.is_empty() {
        name.push('-');
    }
    format!("{name}{}.eml", delivery_tag(delivery))
}

/// Syncs the folder, which only Unix allows. On other systems the file system's journal protects
/// renames.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
