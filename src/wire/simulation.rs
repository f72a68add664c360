//! What mails recorded events would have made under several policies.

use chrono::{DateTime, Utc};
use serde::Serialize;

/// What all policies have in common, and what came of each.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// One for each person an event concerned.
    pub events: u64,
    /// How many people any event concerned.
    pub people: u64,
    /// When the first event happened; `None` if there is none.
    pub from: Option<DateTime<Utc>>,
    /// When the last event happened; `None` if there is none.
    pub to: Option<DateTime<Utc>>,
    /// What came of each policy, in the order of the trials.
    pub policies: Vec<Report>,
}

/// What came of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The name that the policy was given.
    pub policy: String,
    /// How many mails it makes, to everybody together.
    pub mails: u64,
    /// Over the time from the first event to the last, at least a day.
    pub mails_per_day: f64,
    /// How many people any event concerned: the same of all policies.
    #[serde(skip)]
    pub people: u64,
    /// How mails are spread over people.
    pub mails_per_person: PerPerson,
    /// How long events wait, in whole seconds.
    pub delay_seconds: Delay,
    /// The most events of a mail.
    pub largest: u64,
    /// How waits are spread, from the shortest step to the longest.
    pub delays: Vec<Reach>,
    /// By the hour of the day, UTC.
    pub mails_by_hour: [u64; 24],
}

/// How many mails people got.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PerPerson {
    /// Over everybody whom an event concerned, also who got none.
    pub mean: f64,
    /// 95% of the people got at most so many.
    pub p95: u64,
    /// The most that one person got.
    pub max: u64,
}

/// How long events waited for their mail, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Delay {
    /// Half of the events waited at most so long.
    pub p50: u64,
    /// 95% of the events waited at most so long.
    pub p95: u64,
    /// The longest wait of all.
    pub max: u64,
}

/// How many events waited longer than the one before, and up to so many seconds; without a limit,
/// however long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Reach {
    /// The longest wait of this step, in seconds; `None` for the last step.
    pub up_to_seconds: Option<u64>,
    /// Events of this step alone.
    pub events: u64,
}
