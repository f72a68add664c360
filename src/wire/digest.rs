//! The report of a digest run, which is also the JSON of `tidings digest --json`.
//!
//! Every user with pending events counts as due in [`DueDigests`], or under one reason in
//! [`DigestUsers`]. Start with [`Report`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::delivery::Waiting;
use super::trouble::{BadFanouts, BadStacks};
use super::unknown::{Unknown, is_zero};
use crate::domain::{BrandName, Day, Owed, Pause};

/// The report of a digest run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// The users whose stacks were read, and those who get no digest now; flattened in JSON.
    #[serde(flatten)]
    pub users: DigestUsers,
    /// The digests that are due; flattened in JSON.
    #[serde(flatten)]
    pub due: DueDigests,
    /// The events of days before the window; flattened in JSON.
    #[serde(flatten)]
    pub backlog: BacklogReport,
    /// The emails that an earlier run left, and this run continued or waited for.
    pub left_over: u64,
    /// The outcomes of the emails of this run and of those left over:
    /// sent + failed + canceled + unknown + deferred = due − busy − held + left over.
    pub mails: Tally,
    /// The unknown types and objects of the events of due users, included or not.
    #[serde(skip_serializing_if = "Unknown::is_empty")]
    pub not_known: Unknown,
    /// The counts that only a dry run has; flattened in JSON.
    #[serde(flatten)]
    pub dry_run: DryRunReport,
    /// Whether the limit ended the run.
    pub limited: bool,
    /// Why the run ended before all emails were settled; `None` if it did not.
    pub ended: Option<Ended>,
}

impl Report {
    /// Returns the number of emails that a dry run would send.
    pub(crate) fn emails_ahead(&self) -> u64 {
        self.due.users - self.due.busy - self.dry_run.no_brand
    }
}

/// The users whose stacks a digest run read, and why some get no digest now.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DigestUsers {
    /// The users with a stack in the window; `people` in JSON.
    #[serde(rename = "people")]
    pub scanned: u64,
    /// Of these, users who want a digest and have pending events for it.
    pub pending: u64,
    /// Users with pending events whose period has not come, or came before the events.
    pub waiting: u64,
    /// When the first of the waiting users is due.
    pub next_due: Option<DateTime<Utc>>,
    /// Users who already got this period's email.
    pub mailed_already: u64,
    /// Users whose digest of this period failed.
    pub failed_already: u64,
    /// When the first of the failed digests is retried; `None` if none is.
    pub tried_again: Option<DateTime<Utc>>,
    /// Users of whose pending events none applies any more.
    pub withdrawn: u64,
    /// Users with pending events who unsubscribed from everything.
    pub unsubscribed: u64,
    /// Users with pending events who want no digest.
    pub turned_off: u64,
    /// Users with pending events who may not be emailed, by reason.
    pub unmailable: BTreeMap<&'static str, u64>,
    /// Users who are due but not in the sample.
    pub outside_sample: u64,
}

/// The digests that are due in a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DueDigests {
    /// The users with a due digest and at least one event for it; `due` in JSON.
    #[serde(rename = "due")]
    pub users: u64,
    /// The events in these digests.
    pub events: u64,
    /// The due users with an open delivery, of this digest or an earlier one.
    pub busy: u64,
    /// The due users whose digest was not begun, because the run ended.
    pub held: u64,
}

/// The wanted events of days before the window.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BacklogReport {
    /// The backlog when the run read it.
    pub older: Owed,
    /// The part of `older` that the digests due in this run include.
    pub older_due: Owed,
    /// Further events, whose users may not be emailed at the moment.
    pub blocked: Owed,
    /// The events that expired in this run, older than `digest.max_age`, by day.
    pub given_up: BTreeMap<Day, Owed>,
    /// The part of `given_up` whose users could not be emailed.
    pub given_up_blocked: Owed,
}

/// The counts that only a dry run has.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DryRunReport {
    /// The batches that are not emailed yet; `None` if they were not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchesAhead>,
    /// Emails in English to users whose locale has no catalog, by locale.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub locales: BTreeMap<String, u64>,
    /// The messages that the language of a reader lacks, by locale.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub untranslated: BTreeMap<String, BTreeSet<String>>,
    /// Emails by brand, except those of the default brand.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub brands: BTreeMap<BrandName, u64>,
    /// Emails by brand that is not configured. They wait until it is.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_brands: BTreeMap<BrandName, u64>,
    /// Due users whose digest waits, because its brand is not configured.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_brand: u64,
}

impl DryRunReport {
    /// Returns all warnings about languages and brands, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        [
            self.other_locales(),
            self.untranslated(),
            self.brand_counts(),
        ]
        .concat()
    }

    /// Returns a sentence for each brand with its number of emails, and whether they wait.
    pub fn brand_counts(&self) -> Vec<String> {
        let mails = |mails: &u64| match mails {
            1 => "1 mail is".to_owned(),
            mails => format!("{mails} mails are"),
        };
        let of = self.brands.iter();
        let of = of.map(|(brand, n)| format!("{} of the brand {brand}", mails(n)));
        let waits = self.unknown_brands.iter().map(|(brand, n)| {
            let mails = mails(n);
            format!("{mails} of the brand {brand}, which is not configured: what is of it waits")
        });
        of.chain(waits).collect()
    }

    /// Returns a sentence for each locale without a catalog.
    pub(crate) fn other_locales(&self) -> Vec<String> {
        let told = |(asked, mails): (&String, &u64)| {
            let (mails, are) = match mails {
                1 => (
                    "1 mail is for a person who asks for".to_owned(),
                    "it is in English",
                ),
                mails => (
                    format!("{mails} mails are for people who ask for"),
                    "they are in English",
                ),
            };
            let asked = match asked.as_str() {
                OTHER_LOCALES => "other locales, which are not there".to_owned(),
                asked => format!("locale {}, which is not there", asked.escape_debug()),
            };
            format!("{mails} {asked}: {are}")
        };
        self.locales.iter().map(told).collect()
    }

    /// Returns a sentence for each language that lacks messages.
    pub fn untranslated(&self) -> Vec<String> {
        let languages = self.untranslated.iter();
        let lacks = |(locale, messages)| format!("emails in {locale}: {}", lacking(messages));
        languages.map(lacks).collect()
    }
}

/// What becomes of batches whose mails have not left, if they close as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BatchesAhead {
    /// Batches that gather something, and those that have closed and whose mail is not settled. A
    /// mail that was settled and is tried again is not among them.
    pub batches: u64,
    /// Mails that they become; a lead that waits is a mail of its own.
    pub mails: u64,
    /// Events these mails tell of.
    pub events: u64,
    /// Mails whose batch has closed: they wait in the ledger, or are on their way.
    pub closing: u64,
    /// Mails whose batch closes by the moment of the dry run.
    pub due: u64,
    /// Mails of other batches, which close later.
    pub later: u64,
    /// Of these, mails that wait for the end of their person's quiet hours.
    pub held: u64,
    /// When the first of these closes.
    pub next: Option<DateTime<Utc>>,
    /// Mails that wait, as their brand is not configured; they are in none of the above.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_brand: u64,
    /// Mails that are not made, as nothing is left that applies and that their person wants.
    pub withdrawn: u64,
    /// Mails that are not made, as their person may not be mailed, by reason.
    pub unmailable: BTreeMap<&'static str, u64>,
}

/// All locales that are not told by name, among those that are; no locale has a star.
pub const OTHER_LOCALES: &str = "*";

/// What became of deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Mails that the provider has.
    pub sent: u64,
    /// Events in the mails that were sent.
    pub events: u64,
    /// Mails that were not taken and are not tried any more, or could not be made.
    pub failed: u64,
    /// Mails with nothing left to tell, or whose person may not be mailed any more.
    pub canceled: u64,
    /// Mails that may have been taken, and nobody can tell.
    pub unknown: u64,
    /// Still waiting in the ledger: not taken by the provider yet, held back, or not known to be
    /// taken.
    pub deferred: u64,
    /// Why mails failed, wait or are unknown: the first few reasons, with how many there were of
    /// each.
    pub reasons: Vec<(String, u64)>,
    /// Documents that were passed over, or that took no marker.
    #[serde(skip_serializing_if = "BadStacks::is_empty")]
    pub bad_stacks: BadStacks,
}

/// How waiting ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// There is nothing to wait for.
    Settled,
    /// Nothing moved for as long as it was waited.
    Patience,
    /// Nothing leaves until somebody resumes.
    Paused(Pause),
    /// Somebody asked for it.
    Stopped,
}

/// The same as a script is told, with what was found out beside the run.
#[derive(Debug, Serialize)]
pub(crate) struct DigestRun<'a> {
    pub(crate) at: DateTime<Utc>,
    pub(crate) dry_run: bool,
    /// Where the page of a dry run is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page: Option<&'a Path>,
    /// Mails of this run and of earlier ones that are not settled; null where that was not found
    /// out.
    #[serde(skip_serializing_if = "none_wait")]
    pub(crate) mails_waiting: Option<&'a Waiting>,
    #[serde(skip_serializing_if = "BadFanouts::is_empty")]
    pub(crate) bad_fanouts: &'a BadFanouts,
    #[serde(flatten)]
    pub(crate) report: &'a Report,
}

/// What a language lacks, and what its emails show instead.
pub(crate) fn lacking(messages: &BTreeSet<String>) -> String {
    const NAMED: usize = 3;
    let first: Vec<&str> = messages.iter().take(NAMED).map(String::as_str).collect();
    let others = match messages.len().saturating_sub(NAMED) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    format!(
        "{}{others} have no translation; they show English headings, and no sentence that needs a \
         phrase",
        first.join(", ")
    )
}

fn none_wait(waiting: &Option<&Waiting>) -> bool {
    waiting.is_some_and(Waiting::is_empty)
}
