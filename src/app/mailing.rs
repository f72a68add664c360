//! Puts together what mails: the sender and its helpers, who finds what is due, and the rehearsal.

use super::App;
use crate::config::Mail;
use crate::engine::delivery::identity::Identity;
use crate::engine::delivery::{Compose, Gate, Ledger, Retry, Sender};
use crate::engine::digest::Digests;
use crate::engine::eligibility::skip_seen::SkipSeen;
use crate::operate::preview::OfPerson;
use crate::operate::rehearsal::{self, Rehearsal};

impl App {
    /// Makes mails of rows, and only reads.
    pub fn compose(&self) -> Compose {
        let Identity {
            renderer,
            links,
            headers,
            ..
        } = self.identities.default.clone();
        Compose {
            context: self.context.clone(),
            catalog: self.catalog(),
            skip_seen: self.skip_seen(),
            brand: None,
            identities: self.identities.clone(),
            renderer,
            links,
            headers,
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
        let identity = self.identities.default.clone();
        Sender {
            compose: self.compose(),
            gate: Gate {
                context: self.context.clone(),
                reporter: self.config.reporter().map(|provider| provider.title),
                owner: self.context.owner.clone(),
                settings,
                account_prefix: identity.account_prefix,
                account: identity.account,
                pacer: identity.pacer,
            },
            ledger: Ledger::new(self.context.clone(), settings.lease),
            retry: Retry {
                settings,
                certainty: identity.mailer.certainty(),
            },
            mailer: identity.mailer,
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

    /// Shows what a run would mail, and writes nothing.
    pub fn rehearsal(&self) -> Rehearsal {
        let mail = &self.config.mail;
        let leaves = self.outbox().is_none();
        let lacks = |lacks: bool, what: &str| (leaves && lacks).then(|| what.to_owned());
        let from = |mail: &Mail| format!("{} <{}>", mail.from_name, mail.from);
        let lacking = [
            lacks(
                self.lacks_links(),
                "The mails carry no link to unsubscribe, as server.public_url is not set: people will report them as spam.",
            ),
            lacks(
                self.config.site.postal_address.is_none(),
                "The mails carry no postal address (site.postal_address), which commercial mail must.",
            ),
        ];
        Rehearsal {
            digests: self.digests(),
            batches: self.batches(),
            compose: self.compose(),
            mailer: self.identities.default.mailer.clone(),
            context: self.context.clone(),
            from: from(mail),
            from_brands: (self.config.brands.iter())
                .map(|(name, brand)| (name.clone(), from(&brand.mail)))
                .collect(),
            lacking: lacking.into_iter().flatten().collect(),
            limits: rehearsal::Limits {
                mails_per_hour: self.config.delivery.mails_per_hour,
                calls_per_second: leaves.then_some(mail.calls_per_second),
                in_flight: self.config.delivery.in_flight,
            },
            most_rendered: rehearsal::MOST_RENDERED,
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
