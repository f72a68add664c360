//! The pause: nothing leaves any process until somebody resumes.
//!
//! The rule: it begins where going on would do harm, by a provider that refuses everything or by
//! too large a share of failures, bounces or complaints; it is a note that all processes read
//! before every call; and only a person ends it. What was reported of mails before that is
//! not held against those that follow.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Gate, shared};
use crate::domain::{Pause, ReportCounts, Share};
use crate::engine::Result;
use crate::engine::feedback::silence::unreported;
use crate::store::Notes;

/// The note's name.
const NOTE: &str = shared::NOTES;
/// The note that says when somebody last resumed.
const RESUMED: &str = "resumed";
/// Bounces and complaints count that were reported of the mails of so long.
const HEARD: TimeDelta = TimeDelta::days(1);
/// So few reports say nothing of the mails to come, however small the share they make up.
const FEW: u64 = 5;

impl Pause {
    /// The pause that stands, if one does.
    pub async fn standing(notes: &dyn Notes) -> Result<Option<Self>> {
        let note = notes.note(NOTE).await?;
        Ok(note.map(Self::read))
    }

    /// What a note says. One that cannot be read was meant to stop mails all the same.
    pub(super) fn read(note: String) -> Self {
        serde_json::from_str(&note).unwrap_or_else(|_| Self {
            at: DateTime::UNIX_EPOCH,
            reason: note,
            by: "unknown".into(),
        })
    }

    /// Lets mails leave again; says which pause ended.
    pub async fn lift(notes: &dyn Notes, now: DateTime<Utc>) -> Result<Option<Self>> {
        let standing = Self::standing(notes).await?;
        // Who was quicker resumed as lately.
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
    /// Pauses all processes. The first to do so says why.
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

    /// Now and then, pauses all processes if too many of the mails of the last day bounced or were
    /// complained of.
    pub(in crate::engine::delivery) async fn heed_reports(&self) -> Result<()> {
        let now = self.context.clock.now();
        if !self.pacer.listens(now) {
            return Ok(());
        }
        let resumed = self.context.store.note(RESUMED).await?;
        let resumed = resumed.and_then(|at| at.parse::<DateTime<Utc>>().ok());
        // Noted by a clock that ran ahead: of the mails until then nothing would be held against
        // anybody.
        let resumed = resumed.filter(|at| *at <= now);
        let since = (now - HEARD).max(resumed.unwrap_or(DateTime::UNIX_EPOCH));
        let report_counts = self.context.store.report_counts(since).await?;
        match self.alarm(&report_counts) {
            Some(reason) => self.pause(&reason).await,
            None => self.notice_silence(now).await,
        }
    }

    /// Warns in the log, once an hour, while the provider reports nothing of the emails it accepts.
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

    /// Why everything should pause, if it should.
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
