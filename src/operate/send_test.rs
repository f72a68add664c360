//! Sends a previewed email to the operator.

use std::sync::Arc;

use super::open::{Access, Refusal, open_store};
use super::preview::{PreviewKind, PreviewSheet};
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::domain::{Address, BrandName, DeliveryId};
use crate::email::{BodyText, Message, Outcome, SendPermit, SharedContent};
use crate::engine;
use crate::engine::delivery::Headers;
use crate::engine::delivery::brand_identities::new_mailer;
use crate::ids::Ids;

/// The prefix of the subject.
const TEST_PREFIX: &str = "[Test] ";

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
    sheet: &PreviewSheet,
) -> anyhow::Result<Outcome> {
    let mailer = new_mailer(config)?;
    let states = match open_store(config, Access::Read).await {
        Ok(store) => store.address_states(&[to.folded()]).await?,
        Err(error) => match error.downcast_ref::<Refusal>() {
            Some(refusal) if refusal.is_missing => Vec::new(),
            _ => return Err(error),
        },
    };
    if let Some(suppression) = states.into_iter().find_map(|state| state.suppression) {
        let (what, reason) = ("no email is sent to this address", suppression.reason);
        let why = format!("{what}: {reason} (tidings suppressions lift ends it)");
        return Err(engine::Error::Conflict(why).into());
    }
    let now = SystemClock.now();
    let id = Ids::random().next(now);
    let subject = sheet.subject.as_deref().unwrap_or_default();
    let content = SharedContent {
        subject: format!("{TEST_PREFIX}{subject}"),
        html: BodyText::from(sheet.html.as_str()),
        text: BodyText::from(sheet.text.as_deref().unwrap_or_default()),
    };
    let message = Message {
        delivery: DeliveryId::stored(format!("test:{id}")),
        to,
        to_name: None,
        content: Arc::new(content),
        links: None,
        extra_headers: Headers::new(config, brand)
            .headers_of_test(sheet.kind == PreviewKind::Digest),
        at: now,
    };
    let (reference, permit) = (format!("test-{id}"), SendPermit::always());
    let mut sent = mailer.send(&reference, &[message], &permit).await;
    Ok(sent.pop().unwrap_or_else(|| Outcome::Unknown("the mailer gave no answer".into())))
}
