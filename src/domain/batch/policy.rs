//! When a batch closes, and what it keeps: the one formula behind every kind of window.
//!
//! The rule: a batch closes at `min(opened_at + max_wait, max(opened_at + window, last_event_at +
//! cooldown))`, and at once when it is full. A fixed window, a cool-down with a longest wait, an
//! extension near the end and "at once" are values of it, not cases.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::name::Invalid;

/// How batches of a type gather and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPolicy {
    /// How long a batch gathers at least, from its opening on.
    pub window: TimeDelta,
    /// How long nothing must have come before it closes.
    pub cooldown: TimeDelta,
    /// How long it gathers at most, whatever keeps coming; nothing for as long as the rest says.
    pub max_wait: Option<TimeDelta>,
    /// So many events close it at once.
    pub close_at: Option<NonZeroU64>,
    /// Which events are kept to be shown; it bounds the length of the mail, not the total.
    pub keep: Keep,
    /// Whether what opens a batch is mailed at once, and only what follows is gathered.
    pub leading: bool,
    /// Until when nothing closes, as whoever the batch is for has quiet hours ([`super::Batch`]).
    pub held_until: Option<DateTime<Utc>>,
}

impl BatchPolicy {
    /// Nothing is gathered: each accepted event is a mail.
    pub const IMMEDIATE: Self = Self {
        window: TimeDelta::zero(),
        cooldown: TimeDelta::zero(),
        max_wait: None,
        close_at: None,
        keep: Keep::Last(10),
        leading: false,
        held_until: None,
    };

    /// When a batch closes that was opened and last joined at these moments, unless it is full
    /// before.
    pub fn closes_at(
        &self,
        opened_at: DateTime<Utc>,
        last_event_at: DateTime<Utc>,
    ) -> DateTime<Utc> {
        let gathered = after(opened_at, self.window).max(after(last_event_at, self.cooldown));
        match self.max_wait {
            Some(longest) => gathered.min(after(opened_at, longest)),
            None => gathered,
        }
    }

    /// Whether a batch of so many events closes at once.
    pub fn is_full(&self, count: u64) -> bool {
        self.close_at.is_some_and(|full| count >= full.get())
    }

    /// Whether nothing is gathered.
    pub fn is_immediate(&self) -> bool {
        self.window.is_zero() && self.cooldown.is_zero()
    }

    /// The policy for somebody who chose a window of their own. A longest wait shorter than it
    /// would undo their choice, so it grows with it; all else stands.
    pub fn for_window(self, window: Option<TimeDelta>) -> Self {
        let Some(window) = window else {
            return self;
        };
        Self {
            window,
            max_wait: self.max_wait.map(|longest| longest.max(window)),
            ..self
        }
    }

    /// Text that only an equal policy has, for records.
    pub fn fingerprint(&self) -> String {
        let seconds = |time: TimeDelta| time.num_milliseconds();
        let longest = self.max_wait.map_or(-1, seconds);
        let full = self.close_at.map_or(0, NonZeroU64::get);
        let (window, cooldown) = (seconds(self.window), seconds(self.cooldown));
        let leading = if self.leading { " leading" } else { "" };
        format!(
            "{window}/{cooldown}/{longest}/{full} {}{leading}",
            self.keep
        )
    }

    /// What of it can hardly be meant.
    pub fn doubts(&self) -> Vec<Doubt> {
        let shorter = |time: TimeDelta| self.max_wait.is_some_and(|longest| longest < time);
        let lone = self.close_at == NonZeroU64::new(1);
        let ended = "is longer than max_wait, which always ends the batch before";
        let doubts = [
            (
                self.max_wait.is_none() && !self.cooldown.is_zero(),
                "cooldown",
                "has no max_wait beside it: while events keep coming within it, no mail leaves",
                "set max_wait",
            ),
            (
                shorter(self.window),
                "window",
                ended,
                "make it at most max_wait",
            ),
            (
                shorter(self.cooldown),
                "cooldown",
                ended,
                "make it at most max_wait",
            ),
            (
                lone && !self.is_immediate(),
                "close_at",
                "is 1: each event is a mail, and the times mean nothing",
                "raise it, or set route = \"immediate\"",
            ),
            (
                self.leading && (self.is_immediate() || lone),
                "leading",
                "means nothing where each event is a mail",
                "set a window or a cooldown",
            ),
            (
                self.is_immediate() && self.max_wait.is_some(),
                "max_wait",
                "means nothing without a window or a cooldown",
                "set one of them",
            ),
        ];
        let doubts = doubts.into_iter().filter(|(doubtful, ..)| *doubtful);
        doubts
            .map(|(_, option, why, advice)| Doubt {
                option,
                why,
                advice,
            })
            .collect()
    }
}

/// What can hardly be meant: the option, why, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// Its name within the section or type, such as `cooldown`.
    pub option: &'static str,
    /// What is doubtful, as a clause that follows the option's name.
    pub why: &'static str,
    /// What to do about it, as a clause that stands alone.
    pub advice: &'static str,
}

/// So long after, or the end of time.
fn after(at: DateTime<Utc>, time: TimeDelta) -> DateTime<Utc> {
    at.checked_add_signed(time)
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

/// Which events a batch keeps to show; the total counts the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The first so many, 1 to [`Keep::MOST`]; what comes later is only counted.
    First(usize),
    /// The last so many, 1 to [`Keep::MOST`]; each new one displaces the oldest.
    Last(usize),
}

impl Keep {
    /// The most a batch can keep.
    pub const MOST: usize = 100;
}

impl FromStr for Keep {
    type Err = Invalid;

    /// `first 10`, `last 10`; 1 to 100.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("keep", text, "is not first or last and a number, 1 to 100");
        let (end, number) = text.split_once(' ').ok_or_else(refuse)?;
        let number = number.parse().ok();
        let number = number
            .filter(|number| (1..=Self::MOST).contains(number))
            .ok_or_else(refuse)?;
        match end {
            "first" => Ok(Self::First(number)),
            "last" => Ok(Self::Last(number)),
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
