//! When a batch closes and which events it keeps.
//!
//! A batch closes at
//! `min(opened_at + max_wait, max(opened_at + window, last_event_at + cooldown))`, and at once when
//! it is full. Fixed windows, cooldowns, extensions near the end and immediate emails are all
//! settings of this formula.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::name::InvalidValue;

/// The rules by which batches of a type close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPolicy {
    /// The shortest time that a batch stays open.
    pub window: TimeDelta,
    /// The time without new events before a batch closes.
    pub cooldown: TimeDelta,
    /// The longest time that a batch stays open; `None` for no limit.
    pub max_wait: Option<TimeDelta>,
    /// The number of events that closes a batch at once.
    pub close_at: Option<NonZeroU64>,
    /// Which events are kept for display. It limits the length of the email, not the total.
    pub keep: Keep,
    /// Whether the events that open a batch are emailed at once, and only later ones are collected.
    pub leading: bool,
    /// The end of the user's quiet hours, before which no batch closes ([`super::Batch`]).
    pub deferred_until: Option<DateTime<Utc>>,
}

impl BatchPolicy {
    /// The policy that emails each event at once.
    pub const IMMEDIATE: Self = Self {
        window: TimeDelta::zero(),
        cooldown: TimeDelta::zero(),
        max_wait: None,
        close_at: None,
        keep: Keep::Last(10),
        leading: false,
        deferred_until: None,
    };

    /// Returns when a batch with these times closes, unless it fills up earlier.
    pub fn closes_at(
        &self,
        opened_at: DateTime<Utc>,
        last_event_at: DateTime<Utc>,
    ) -> DateTime<Utc> {
        let closes_at = after(opened_at, self.window).max(after(last_event_at, self.cooldown));
        match self.max_wait {
            Some(max_wait) => closes_at.min(after(opened_at, max_wait)),
            None => closes_at,
        }
    }

    /// Returns whether a batch with this number of events closes at once.
    pub fn is_full(&self, count: u64) -> bool {
        self.close_at.is_some_and(|full| count >= full.get())
    }

    /// Returns whether each event is emailed at once.
    pub fn is_immediate(&self) -> bool {
        self.window.is_zero() && self.cooldown.is_zero()
    }

    /// Returns the policy for a user who chose a window. `max_wait` grows to at least that window,
    /// or it would override the user's choice.
    pub fn with_window(self, window: Option<TimeDelta>) -> Self {
        let Some(window) = window else { return self };
        Self { window, max_wait: self.max_wait.map(|max_wait| max_wait.max(window)), ..self }
    }

    /// Returns a text for records that identifies the policy. Quiet hours are not part of it.
    pub fn fingerprint(&self) -> String {
        let (window, cooldown) = (self.window.num_milliseconds(), self.cooldown.num_milliseconds());
        let max_wait = self.max_wait.map_or(-1, |max_wait| max_wait.num_milliseconds());
        let close_at = self.close_at.map_or(0, NonZeroU64::get);
        let suffix = if self.leading { " leading" } else { "" };
        format!("{window}/{cooldown}/{max_wait}/{close_at} {}{suffix}", self.keep)
    }

    /// Returns the settings that are probably mistakes. Each has its name within the section or
    /// type, such as `cooldown`, then the reason and a suggestion. The reason follows the name.
    pub fn likely_mistakes(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let exceeds_max_wait =
            |time: TimeDelta| self.max_wait.is_some_and(|max_wait| max_wait < time);
        let closes_at_one = self.close_at == NonZeroU64::new(1);
        let too_long = "is longer than max_wait, which always ends the batch before";
        let shorten = "make it at most max_wait";
        let doubts = [
            (
                self.max_wait.is_none() && !self.cooldown.is_zero(),
                "cooldown",
                "has no max_wait beside it: while events keep coming within it, no email is sent",
                "set max_wait",
            ),
            (exceeds_max_wait(self.window), "window", too_long, shorten),
            (exceeds_max_wait(self.cooldown), "cooldown", too_long, shorten),
            (
                closes_at_one && !self.is_immediate(),
                "close_at",
                "is 1: each event gets its own email, and the times mean nothing",
                "raise it, or set route = \"immediate\"",
            ),
            (
                self.leading && (self.is_immediate() || closes_at_one),
                "leading",
                "means nothing where each event gets its own email",
                "set a window or a cooldown",
            ),
            (
                self.is_immediate() && self.max_wait.is_some(),
                "max_wait",
                "means nothing without a window or a cooldown",
                "set one of them",
            ),
        ];
        let doubts = doubts.into_iter().filter(|(is_doubtful, ..)| *is_doubtful);
        doubts.map(|(_, option, why, advice)| (option, why, advice)).collect()
    }
}

/// Adds a duration to a time. The result stops at the end of the calendar.
fn after(at: DateTime<Utc>, time: TimeDelta) -> DateTime<Utc> {
    at.checked_add_signed(time).unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// Which events a batch keeps for display. The total counts the others too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The first events, 1 to [`Keep::MAX`]; later ones are only counted.
    First(usize),
    /// The last events, 1 to [`Keep::MAX`]; each new one replaces the oldest.
    Last(usize),
}

impl Keep {
    /// The most events that a batch can keep.
    pub const MAX: usize = 100;
}

impl FromStr for Keep {
    type Err = InvalidValue;

    /// Parses `first 10` or `last 10`, with a number from 1 to 100.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let refuse =
            || InvalidValue::new("keep", text, "is not first or last and a number, 1 to 100");
        let (end, number) = text.split_once(' ').ok_or_else(refuse)?;
        let count: usize = number.parse().map_err(|_| refuse())?;
        if !(1..=Self::MAX).contains(&count) {
            return Err(refuse());
        }
        match end {
            "first" => Ok(Self::First(count)),
            "last" => Ok(Self::Last(count)),
            _ => Err(refuse()),
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First(number) => write!(f, "first {number}"),
            Self::Last(number) => write!(f, "last {number}"),
        }
    }
}
