//! Sends one test email to an address of the operator.
//!
//! The configured mailer sends it as usual, with a subject that marks it as a test. It has no
//! ledger row and no stack entry. Suppressed addresses get no email (P7). The provider's outcome is
//! returned unchanged (P5); if it is unknown, the operator can check the mailbox.

use std::sync::Arc;

use super::preview::{Kind, Sheet};
use crate::clock::{Clock, Ids};
use crate::domain::{Address, DeliveryId};
use crate::email::{Content, Leave, Mailer, Message, Outcome, Text};
use crate::engine::delivery::Headers;
use crate::engine::{Error, Result};
use crate::store::Suppressions;

/// The prefix of the subject.
pub const MARK: &str = "[Test] ";

/// Sends test emails.
pub struct SendTest {
    pub(crate) mailer: Arc<dyn Mailer>,
    pub(crate) headers: Headers,
    /// The suppressed addresses; `None` if there is no store yet.
    pub suppressions: Option<Arc<dyn Suppressions>>,
    /// The clock, which tests can set.
    pub clock: Arc<dyn Clock>,
    /// Generates ids.
    pub ids: Arc<Ids>,
}

impl SendTest {
    /// Sends this email, marked as a test.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the address is suppressed. Nothing is sent then.
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
