//! The settings for sending email: chunk sizes, rate, retries, and limits that pause sending.
//!
//! `config.default.toml` documents their meaning, ranges and defaults under `[delivery]`.

use chrono::TimeDelta;

use super::Share;
use super::delivery::Guarantee;

/// The valid settings of the section `[delivery]`, except `soft_bounces`.
#[derive(Debug, Clone, Copy)]
pub struct Sending {
    /// The number of emails that are checked and built together.
    pub chunk: usize,
    /// The most concurrent calls to the provider.
    pub in_flight: usize,
    /// How long a worker's claim on a delivery lasts without renewal. Then other workers may claim
    /// it.
    pub lease: TimeDelta,
    /// The delay before the first retry; it doubles each time.
    pub retry_after: TimeDelta,
    /// The number of counted attempts after which a delivery fails: see
    /// [`crate::domain::delivery::Deferral::has_failed`].
    pub attempts: u32,
    /// The age at which a delivery fails.
    pub give_up_after: TimeDelta,
    /// The delay before the provider is queried about an unknown outcome.
    pub ask_after: TimeDelta,
    /// The delay, after the lease, until a provider that does not know the email is believed.
    pub ask_until: TimeDelta,
    /// How long an unknown outcome is investigated.
    pub resolve_within: TimeDelta,
    /// What to do with emails whose outcome cannot be determined.
    pub guarantee: Guarantee,
    /// The fewest outcomes for which `stop_share` applies.
    pub stop_after: u32,
    /// The share of failures above which sending is paused.
    pub stop_share: Share,
    /// The share of the last day's emails that may bounce or be rejected before sending is paused.
    pub stop_bounces: Share,
    /// The share of the last day's emails that may be reported as spam before sending is paused.
    pub stop_complaints: Share,
    /// The most emails per hour in all processes together; 0 for no limit.
    pub mails_per_hour: u32,
    /// How long a digest run waits for deferred emails without any progress.
    pub patience: TimeDelta,
    /// How long settled deliveries and batches are kept.
    pub keep: TimeDelta,
}
