//! Finds out when digests are due: the periodic step of a worker, and the next digest of a user.
//!
//! A tick reads only users whose hour has come since the last complete tick. That time is stored in
//! a note, so a later tick, of any process, makes up for one that was missed. Other causes make
//! digests due as well, such as a confirmed address. So a full scan runs every `digest.full_scan`,
//! without a usable note ([`Ticks::read`]), and if too many users are due.

use chrono::{DateTime, TimeDelta, Utc};

use super::{DigestRequest, Digests, Run};
use crate::context::Context;
use crate::domain::digest_content::retry_at;
use crate::domain::schedule::{Common, DueChoices, TICK, Ticks};
use crate::domain::{DeliveryId, DeliveryState, Due, Occasion, Schedule, User, UserId};
use crate::engine::{Result, Watcher};
use crate::store::{Deliveries, DeliveryFilter, PeopleFilter, Span, UserField};
use crate::wire::run_report::{DigestReport, Ended};

/// The number of users or failed deliveries in one read.
const PAGE: usize = 10_000;
/// If more users are due, a full scan runs instead. Their ids are kept in memory.
const MOST: usize = 200_000;
/// Users who became due this shortly before a tick are read by the next one too. An event can have
/// a time before the hour and be accepted after it.
const SLACK: TimeDelta = TICK;
/// The longest period, with a margin. A digest that failed before it belongs to a past period.
const LONGEST_PERIOD: TimeDelta = TimeDelta::days(8);

impl Digests {
    /// Sends the digests that became due since the last complete tick.
    pub async fn tick(&self, progress: &dyn Watcher) -> Result<DigestReport> {
        let now = self.context.clock.now();
        let full_scan = self.context.config.digest.full_scan;
        let common = Common {
            schedule: self.context.config.digest.schedule,
            mandatory: self.context.policies.always_emailed().next().is_some(),
        };
        let read = self.context.store.note(Ticks::NOTE).await?;
        let ticks = read.as_deref().and_then(|text| Ticks::read(text, &common, full_scan, now));
        // A user who is not found is skipped until the next full scan, so reads must be current.
        self.context.store.catch_up().await?;
        // Read before any stack. The stacks then contain all events from before the oldest pending
        // one.
        let pending = self.context.store.pending(1).await?.oldest;
        let known = pending.map_or(now, |pending| pending.min(now));
        let users = match &ticks {
            Some(ticks) => self.fallen_due(&common, ticks.due, now).await?,
            None => None,
        };
        let scans_all = users.is_none();
        let request = DigestRequest { at: Some(now), users, ..DigestRequest::default() };
        let mut report = DigestReport::default();
        let run = Run::new(self, &request, &mut report, None, progress);
        let passed_over = run.scan().await?;
        if is_complete(&report) && !progress.stopping() {
            let (all, due) = match &ticks {
                // Too many users are due to read those within [`SLACK`] again.
                Some(_) if scans_all => (now, known),
                // Users with an open email are read again when it has ended.
                Some(ticks) if passed_over => (ticks.all, ticks.due.min(known - SLACK)),
                Some(ticks) => (ticks.all, known - SLACK),
                // The scan skipped users; read as far back as the limit below permits.
                None if passed_over => (now, DateTime::<Utc>::MIN_UTC),
                None => (now, known - SLACK),
            };
            let ticks = Ticks {
                // A full scan covers longer delays.
                due: due.max(all - full_scan),
                all,
                common: common.summary(),
            };
            let text = serde_json::to_string(&ticks).unwrap_or_default();
            let store = &self.context.store;
            // If the note has changed, another process has completed a tick at the same time.
            let noted = store.swap_note(Ticks::NOTE, read.as_deref(), Some(&text));
            noted.await?;
        }
        Ok(report)
    }

    /// Returns the users who become due in this interval, or whose failed digest is retried. They
    /// are in no particular order. Returns `None` if there are too many.
    pub async fn fallen_due(
        &self,
        common: &Common,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Option<Vec<UserId>>> {
        let Some(mut found) = self.tried_again(after, until).await? else {
            return Ok(None);
        };
        let zones = self.context.store.values(UserField::Zone).await?;
        let zones = zones.iter().filter_map(|name| name.parse().ok());
        let zones = zones.map(Some).chain([None]);
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

    /// Returns the users whose failed digest is retried in this interval. Returns `None` if too
    /// many digests failed to read them all.
    async fn tried_again(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Option<Vec<UserId>>> {
        let span = Span::since(until - LONGEST_PERIOD);
        let failed = DeliveryFilter::State(DeliveryState::Failed, span, None);
        let failed = self.context.store.find_deliveries(&failed, PAGE).await?;
        if failed.len() == PAGE {
            return Ok(None);
        }
        let is_due = |at: DateTime<Utc>| after < at && at <= until;
        let again = failed.into_iter().filter(|row| {
            matches!(row.occasion, Occasion::Digest(..)) && retry_at(row).is_some_and(is_due)
        });
        Ok(Some(again.map(|row| row.user).collect()))
    }
}

/// Returns whether the run sent all due digests that it could.
fn is_complete(report: &DigestReport) -> bool {
    let ended = report.ended.as_ref();
    let in_full = ended.is_none_or(|ended| matches!(ended, Ended::Settled));
    report.due.held == 0 && !report.limited && in_full
}

/// Returns when an event that happens now would be in a digest; `None` if the user gets none. Skips
/// a period that already had a digest, and includes the retry of a failed one, as a run does.
pub async fn next_digest(context: &Context, user: &User) -> Result<Option<DateTime<Utc>>> {
    let schedule = user.schedule(&context.config.digest.schedule);
    let (store, now) = (&*context.store, context.clock.now());
    next(store, &user.id, &schedule, None, now).await
}

/// Returns when the next digest is due for a user whose oldest event for it happened at `oldest`. A
/// time in the past means that the next run sends it. Returns `None` if the user gets no digest.
pub async fn next(
    deliveries: &dyn Deliveries,
    user: &UserId,
    schedule: &Schedule,
    oldest: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>> {
    let last = schedule.last_due(now);
    let last = last.filter(|due| oldest.is_some_and(|oldest| oldest < due.at));
    let dues: Vec<Due> = last.into_iter().chain(schedule.dues_after(now)).collect();
    let id = |due: &Due| DeliveryId::digest(user, schedule.cadence, &due.period);
    let ids: Vec<DeliveryId> = dues.iter().map(id).collect();
    for (due, row) in dues.iter().zip(deliveries.deliveries(&ids).await?) {
        let Some(row) = row else {
            return Ok(Some(due.at));
        };
        if let Some(again) = retry_at(&row).filter(|_| due.at <= now) {
            let next = schedule.next_due(now).map(|due| due.at);
            return Ok([Some(again), next].into_iter().flatten().min());
        }
    }
    Ok(None)
}
