//! Who takes the demo's mails: the outbox, and a book of what left.
//!
//! The rule: only what the outbox took is noted, in its order, with the links of whom it went to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::mail::{Certainty, Checked, Leave, Mailer, Message, Outbox, Outcome};

/// A mail that left.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    pub user: String,
    pub at: DateTime<Utc>,
    pub subject: String,
    pub text: String,
    /// The same for a browser.
    pub html: String,
    /// The file that holds that.
    pub page: PathBuf,
}

/// The mails that left so far, in their order.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Vec<Posted>>);

impl Book {
    pub(crate) fn all(&self) -> Vec<Posted> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The one of this number; they are counted from 0.
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
}

impl Post {
    fn note(&self, message: &Message) {
        let content = message.filled();
        // Everybody in the demo is called as their id is, with a capital.
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
