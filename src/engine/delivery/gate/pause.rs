//! Pauses sending in all processes until an operator resumes.
//!
//! Sending pauses if the provider rejects everything, or if the share of failures, bounces or spam
//! reports is too large. The pause is a note that every process reads before every call. Reports
//! from before a resume do not count after it. Start with [`Gate::pause`].

use chrono::{DateTime, TimeDelta, Utc};

use super::{Gate, shared};
use crate::domain::{Pause, ReportCounts, Share};
use crate::engine::Result;
use crate::engine::feedback::suppressions::unreported;
use crate::store::Notes;

const NOTE: &str = shared::NOTES;
/// Name of the note with the time of the last resume.
const RESUMED: &str = "resumed";
/// The age of the emails whose bounces and spam reports count.
const HEARD: TimeDelta = TimeDelta::days(1);
/// Fewer bounces or spam reports than this never pause sending.
const FEW: u64 = 5;

impl Pause {
    /// Returns the current pause, if there is one.
    pub async fn standing(notes: &dyn Notes) -> Result<Option<Self>> {
        let note = notes.note(NOTE).await?;
        Ok(note.map(Self::read))
    }

    /// Parses a note. An unreadable note pauses sending as well.
    pub(super) fn read(note: String) -> Self {
        serde_json::from_str(&note).unwrap_or_else(|_| Self {
            at: DateTime::UNIX_EPOCH,
            reason: note,
            by: "unknown".into(),
        })
    }

    /// Ends the pause and returns it.
    pub async fn lift(notes: &dyn Notes, now: DateTime<Utc>) -> Result<Option<Self>> {
        let standing = Self::standing(notes).await?;
        // If another process changes the note first, it resumed at about the same time.
        let (read, now) = (notes.note(RESUMED).await?, now.to_rfc3339());
        notes
            .swap_note(RESUMED, read.as_deref(), Some(&now))
            .await?;
        shared::forget(notes).await?;
        shared::open(notes).await?;
        shared::drop_note(notes, NOTE).await?;
        Ok(standing)
    }
}

impl Gate {
    /// Pauses all processes. If they are paused already, the first reason stays.
    pub(in crate::engine::delivery) async fn pause(&self, reason: &str) -> Result<()> {
        let pause = Pause {
            at: self.context.clock.now(),
            reason: reason.to_owned(),
            by: self.owner.clone(),
        };
        let note = serde_json::to_string(&pause).unwrap_or_else(|_| reason.to_owned());
        self.context
            .store
            .swap_note(NOTE, None, Some(&note))
            .await?;
        Ok(())
    }

    /// Pauses all processes if too many of the last day's emails bounced or were reported as spam.
    /// Checks this at most every 30 seconds.
    pub(in crate::engine::delivery) async fn heed_reports(&self) -> Result<()> {
        let now = self.context.clock.now();
        if !self.pacer.listens(now) {
            return Ok(());
        }
        let resumed = self.context.store.note(RESUMED).await?;
        let resumed = resumed.and_then(|at| at.parse::<DateTime<Utc>>().ok());
        // A future time comes from a fast clock. No report before it would count.
        let resumed = resumed.filter(|at| *at <= now);
        let since = (now - HEARD).max(resumed.unwrap_or(DateTime::UNIX_EPOCH));
        let report_counts = self.context.store.report_counts(since).await?;
        match self.alarm(&report_counts) {
            Some(reason) => self.pause(&reason).await,
            None => self.notice_silence(now).await,
        }
    }

    /// Logs a warning, once an hour, while the provider reports nothing about the emails it
    /// accepts.
    async fn notice_silence(&self, now: DateTime<Utc>) -> Result<()> {
        let reporter = self.context.config.reporter();
        let Some(reporter) = reporter.filter(|_| self.pacer.may_warn(now)) else {
            return Ok(());
        };
        let emails = unreported(self.context.store.as_ref(), now).await?;
        if emails > 0 {
            tracing::warn!(
                emails,
                "emails left more than a day ago, and {} has reported nothing since; see `tidings doctor`",
                reporter.title
            );
        }
        Ok(())
    }

    /// Returns the reason to pause sending, if there is one.
    fn alarm(&self, report_counts: &ReportCounts) -> Option<String> {
        let settings = &self.settings;
        let passed = |part: u64, share: Share, what: &str, option: &str| {
            let all = report_counts.sent;
            let enough = all >= settings.stop_after.into() && part >= FEW;
            (enough && share.is_passed_by(part, all)).then(|| {
                format!("{part} of the last {all} mails {what}, more than {option} of {share}")
            })
        };
        passed(
            report_counts.complained,
            settings.stop_complaints,
            "were complained of",
            "delivery.stop_complaints",
        )
        .or_else(|| {
            let ReportCounts {
                bounced, refused, ..
            } = *report_counts;
            let what = match refused {
                0 => "bounced",
                _ => "bounced or were refused",
            };
            let share = settings.stop_bounces;
            passed(bounced + refused, share, what, "delivery.stop_bounces")
        })
    }
}
