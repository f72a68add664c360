//! What is asked of a run of digests, and what it answers.
//!
//! The rule: every count is of people or of events, and says which; nobody who has something
//! pending is in none of them.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::{Cadence, Day, Delivery, DeliveryState, Owed, Share, UserId};
use crate::services::mailing::{Account, Ended, Tally};
use crate::services::unknown::Unknown;

/// Whose digests, and when.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// As if this were now.
    pub at: Option<DateTime<Utc>>,
    /// Only people on this cadence.
    pub cadence: Option<Cadence>,
    /// Only these people.
    pub users: Option<Vec<UserId>>,
    /// At most so many mails.
    pub limit: Option<u64>,
    /// Only so many of all people, the same each time.
    pub sample: Option<Share>,
    /// How long mails are waited for that wait, when nothing moves; without it they are left to the
    /// next run.
    pub patience: Option<TimeDelta>,
    /// By default a digest waits for its person's hour.
    pub timing: Timing,
    /// By default mails are sent.
    pub effect: Effect,
}

/// Whether people's hours are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// Only who had something pending when their hour came.
    #[default]
    WhenDue,
    /// Everybody who has something pending and got no mail in the period they are in.
    Now,
}

/// Whether a run mails, or only says what it would mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    /// Opens rows in the ledger and mails what is due.
    #[default]
    Send,
    /// Says what would be sent and writes nothing.
    Rehearse,
}

/// What a run came to.
#[derive(Debug, Clone, Default, serde::Serialize)]
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
    /// What this run gave up, as it was older than `digest.max_age`, by day.
    pub given_up: BTreeMap<Day, Owed>,
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
    pub unknown: Unknown,
    /// Whether the limit ended the run.
    pub limited: bool,
    /// What ended the run before everything was settled, if anything did.
    pub ended: Option<Ended>,
}

impl Request {
    /// Whether a run looks at everybody, so that it may note what is owed.
    pub(super) fn reads_all(&self) -> bool {
        self.effect == Effect::Send && self.users.is_none()
    }
}

impl Report {
    /// This person has a row for the period already, which is tried again then, if it failed.
    pub(super) fn stands(
        &mut self,
        row: &Delivery,
        again: Option<DateTime<Utc>>,
        request: &Request,
        account: &mut Account,
    ) {
        if row.state == DeliveryState::Failed {
            self.failed_already += 1;
            self.tried_again = [self.tried_again, again].into_iter().flatten().min();
        } else if row.state.settled() {
            self.mailed_already += 1;
        } else if request.effect == Effect::Send
            && (row.lease.is_none() || request.patience.is_some())
        {
            // Whoever holds it may be dead: a run that waits sees that through as well.
            let begun = account.begun();
            account.take_up(std::slice::from_ref(row));
            self.left_over += account.begun() - begun;
        } else {
            self.due += 1;
            self.busy += 1;
        }
    }

    pub(super) fn give_up(&mut self, day: Day, owed: Owed) {
        if !owed.is_nothing() {
            *self.given_up.entry(day).or_default() += owed;
        }
    }
}
