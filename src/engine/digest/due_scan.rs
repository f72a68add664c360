//! Finds out when digests are due: the periodic step of a worker, and the next digest of a user.
//!
//! A tick reads only users whose hour has come since the last complete tick. That time is stored in
//! a note, so a later tick, of any process, makes up for one that was missed. Other causes make
//! digests due as well, such as a confirmed address. So a full scan runs every `digest.full_scan`,
//! without a usable note ([`DigestScanProgress::parse`]), and if too many users are due.

use chrono::{DateTime, TimeDelta, Utc};

use super::{DigestRequest, DigestService, Run};
use crate::context::Context;
use crate::domain::digest_content::next_retry_at;
use crate::domain::schedule::{DigestDefaults, DigestScanProgress, DueUserFilter, SCAN_INTERVAL};
use crate::domain::{DeliveryId, DeliverySource, DeliveryState, DuePeriod, Schedule, User, UserId};
use crate::engine::{Progress, Result};
use crate::store::{Deliveries, DeliveryFilter, TimeRange, UserField, UserFilter};
use crate::wire::run_report::DigestReport;

/// The number of users or failed deliveries in one read.
const PAGE: usize = 10_000;
/// If more users are due, a full scan runs instead. Their ids are kept in memory.
const MAX_DUE_USERS: usize = 200_000;
/// Users who became due this shortly before a tick are read by the next one too. An event can have
/// a time before the hour and be accepted after it.
const SLACK: TimeDelta = SCAN_INTERVAL;
/// The longest period, with a margin. A digest that was opened before it belongs to a past period.
const LONGEST_PERIOD: TimeDelta = TimeDelta::days(8);

impl DigestService {
    /// Sends the digests that became due since the last complete tick. `report` also has the counts
    /// so far if the tick fails or is dropped.
    pub async fn tick(&self, report: &mut DigestReport, progress: &dyn Progress) -> Result<()> {
        let now = self.context.clock.now();
        let full_scan = self.context.config.digest.full_scan;
        let defaults = DigestDefaults {
            schedule: self.context.config.digest.schedule,
            sends_mandatory: self.context.policies.emailed_mandatory_kinds().next().is_some(),
        };
        let store = &self.context.store;
        let note = store.note(DigestScanProgress::NOTE).await?;
        let last_scan = note
            .as_deref()
            .and_then(|text| DigestScanProgress::parse(text, &defaults, full_scan, now));
        // A user who is not found is skipped until the next full scan, so reads must be current.
        store.catch_up().await?;
        // Read before any stack. The stacks then contain all events from before the oldest pending
        // one.
        let oldest_pending = store.pending(1).await?.oldest;
        let complete_until = oldest_pending.map_or(now, |oldest| oldest.min(now));
        let users = match &last_scan {
            Some(last_scan) => self.users_due_between(&defaults, last_scan.due, now).await?,
            None => None,
        };
        let is_full_scan = users.is_none();
        let request = DigestRequest { at: Some(now), users, ..DigestRequest::default() };
        let skipped_open = Run::new(self, &request, report, None, progress).execute().await?;
        if is_complete(report) && !progress.should_stop() {
            let (last_full_scan, due) = match &last_scan {
                // This tick was a full scan, because too many users are due. The next one must not
                // read them again, so it starts without [`SLACK`].
                Some(_) if is_full_scan => (now, complete_until),
                // Users with an open email are read again when it has ended.
                Some(last_scan) if skipped_open => {
                    (last_scan.last_full_scan, last_scan.due.min(complete_until - SLACK))
                }
                Some(last_scan) => (last_scan.last_full_scan, complete_until - SLACK),
                // The scan skipped users; read as far back as the limit below permits.
                None if skipped_open => (now, DateTime::<Utc>::MIN_UTC),
                None => (now, complete_until - SLACK),
            };
            let scan = DigestScanProgress {
                // The next full scan finds users who are due from before that.
                due: due.max(last_full_scan - full_scan),
                last_full_scan,
                defaults_summary: defaults.summary(),
            };
            let text = serde_json::to_string(&scan).unwrap_or_default();
            // If the note has changed, another process has completed a tick at the same time.
            store.swap_note(DigestScanProgress::NOTE, note.as_deref(), Some(&text)).await?;
        }
        Ok(())
    }

    /// Returns the users who become due in this interval, or whose failed digest is retried. They
    /// are in no particular order. Returns `None` if there are too many.
    pub async fn users_due_between(
        &self,
        defaults: &DigestDefaults,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Option<Vec<UserId>>> {
        let Some(mut due_users) = self.users_to_retry(after, until).await? else {
            return Ok(None);
        };
        let store = &self.context.store;
        let names = store.values(UserField::Zone).await?;
        let zones = names.iter().filter_map(|name| name.parse().ok()).map(Some).chain([None]);
        for choices in zones.flat_map(|tz| DueUserFilter::due_between(tz, defaults, after, until)) {
            let (filter, mut last) = (UserFilter::Choices(&choices), None);
            loop {
                let page = store.find_users(&filter, last.as_ref(), PAGE).await?;
                let is_last = page.len() < PAGE;
                last = page.last().cloned();
                due_users.extend(page);
                if due_users.len() > MAX_DUE_USERS {
                    return Ok(None);
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(Some(due_users))
    }

    /// Returns the users whose failed digest is retried in this interval. Returns `None` if more
    /// deliveries failed than one read returns.
    async fn users_to_retry(
        &self,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Option<Vec<UserId>>> {
        let span = TimeRange::since(until - LONGEST_PERIOD);
        let filter = DeliveryFilter::State(DeliveryState::Failed, span, None);
        let mut rows = self.context.store.find_deliveries(&filter, PAGE).await?;
        if rows.len() == PAGE {
            return Ok(None);
        }
        let is_due = |at: DateTime<Utc>| after < at && at <= until;
        rows.retain(|row| {
            matches!(row.source, DeliverySource::Digest(..))
                && next_retry_at(row).is_some_and(is_due)
        });
        Ok(Some(rows.into_iter().map(|row| row.user).collect()))
    }
}

/// Returns whether the run sent all due digests that it could.
fn is_complete(report: &DigestReport) -> bool {
    report.due.not_started == 0 && !report.is_limited && report.ended.is_none()
}

/// Returns when an event that happens now would be in a digest; `None` if the user gets none. Skips
/// a period that already had a digest, and includes the retry of a failed one, as a run does.
pub async fn next_digest(context: &Context, user: &User) -> Result<Option<DateTime<Utc>>> {
    let schedule = user.schedule(&context.config.digest.schedule);
    let (store, now) = (&*context.store, context.clock.now());
    next_digest_for(store, &user.id, &schedule, None, now).await
}

/// Returns when a user's next digest is due. `oldest` is the time of the oldest event for it, if
/// there is one. A time in the past means that the next run sends it. Returns `None` if the user
/// gets no digest.
pub async fn next_digest_for(
    deliveries: &dyn Deliveries,
    user: &UserId,
    schedule: &Schedule,
    oldest: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>> {
    let has_event = |due: &DuePeriod| oldest.is_some_and(|oldest| oldest < due.at);
    let last = schedule.last_due(now).filter(has_event);
    let dues: Vec<DuePeriod> = last.into_iter().chain(schedule.dues_after(now)).collect();
    let id = |due: &DuePeriod| DeliveryId::digest(user, schedule.cadence, &due.period);
    let ids: Vec<DeliveryId> = dues.iter().map(id).collect();
    for (due, row) in dues.iter().zip(deliveries.deliveries(&ids).await?) {
        let Some(row) = row else {
            return Ok(Some(due.at));
        };
        if let Some(retry) = next_retry_at(&row).filter(|_| due.at <= now) {
            let next = schedule.next_due(now).map_or(retry, |next| next.at.min(retry));
            return Ok(Some(next));
        }
    }
    Ok(None)
}
