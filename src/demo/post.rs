//! The mailer of the demo: an outbox, and a record of the sent emails.
//!
//! It records only emails that the outbox accepted, in their order, with the recipient's links.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::email::{Certainty, Checked, Leave, Mailer, Message, Outbox, Outcome};

/// A sent email.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    pub user: String,
    pub at: DateTime<Utc>,
    pub subject: String,
    pub text: String,
    /// The HTML for a browser.
    pub html: String,
    /// The file of that HTML.
    pub page: PathBuf,
}

/// The sent emails, in their order.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Vec<Posted>>);

impl Book {
    pub(crate) fn all(&self) -> Vec<Posted> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the number of emails.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns an email by its number, counted from 0.
    pub(crate) fn get(&self, number: usize) -> Option<Posted> {
        let mails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mails.get(number).cloned()
    }

    fn note(&self, posted: Posted) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(posted);
    }
}

pub(crate) struct Post {
    pub outbox: Outbox,
    pub book: Arc<Book>,
}

#[async_trait]
impl Mailer for Post {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        self.outbox.calls(messages)
    }

    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let outcomes = self.outbox.send(reference, messages, leave).await;
        messages
            .iter()
            .zip(outcomes)
            .map(|(message, outcome)| match outcome {
                Outcome::Accepted { .. } => {
                    self.note(message);
                    outcome
                }
                other => other,
            })
            .collect()
    }

    fn certainty(&self) -> Certainty {
        self.outbox.certainty()
    }

    async fn check(&self) -> Checked {
        self.outbox.check().await
    }

    fn name(&self) -> &str {
        self.outbox.name()
    }

    fn outbox(&self) -> Option<&Path> {
        self.outbox.outbox()
    }
}

impl Post {
    fn note(&self, message: &Message) {
        let content = message.filled();
        // Each user's name is their id with a capital letter.
        let user = message
            .to_name
            .as_deref()
            .unwrap_or_default()
            .to_lowercase();
        self.book.note(Posted {
            user,
            at: message.at,
            subject: content.subject,
            text: content.text,
            html: content.html,
            page: shown(&self.outbox.page(&message.delivery)),
        });
    }
}

fn shown(page: &Path) -> PathBuf {
    page.strip_prefix(".").unwrap_or(page).to_owned()
}
