//! Builds the parts that send emails: the sender, the digests, and the dry run.

use super::App;
use super::brands::headers;
use crate::engine::delivery::{self, Account, Compose, Gate, Ledger, Retry, Sender};
use crate::engine::digest::Digests;
use crate::engine::eligibility::skip_seen::SkipSeen;
use crate::operate::dry_run::{DryRun, MAX_RENDERED};
use crate::operate::preview::OfPerson;

impl App {
    /// Makes mails of rows, and only reads.
    pub fn compose(&self) -> Compose {
        Compose {
            context: self.context.clone(),
            catalog: self.catalog(),
            skip_seen: self.skip_seen(),
            brand: None,
            looks: self.brands.looks.clone(),
            renderer: self.renderer.clone(),
            links: self.links.clone(),
            headers: headers(&self.config, None),
            caps: self.config.digest.caps,
            schedule: self.config.digest.schedule,
        }
    }

    /// Knows what digests leave out as it was seen in the feed.
    pub(super) fn skip_seen(&self) -> SkipSeen {
        SkipSeen::new(self.config.digest.skip_seen, self.context.clone())
    }

    /// Takes rows of the ledger to their end; all of one process share its pacer.
    pub fn sender(&self) -> Sender {
        let settings = self.config.delivery;
        Sender {
            compose: self.compose(),
            gate: Gate {
                context: self.context.clone(),
                reporter: self.config.reporter().map(|provider| provider.title),
                owner: self.context.owner.clone(),
                settings,
                account_prefix: delivery::account_prefix(&*self.mailer, None),
                account: Account::of_default(&*self.mailer),
                pacer: self.pacer.clone(),
            },
            ledger: Ledger::new(self.context.clone(), settings.lease),
            retry: Retry {
                settings,
                certainty: self.mailer.certainty(),
            },
            mailer: self.mailer.clone(),
            outlets: self.brands.outlets.clone(),
            context: self.context.clone(),
        }
    }

    /// Finds and mails the digests that are due.
    pub fn digests(&self) -> Digests {
        Digests {
            sender: self.sender(),
            context: self.context.clone(),
            catalog: self.catalog(),
            skip_seen: self.skip_seen(),
            owed: self.owed(),
            full_look: self.config.digest.full_look,
            schedule: self.config.digest.schedule,
            caps: self.config.digest.caps,
        }
    }

    /// Counts and shows what a run of digests would send, and writes nothing.
    pub fn dry_run(&self) -> DryRun {
        let leaves = self.outbox().is_none();
        let lacks = |lacks: bool, what: &str| (leaves && lacks).then(|| what.to_owned());
        let lacking = [
            lacks(
                self.lacks_links(),
                "The emails carry no link to unsubscribe, as server.public_url is not set: users will report them as spam.",
            ),
            lacks(
                self.config.site.postal_address.is_none(),
                "The emails carry no postal address (site.postal_address), which commercial email needs.",
            ),
        ];
        DryRun {
            digests: self.digests(),
            batches: self.batches(),
            compose: self.compose(),
            context: self.context.clone(),
            lacking: lacking.into_iter().flatten().collect(),
            mails_per_hour: self.config.delivery.mails_per_hour,
            max_rendered: MAX_RENDERED,
        }
    }

    /// Finds what one person would be mailed now.
    pub fn of_person(&self) -> OfPerson {
        OfPerson {
            digests: self.digests(),
            batches: self.batches(),
            compose: self.compose(),
            context: self.context.clone(),
            brand: None,
        }
    }
}
