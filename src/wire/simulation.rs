//! The emails that recorded events would have caused under several batch policies.

use chrono::{DateTime, Utc};
use serde::Serialize;

/// A comparison of policies over the same events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The number of events; an event for several users counts once for each.
    pub events: u64,
    /// The number of users with any event.
    pub users: u64,
    /// The time of the first event; `None` if there is none.
    pub from: Option<DateTime<Utc>>,
    /// The time of the last event; `None` if there is none.
    pub to: Option<DateTime<Utc>>,
    /// The figures of each policy, in the order of the request.
    pub policies: Vec<PolicyFigures>,
}

/// The emails of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyFigures {
    /// The name of the policy.
    pub policy: String,
    /// The number of emails to all users.
    pub emails: u64,
    /// Emails per day, from the first event to the last, over at least one day.
    pub emails_per_day: f64,
    /// Emails per user, over all users with any event.
    pub emails_per_user: Spread,
    /// The time from an event to its email, in seconds.
    pub delay_seconds: Spread,
    /// The largest number of events in one email.
    pub largest: u64,
}

/// How a number is distributed. All fields are 0 if there are no values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The arithmetic mean.
    pub mean: f64,
    /// Half of the values are at most this.
    pub p50: u64,
    /// 95% of the values are at most this.
    pub p95: u64,
    /// The largest value.
    pub max: u64,
}
