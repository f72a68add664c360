//! Lists deliveries, settles unknown ones, retries failed ones, and resumes sending.
//!
//! Only an operator settles an unknown delivery, and the row records that (P5). Start with
//! [`DeliveryService`].

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::delivery::{Corrected, Correction, OperatorDecision, Reopening};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Pause, ReportKind, UserId};
use crate::engine::{Error, Result};
use crate::store::{CountedRecords, DeliveryFilter, LeasesToEnd, TimeRange};
use crate::wire::delivery::{Retried, WaitReason, WaitingEmails};

/// Operations on the ledger for operators.
pub struct DeliveryService {
    pub(crate) context: Arc<Context>,
}

/// Selects deliveries.
#[derive(Debug, Clone, Default)]
pub struct DeliverySelection {
    /// The state; `None` for all states.
    pub state: Option<DeliveryState>,
    /// The user; `None` for all users.
    pub user: Option<UserId>,
    /// When the deliveries were opened or reopened.
    pub span: TimeRange,
    /// The worst report from the provider; `None` for all.
    pub feedback: Option<ReportKind>,
}

impl DeliverySelection {
    fn selects(&self, row: &Delivery) -> bool {
        let report = row.outcome.feedback.map(|feedback| feedback.news);
        self.state.is_none_or(|state| state == row.state)
            && self.span.contains(row.created)
            && self.feedback.is_none_or(|kind| report == Some(kind))
    }
}

/// The most deliveries that are changed in one call.
const CHANGES_PER_CALL: usize = 1_000;

/// The result of settling deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SettledCounts {
    /// The number of settled deliveries.
    pub settled: u64,
    /// The number of deliveries whose user has another open delivery. Settle them after that one
    /// ends.
    pub busy: u64,
}

/// The most deliveries of a user that are read.
const MAX_OF_USER: usize = 10_000;
/// The most unknown deliveries that are read.
const MAX_UNKNOWN: usize = 10_000_000;
/// The most waiting deliveries in each state that are read. If there are more, the reasons cover
/// the newest.
const MAX_WAITING: usize = 10_000;

impl DeliveryService {
    /// Returns the newest deliveries, at most `limit`.
    pub async fn list(&self, only: &DeliverySelection, limit: usize) -> Result<Vec<Delivery>> {
        let store = &self.context.store;
        if let Some(user) = &only.user {
            let mut rows = store.find_deliveries(&DeliveryFilter::User(user), MAX_OF_USER).await?;
            rows.retain(|row| only.selects(row));
            rows.truncate(limit);
            return Ok(rows);
        }
        let mut rows = Vec::new();
        for state in DeliveryState::ALL {
            if only.state.is_none_or(|only| only == state) {
                let filter = DeliveryFilter::State(state, only.span, only.feedback);
                rows.extend(store.find_deliveries(&filter, limit).await?);
            }
        }
        rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        rows.truncate(limit);
        Ok(rows)
    }

    /// Returns the delivery with this id, if it exists.
    pub async fn get(&self, id: &DeliveryId) -> Result<Option<Delivery>> {
        let rows = self.context.store.deliveries(std::slice::from_ref(id)).await?;
        Ok(rows.into_iter().flatten().next())
    }

    /// Returns the unknown deliveries of this call that were sent within `span`, newest first.
    /// `None` selects all calls.
    pub async fn find_unknown(
        &self,
        call: Option<&str>,
        span: &TimeRange,
    ) -> Result<Vec<Delivery>> {
        let unknown = DeliveryFilter::State(DeliveryState::Unknown, TimeRange::default(), None);
        let mut rows = self.context.store.find_deliveries(&unknown, MAX_UNKNOWN).await?;
        rows.retain(|row| {
            let is_in_call = call.is_none() || row.attempts.call.as_deref() == call;
            is_in_call && span.contains(row.built_at())
        });
        Ok(rows)
    }

    /// Settles unknown deliveries: all were sent, or none was. Skips a delivery that has another
    /// state by now.
    pub async fn settle_all(
        &self,
        rows: &[Delivery],
        decision: OperatorDecision,
    ) -> Result<SettledCounts> {
        let (now, mut counts) = (self.context.clock.now(), SettledCounts::default());
        let reason = match decision {
            OperatorDecision::Sent => "settled by hand: it was emailed",
            OperatorDecision::NotSent => "settled by hand: it was not emailed",
        };
        let judge = |row: &Delivery| {
            Correction::ResolveUnknown(row.id.clone(), decision, reason.to_owned())
        };
        for rows in rows.chunks(CHANGES_PER_CALL) {
            let corrections: Vec<Correction> = rows.iter().map(judge).collect();
            for corrected in self.context.store.correct(now, &corrections).await? {
                match corrected {
                    Corrected::Done => counts.settled += 1,
                    Corrected::Busy => counts.busy += 1,
                    Corrected::OtherState => {}
                }
            }
        }
        Ok(counts)
    }

    /// Settles an unknown delivery. If it was not sent, its events are emailed after all.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if it does not exist, is not unknown, is not closed yet, or the user has
    /// another open delivery.
    pub async fn settle(&self, id: &DeliveryId, decision: OperatorDecision) -> Result<()> {
        let row = self.get(id).await?;
        let counts = self.settle_all(row.as_slice(), decision).await?;
        if counts.settled > 0 {
            return Ok(());
        }
        // Another process may have settled it in the meantime.
        let why = match self.get(id).await? {
            Some(_) if counts.busy > 0 => format!(
                "another delivery of the person of {id} is open; settle this one when that one has ended"
            ),
            Some(row) if row.state == DeliveryState::Unknown => {
                format!("{id} is being closed at this moment; ask again")
            }
            Some(row) => format!("{id} is {}, not unknown", row.state.as_str()),
            None => format!("there is no delivery {id}"),
        };
        Err(Error::Conflict(why))
    }

    /// Reopens these failed deliveries as if they were new. The next run or a worker sends them.
    pub async fn retry(&self, ids: &[DeliveryId]) -> Result<Retried> {
        let reopening = |id: &DeliveryId| Correction::Reopen(Reopening::new(id.clone()));
        let reopenings: Vec<Correction> = ids.iter().map(reopening).collect();
        let now = self.context.clock.now();
        let corrected = self.context.store.correct(now, &reopenings).await?;
        let mut retried = Retried::default();
        for (id, corrected) in ids.iter().zip(corrected) {
            match corrected {
                Corrected::Done => retried.reopened += 1,
                Corrected::Busy => retried.busy.push(id.clone()),
                Corrected::OtherState => retried.not_failed.push(id.clone()),
            }
        }
        Ok(retried)
    }

    /// Reopens all failed deliveries, of one user if given.
    pub async fn retry_all(&self, user: Option<&UserId>) -> Result<Retried> {
        let only = DeliverySelection {
            state: Some(DeliveryState::Failed),
            user: user.cloned(),
            ..DeliverySelection::default()
        };
        let mut total = Retried::default();
        loop {
            let rows = self.list(&only, CHANGES_PER_CALL + total.busy.len()).await?;
            let ids = rows.into_iter().map(|row| row.id);
            let ids: Vec<DeliveryId> = ids.filter(|id| !total.busy.contains(id)).collect();
            let retried = self.retry(&ids).await?;
            if retried.reopened == 0 && retried.busy.is_empty() {
                return Ok(total);
            }
            total.reopened += retried.reopened;
            total.busy.extend(retried.busy);
        }
    }

    /// Returns the pause, if sending is paused.
    pub async fn current_pause(&self) -> Result<Option<Pause>> {
        Pause::current(self.context.store.as_ref()).await
    }

    /// Resumes sending, also of deferred emails. Returns the pause that ended.
    pub async fn resume(&self) -> Result<Option<Pause>> {
        let now = self.context.clock.now();
        let pause = Pause::lift(self.context.store.as_ref(), now).await?;
        self.context.store.release(&LeasesToEnd::Deferred(now)).await?;
        Ok(pause)
    }

    /// Returns the number of waiting emails and their reasons, for these users or for all.
    pub async fn count_waiting(&self, users: Option<&[UserId]>) -> Result<WaitingEmails> {
        let now = self.context.clock.now();
        let store = &self.context.store;
        let states = [DeliveryState::Pending, DeliveryState::Sending];
        let total: u64 = store.count(&states.map(CountedRecords::Deliveries)).await?.iter().sum();
        if total == 0 {
            return Ok(WaitingEmails::default());
        }
        let mut rows = Vec::new();
        for state in states {
            let filter = DeliveryFilter::State(state, TimeRange::default(), None);
            rows.extend(store.find_deliveries(&filter, MAX_WAITING).await?);
        }
        rows.retain(|row| row.open && users.is_none_or(|users| users.contains(&row.user)));
        let emails = if users.is_some() { rows.len() as u64 } else { total };
        Ok(WaitingEmails { emails, reasons: group_reasons(&rows, now) })
    }
}

impl WaitReason {
    /// Returns why this delivery, which is not settled, waits: the recorded reason, such as the
    /// provider's answer, or else the state in words.
    pub(crate) fn of_delivery(row: &Delivery, now: DateTime<Utc>) -> Self {
        let lease = row.lease.as_ref().filter(|lease| lease.until > now);
        let held_by = lease.map(|lease| lease.owner.clone());
        let why = match (&row.outcome.reason, row.state) {
            (Some(reason), _) => reason.clone(),
            (None, DeliveryState::Sending) => {
                "handed to the provider, and no answer recorded yet".into()
            }
            (None, _) if held_by.is_some() => "being built and sent".into(),
            (None, _) => "no worker has claimed it yet".into(),
        };
        let times = [lease.map(|lease| lease.until), row.attempts.not_before];
        let until = times.into_iter().flatten().filter(|until| *until > now).max();
        Self { why, emails: 1, until, leased_by: held_by }
    }
}

/// Returns the reasons why these deliveries wait, those with the most deliveries first.
fn group_reasons(rows: &[Delivery], now: DateTime<Utc>) -> Vec<WaitReason> {
    let mut by_reason: BTreeMap<(String, Option<String>), WaitReason> = BTreeMap::new();
    for row in rows {
        let reason = WaitReason::of_delivery(row, now);
        let (key, until) = ((reason.why.clone(), reason.leased_by.clone()), reason.until);
        let group = by_reason.entry(key).or_insert(WaitReason { emails: 0, ..reason });
        group.emails += 1;
        group.until = group.until.min(until);
    }
    let mut reasons: Vec<WaitReason> = by_reason.into_values().collect();
    reasons.sort_by(|a, b| (b.emails, &a.why).cmp(&(a.emails, &b.why)));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Cadence, DeliverySource, Id, Lease};

    #[test]
    fn waiting_emails_are_counted_by_reason_with_the_next_time_and_the_owner() {
        let now = DateTime::from_timestamp(1_398_072_600, 0).unwrap();
        let later = |minutes| now + chrono::TimeDelta::minutes(minutes);
        let row = |user: &str| {
            let user = UserId::stored(user);
            let occasion = DeliverySource::Digest(Cadence::Daily, "2014-04-21".into());
            let id = DeliveryId::stored("digest:x");
            Delivery::new(id, user, occasion, Id::at(now, [0; 8]), now)
        };
        let refused = |user, minutes| {
            let mut row = row(user);
            row.outcome.reason = Some("connection refused".into());
            row.attempts.not_before = Some(later(minutes));
            row
        };
        let leased =
            Delivery { lease: Some(Lease { owner: "w1".into(), until: later(5) }), ..row("d") };

        let reasons = group_reasons(&[refused("a", 3), refused("b", 2), leased, row("e")], now);

        let reasons: Vec<_> = reasons
            .iter()
            .map(|reason| {
                (reason.emails, reason.why.as_str(), reason.until, reason.leased_by.as_deref())
            })
            .collect();
        assert_eq!(
            reasons,
            [
                (2, "connection refused", Some(later(2)), None),
                (1, "being built and sent", Some(later(5)), Some("w1")),
                (1, "no worker has claimed it yet", None, None),
            ]
        );
    }
}
