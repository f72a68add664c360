//! How mails are sent: how many together, how often, how soon again, and what stops them all.
//!
//! The rule: what each of these means to an operator, its range and its default stand in
//! `config.default.toml`, under `[delivery]`.

use chrono::TimeDelta;

use super::Share;
use super::delivery::Guarantee;

/// The section `[delivery]`, valid, but for `soft_bounces`.
#[derive(Debug, Clone, Copy)]
pub struct Sending {
    /// Mails that are checked and built together.
    pub chunk: usize,
    /// Calls to the provider at a time, at most.
    pub in_flight: usize,
    /// How long a worker holds a delivery it says nothing of; then others take it over.
    pub lease: TimeDelta,
    /// How long a mail waits that was not taken, the first time; doubled each time.
    pub retry_after: TimeDelta,
    /// After so many tries that are counted it has failed: see
    /// [`crate::domain::delivery::Deferral::spends_try`].
    pub attempts: u32,
    /// After so long it has failed.
    pub give_up_after: TimeDelta,
    /// How soon the provider is asked about an outcome nobody saw.
    pub ask_after: TimeDelta,
    /// From when on "never heard of it" is believed.
    pub ask_until: TimeDelta,
    /// For how long it is tried to find out an outcome nobody saw.
    pub resolve_within: TimeDelta,
    /// What becomes of a mail of which nobody can tell whether it was taken.
    pub guarantee: Guarantee,
    /// The fewest outcomes from which a share of them can stop everything.
    pub stop_after: u32,
    /// The shares of failures, bounces and complaints that stop everything.
    pub stop_share: Share,
    /// Bounces for good, of the mails of the last day.
    pub stop_bounces: Share,
    /// Spam reports, of the mails of the last day.
    pub stop_complaints: Share,
    /// At most so many mails an hour, over all processes; 0 for as many as there are.
    pub mails_per_hour: u32,
    /// How long a run waits for mails that wait, when nothing moves.
    pub patience: TimeDelta,
    /// How long settled deliveries and batches are remembered.
    pub keep: TimeDelta,
}
