//! Reports the state of an installation: pending work, sent emails and stored days.
//!
//! It only reads. On a large store, only counting the documents of each day takes long.

use std::sync::Arc;

use chrono::TimeDelta;

use crate::context::Context;
use crate::domain::{
    BatchState, Day, DaySet, Delivery, DeliverySource, DeliveryState, FanoutState, Id,
    SuppressionReason,
};
use crate::engine::Result;
use crate::engine::delivery::operator_actions::DeliveryService;
use crate::engine::digest::backlog::BacklogService;
use crate::engine::feedback::suppressions::count_unreported;
use crate::engine::ingest::unknown_names::NameLookup;
use crate::engine::users::find_unreadable;
use crate::engine::worker::Activity;
use crate::store::{CountedRecords, DeliveryFilter, TimeRange};
use crate::wire::status::{DayView, Status};

/// The age of the emails whose provider reports and failures are counted.
const REPORT_AGE: TimeDelta = TimeDelta::days(7);
/// The number of newest events that are checked for unknown types and objects.
const EVENTS_CHECKED: usize = 1_000;
/// The most users that are read for unreadable fields.
const MAX_USERS: usize = 10_000;
/// The most failed emails that are read to count their events, newest first.
const MAX_FAILED: usize = 10_000;
/// The most failed emails, and the most unknown ones, that are shown.
const MAX_SHOWN: usize = 10;

/// Succeeds if the store answers: looks up an event by a key that does not exist.
pub async fn ready(context: &Context) -> Result<()> {
    context.store.fanout(Id::from_bytes([0; 12])).await?;
    Ok(())
}

/// Reports the state of an installation.
pub struct StatusService {
    pub(crate) context: Arc<Context>,
    pub(crate) deliveries: DeliveryService,
    pub(crate) backlog: BacklogService,
    pub(crate) name_lookup: NameLookup,
    pub(crate) activity: Activity,
}

impl StatusService {
    /// Returns the number of accepted events that are not fanned out yet.
    pub async fn not_fanned_out(&self) -> Result<u64> {
        let pending = [CountedRecords::Fanouts(FanoutState::Pending)];
        Ok(self.context.store.count(&pending).await?.iter().sum())
    }

    /// Returns the current state.
    pub async fn current_status(&self) -> Result<Status> {
        let (store, now) = (&self.context.store, self.context.clock.now());
        let window = DaySet::ending(Day::of(now), self.context.config.window_days_back);
        let is_unknown = DeliveryFilter::State(DeliveryState::Unknown, TimeRange::default(), None);
        let unknown = store.find_deliveries(&is_unknown, MAX_SHOWN).await?;
        let recent = TimeRange::since(now - REPORT_AGE);
        let is_failed = DeliveryFilter::State(DeliveryState::Failed, recent, None);
        let mut failed = store.find_deliveries(&is_failed, MAX_FAILED).await?;
        let is_batch = |row: &&Delivery| matches!(row.source, DeliverySource::Batch(..));
        let failed_batches = failed.iter().filter(is_batch);
        let not_emailed = failed_batches.map(|row| u64::from(row.outcome.items)).sum();
        failed.truncate(MAX_SHOWN);
        let days = store.days().await?;
        let fanout_states = [FanoutState::Pending, FanoutState::Done];
        let batch_states = [BatchState::Open, BatchState::Closing];
        // `count` below returns the counts in this order.
        let mut counted = fanout_states.map(CountedRecords::Fanouts).to_vec();
        counted.extend(batch_states.map(CountedRecords::Batches));
        counted.extend(DeliveryState::ALL.map(CountedRecords::Deliveries));
        counted.extend(SuppressionReason::ALL.map(CountedRecords::Suppressions));
        counted.extend(days.iter().copied().map(CountedRecords::Stacks));
        let mut counts = store.count(&counted).await?.into_iter();
        let mut count = || counts.next().unwrap_or_default();
        Ok(Status {
            store: format!("{:?}", self.context.config.store),
            schema: store.condition().await?.schema?,
            fanouts: fanout_states.map(|state| (state, count())).into(),
            oldest_pending_day: store.pending(usize::MAX).await?.days.first().copied(),
            batches: batch_states.map(|state| (state, count())).into(),
            deliveries: DeliveryState::ALL.map(|state| (state, count())).into(),
            not_emailed,
            failed: failed.into_iter().map(Into::into).collect(),
            worker: self.activity.worker().await?,
            digest: self.activity.digests().await?,
            unknown: unknown.into_iter().map(Into::into).collect(),
            paused: self.deliveries.current_pause().await?,
            waiting: self.deliveries.count_waiting(None).await?,
            reports: store.report_counts(now - REPORT_AGE).await?,
            unreported: match self.context.config.reporting_provider() {
                Some(_) => count_unreported(store.as_ref(), now).await?,
                None => 0,
            },
            suppressed: SuppressionReason::ALL.map(|reason| (reason, count())).into(),
            unknown_names: self.name_lookup.find_unknown_in_recent(EVENTS_CHECKED).await?,
            backlog: self.backlog.summary().await?,
            unreadable: find_unreadable(store.as_ref(), MAX_USERS).await?,
            days: days
                .into_iter()
                .map(|day| DayView { day, stacks: count(), in_window: window.contains(day) })
                .collect(),
        })
    }
}
