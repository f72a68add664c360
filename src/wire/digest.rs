//! What a run of digests came to.
//!
//! The rule: every count says what it is of; nobody who has something pending is in none of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::delivery::Waiting;
use super::trouble::{BadFanouts, BadStacks};
use super::unknown::Unknown;
use crate::domain::{BrandName, Day, Owed, Pause};

/// What a run came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// People with a stack in the window.
    pub people: u64,
    /// Of these, people with something pending that they want in their digest, who want one.
    pub pending: u64,
    /// People whose digest was due and had something to tell.
    pub due: u64,
    /// Events these digests tell of.
    pub events: u64,
    /// People with something pending whose period has not come, or came before it was there.
    pub waiting: u64,
    /// When the first of these is due.
    pub next_due: Option<DateTime<Utc>>,
    /// People who have had this period's mail already.
    pub mailed_already: u64,
    /// People whose digest of this period failed; when the first of them is tried again.
    pub failed_already: u64,
    /// When the first of these is tried again, if that is known of any.
    pub tried_again: Option<DateTime<Utc>>,
    /// What people were owed of days that have left the window, when this run looked.
    pub older: Owed,
    /// The part of `older` that the digests due in this run include.
    pub older_due: Owed,
    /// Wanted events of such days whose users may not be emailed at the moment.
    pub blocked: Owed,
    /// What this run gave up, as it was older than `digest.max_age`, by day.
    pub given_up: BTreeMap<Day, Owed>,
    /// The part of `given_up` whose users could not be emailed.
    pub given_up_blocked: Owed,
    /// People of whose pending events none applies any more.
    pub withdrawn: u64,
    /// People with something pending who unsubscribed from everything.
    pub unsubscribed: u64,
    /// People with something pending who want no digest.
    pub turned_off: u64,
    /// People with something pending who may not be mailed, by reason.
    pub unmailable: BTreeMap<&'static str, u64>,
    /// People who are due and whose delivery, this one or an earlier one, is in the ledger already.
    pub busy: u64,
    /// People who are due and were not begun with, as the run was ended.
    pub held: u64,
    /// People who are due and not in the sample.
    pub outside_sample: u64,
    /// Mails that an earlier run left, and this one took up or waited for.
    pub left_over: u64,
    /// What became of the mails, these and those that an earlier run left:
    /// sent + failed + canceled + unknown + deferred = due − busy − held + left over.
    pub mails: Tally,
    /// What is not known of the events of whoever is due, those that are not mailed for it as well.
    #[serde(skip_serializing_if = "Unknown::is_empty")]
    pub not_known: Unknown,
    /// In a dry run, batches whose mails have not left, if it looked at them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchesAhead>,
    /// In a dry run, mails to people who ask for a locale that has no catalog, by locale: they
    /// are in English.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub locales: BTreeMap<String, u64>,
    /// In a dry run, the messages that the language of a reader lacks, by locale.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub untranslated: BTreeMap<String, BTreeSet<String>>,
    /// In a dry run, mails of brands, by brand; those that are of none are the default's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub brands: BTreeMap<BrandName, u64>,
    /// The same of brands that are not configured: these mails wait until they are.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_brands: BTreeMap<BrandName, u64>,
    /// In a dry run, people who are due and whose digest waits, as its brand is not configured.
    #[serde(skip_serializing_if = "is_zero")]
    pub no_brand: u64,
    /// Whether the limit ended the run.
    pub limited: bool,
    /// What ended the run before everything was settled, if anything did.
    pub ended: Option<Ended>,
}

impl Report {
    /// How many mails are of which brand, and which of them wait, a sentence each.
    pub fn of_brands(&self) -> Vec<String> {
        let mails = |mails: u64| match mails {
            1 => "1 mail is".to_owned(),
            mails => format!("{mails} mails are"),
        };
        let of = self.brands.iter();
        let of = of.map(|(brand, n)| format!("{} of the brand {brand}", mails(*n)));
        let waits = self.unknown_brands.iter().map(|(brand, n)| {
            format!(
                "{} of the brand {brand}, which is not configured: what is of it waits",
                mails(*n)
            )
        });
        of.chain(waits).collect()
    }

    /// That mails are for locales that are not there, a sentence each.
    pub fn other_locales(&self) -> Vec<String> {
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

    /// Which messages the languages of readers lack, a sentence for each language.
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

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn none_wait(waiting: &Option<&Waiting>) -> bool {
    waiting.is_some_and(Waiting::is_empty)
}
