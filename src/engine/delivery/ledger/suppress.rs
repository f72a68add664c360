//! Suppresses the addresses that a provider takes nothing for any more.
//!
//! The rule (P7): only after the ledger has it that the mail failed. Whoever dies in between loses
//! nothing for good: the next mail to that address is refused again, and says so again.

use chrono::{DateTime, Utc};

use super::super::compose::Mail;
use super::super::retry::Undeliverable;
use super::Ledger;
use crate::domain::{Reason, Suppression};
use crate::engine::Result;

impl Ledger {
    /// Suppresses the addresses that these mails, of one call, could not be taken for; `source`
    /// says so.
    pub(in crate::engine::delivery) async fn suppress(
        &self,
        mails: &[Mail],
        undeliverable: &[Undeliverable],
        source: &str,
        now: DateTime<Utc>,
    ) -> Result<()> {
        if undeliverable.is_empty() {
            return Ok(());
        }
        let news = undeliverable.iter().filter_map(|lost| {
            let mail = mails.iter().find(|mail| mail.row.id == lost.delivery)?;
            let hard = Suppression::new(&mail.message.to, Reason::HardBounce, now, source);
            Some(hard.detailed(Some(&lost.reason)))
        });
        let news: Vec<Suppression> = news.collect();
        Ok(self.context.store.suppress(&news).await?)
    }
}
