//! What a worker does a tick: it mails the digests that have fallen due since the last one.
//!
//! The rule: a tick looks only at people whose hour has come, by what they chose, from where
//! earlier ticks were complete. How far that is is noted, so a tick that was missed or cut short is
//! made up by whichever process comes next. An hour is not all that makes a digest due: an address
//! is confirmed, an earlier hour is chosen, an object is published. So everybody is looked at as
//! well: every `digest.full_look`, where there is no note, where the note lies in the future or was
//! made under other defaults, and where very many fell due.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Digests, Request, Run};
use crate::domain::digest_row::tried_again;
use crate::domain::due_choices::{Common, DueChoices, Ticks};
use crate::domain::lease::TICK;
use crate::domain::{DeliveryState, Occasion, UserId};
use crate::engine::{Result, Watcher};
use crate::store::{DeliveryFilter, PeopleFilter};
use crate::wire::digest::{Ended, Report};

/// People, and failed mails, that are asked for at once.
const PAGE: usize = 10_000;
/// Where more people fall due, everybody is looked at: the ids of these are kept in memory.
const MOST: usize = 200_000;
/// Whoever fell due so shortly before a tick is looked at by the next one too: an event may say
/// that it happened before the hour, and be accepted after it.
const SLACK: TimeDelta = TICK;
/// What failed earlier than that is of a period that has passed.
const LONGEST_PERIOD: TimeDelta = TimeDelta::days(8);

impl Digests {
    /// Mails what has fallen due since the last tick that was complete.
    pub async fn tick(&self, progress: &dyn Watcher) -> Result<Report> {
        let now = self.context.clock.now();
        let common = Common {
            schedule: self.schedule,
            mandatory: self.context.policies.always_mailed().next().is_some(),
        };
        let read = self.context.store.note(Ticks::NOTE).await?;
        let ticks = read
            .as_deref()
            .and_then(|text| Ticks::read(text, &common, self.full_look, now));
        // Whoever is not found is passed over until everybody is looked at.
        self.context.store.catch_up().await?;
        // Asked before any stack is read: what happened before stands there by then.
        let pending = self.context.store.oldest_pending().await?;
        let known = pending.map_or(now, |pending| pending.min(now));
        let users = match &ticks {
            Some(ticks) => self.fallen_due(&common, ticks.due, now).await?,
            None => None,
        };
        let looks_at_all = users.is_none();
        let request = Request {
            at: Some(now),
            users,
            ..Request::default()
        };
        let walked = Run::new(self, &request, progress).walk(None).await?;
        let report = walked.report;
        if is_complete(&report) && !progress.stopping() {
            let (all, due) = match &ticks {
                // They are too many to be looked at again.
                Some(_) if looks_at_all => (now, known),
                // They are looked at when it has ended.
                Some(ticks) if walked.passed_over => (ticks.all, ticks.due.min(known - SLACK)),
                Some(ticks) => (ticks.all, known - SLACK),
                // As far back as is noted at all.
                None if walked.passed_over => (now, DateTime::<Utc>::MIN_UTC),
                None => (now, known - SLACK),
            };
            let ticks = Ticks {
                // What takes longer than that is met by looking at everybody.
                due: due.max(all - self.full_look),
                all,
                common: common.told(),
            };
            let text = serde_json::to_string(&ticks).unwrap_or_default();
            // Who was quicker has come as far.
            let noted = self
                .context
                .store
                .swap_note(Ticks::NOTE, read.as_deref(), Some(&text));
            noted.await?;
        }
        Ok(report)
    }

    /// Who falls due between these moments, ascending, or is tried again; nothing where it may be
    /// so many that everybody is looked at instead.
    pub async fn fallen_due(
        &self,
        common: &Common,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Option<Vec<UserId>>> {
        let Some(mut found) = self.tried_again(after, until).await? else {
            return Ok(None);
        };
        let zones = self.context.store.zones().await?;
        let zones = zones.into_iter().map(Some).chain([None]);
        for choices in zones.flat_map(|tz| DueChoices::between(tz, common, after, until)) {
            let (chose, mut last) = (PeopleFilter::Chose(&choices), None);
            loop {
                let people = &self.context.store;
                let page = people.find_people(&chose, last.as_ref(), PAGE).await?;
                let is_last = page.len() < PAGE;
                last = page.last().cloned();
                found.extend(page);
                if found.len() > MOST {
                    return Ok(None);
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(Some(found))
    }

    /// Whose digest failed, and is tried again between these moments; nothing where so many failed
    /// that not all are known.
    async fn tried_again(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Option<Vec<UserId>>> {
        let failed = DeliveryFilter::StateSince(DeliveryState::Failed, until - LONGEST_PERIOD);
        let failed = self.context.store.find_deliveries(&failed, PAGE).await?;
        if failed.len() == PAGE {
            return Ok(None);
        }
        let is_due = |at: DateTime<Utc>| after < at && at <= until;
        let again = failed.into_iter().filter(|row| {
            matches!(row.occasion, Occasion::Digest { .. }) && tried_again(row).is_some_and(is_due)
        });
        Ok(Some(again.map(|row| row.user).collect()))
    }
}

/// Whether nobody was left out who was to be mailed.
fn is_complete(report: &Report) -> bool {
    let ended = report.ended.as_ref();
    let in_full = ended.is_none_or(|ended| matches!(ended, Ended::Settled));
    report.held == 0 && !report.limited && in_full
}
