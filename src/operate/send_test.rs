//! One real mail to an address of the operator's, to see it arrive.
//!
//! The rule: it leaves as mails leave, by the configured mailer, and says in its subject that it is
//! a test; neither the ledger nor a stack hears of it. An address that must not be written to is
//! not (P7). What the provider answers is told as it is (P5): whether a mail whose answer was not
//! seen came can be seen in the mailbox.

use std::sync::Arc;

use super::preview::{Kind, Sheet};
use crate::clock::{Clock, Ids};
use crate::domain::{Address, DeliveryId};
use crate::email::{Content, Leave, Mailer, Message, Outcome, Text};
use crate::engine::delivery::Headers;
use crate::engine::{Error, Result};
use crate::store::Suppressions;

/// What its subject begins with.
pub const MARK: &str = "[Test] ";

/// Sends test mails.
pub struct SendTest {
    pub(crate) mailer: Arc<dyn Mailer>,
    pub(crate) headers: Headers,
    /// The addresses that no mail goes to; `None` where there is no store yet.
    pub suppressions: Option<Arc<dyn Suppressions>>,
    /// The time; tests turn it.
    pub clock: Arc<dyn Clock>,
    /// Makes new ids.
    pub ids: Arc<Ids>,
}

impl SendTest {
    /// Sends this mail there, marked as a test. A suppressed address is a conflict, and nothing is
    /// sent.
    pub async fn send(&self, to: Address, sheet: &Sheet) -> Result<Outcome> {
        if let Some(suppressions) = &self.suppressions {
            let folded = to.folded();
            let found = suppressions
                .suppressed(std::slice::from_ref(&folded))
                .await?;
            if let Some(suppression) = found.into_iter().next().flatten() {
                let why = suppression.reason.as_str();
                return Err(Error::Conflict(format!(
                    "no mail goes to this address: {why} (tidings suppressions lift ends it)"
                )));
            }
        }
        let now = self.clock.now();
        let id = self.ids.next(now);
        let subject = sheet.subject.as_deref().unwrap_or_default();
        let content = Content {
            subject: format!("{MARK}{subject}"),
            html: Text::from(sheet.html.as_str()),
            text: Text::from(sheet.text.as_deref().unwrap_or_default()),
        };
        let message = Message {
            delivery: DeliveryId::stored(format!("test:{id}")),
            to,
            to_name: None,
            content: Arc::new(content),
            personal: None,
            further: self.headers.of_test(sheet.kind == Kind::Digest),
            at: now,
        };
        let reference = format!("test-{id}");
        let (messages, leave) = ([message], Leave::always());
        let mut sent = self.mailer.send(&reference, &messages, &leave).await;
        let silent = || Outcome::Unknown {
            reason: "the mailer gave no answer".into(),
        };
        Ok(sent.pop().unwrap_or_else(silent))
    }
}
