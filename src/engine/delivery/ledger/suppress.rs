//! Suppresses addresses that the provider permanently rejects.
//!
//! This runs after the failure is in the ledger (P7). If the process dies in between, the next
//! email to the address is rejected again, and the address is suppressed then.

use chrono::{DateTime, Utc};

use super::super::compose::Mail;
use super::super::retry::Undeliverable;
use super::Ledger;
use crate::domain::{Reason, Suppression};
use crate::engine::Result;

impl Ledger {
    /// Suppresses the undeliverable addresses among the emails of one call. `source` is stored as
    /// the origin.
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
