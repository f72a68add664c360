//! Sends one test email to an address of the operator.
//!
//! The configured mailer sends it as usual, with a subject that marks it as a test. It has no
//! ledger row and no stack entry. Suppressed addresses get no email (P7). The provider's outcome is
//! returned unchanged (P5); if it is unknown, the operator can check the mailbox.

use std::sync::Arc;

use super::open::{Access, NoStore, open_store};
use super::preview::{Kind, Sheet};
use crate::clock::{Clock, Ids, SystemClock};
use crate::config::Config;
use crate::domain::{Address, BrandName, DeliveryId};
use crate::email::{Content, Leave, Message, Outcome, Text};
use crate::engine::Error;
use crate::engine::delivery::Headers;
use crate::engine::delivery::identity::mailer;

/// The prefix of the subject.
pub const MARK: &str = "[Test] ";

/// Sends this email to an address.
///
/// # Errors
///
/// A suppressed address is a conflict, and nothing is sent. Before the store exists, no address is
/// suppressed.
pub async fn send_test(
    config: &Config,
    brand: Option<&BrandName>,
    to: Address,
    sheet: &Sheet,
) -> anyhow::Result<Outcome> {
    let mailer = mailer(config)?;
    let suppressed = match open_store(config, Access::Read).await {
        Ok(store) => store
            .suppressed(&[to.folded()])
            .await
            .map_err(Error::from)?,
        Err(error) if error.is::<NoStore>() => Vec::new(),
        Err(error) => return Err(error),
    };
    if let Some(suppression) = suppressed.into_iter().next().flatten() {
        let why = suppression.reason.as_str();
        return Err(Error::Conflict(format!(
            "no mail goes to this address: {why} (tidings suppressions lift ends it)"
        ))
        .into());
    }
    let now = SystemClock.now();
    let id = Ids::random().next(now);
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
        further: Headers::new(config, brand).of_test(sheet.kind == Kind::Digest),
        at: now,
    };
    let (reference, permit) = (format!("test-{id}"), Leave::always());
    let mut sent = mailer.send(&reference, &[message], &permit).await;
    Ok(sent.pop().unwrap_or_else(|| Outcome::Unknown {
        reason: "the mailer gave no answer".into(),
    }))
}
