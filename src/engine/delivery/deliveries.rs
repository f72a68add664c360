//! Lists deliveries, settles unknown ones, retries failed ones, and resumes sending.
//!
//! Only an operator settles an unknown delivery, and the row records that (P5). Start with
//! [`DeliveryService`].

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::delivery::{Corrected, Correction, Reopening, Verdict};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Pause, ReportKind, UserId};
use crate::engine::{Error, Result};
use crate::store::{DeliveryFilter, Span, Waits};
use crate::wire::delivery::Retried;

mod waiting;

pub(crate) use waiting::Wait;

/// Operations on the ledger for operators.
pub struct DeliveryService {
    pub(crate) context: Arc<Context>,
}

/// Selects deliveries.
#[derive(Debug, Clone, Default)]
pub struct Only {
    /// The state; `None` for all states.
    pub state: Option<DeliveryState>,
    /// The user; `None` for all users.
    pub user: Option<UserId>,
    /// When the deliveries were opened or reopened.
    pub span: Span,
    /// The worst report from the provider; `None` for all.
    pub feedback: Option<ReportKind>,
}

impl Only {
    fn holds(&self, row: &Delivery) -> bool {
        let reported = row.outcome.feedback.map(|feedback| feedback.news);
        self.state.is_none_or(|state| state == row.state)
            && self.span.contains(row.created)
            && self.feedback.is_none_or(|kind| reported == Some(kind))
    }
}

/// The most deliveries that are changed in one call.
const AT_ONCE: usize = 1_000;

/// Selects unknown deliveries to settle together.
#[derive(Debug, Clone, Default)]
pub struct Unknown {
    /// The provider call; `None` for all.
    pub call: Option<String>,
    /// The earliest time of sending.
    pub since: Option<DateTime<Utc>>,
    /// The end of the times of sending, exclusive.
    pub until: Option<DateTime<Utc>>,
}

impl Unknown {
    fn holds(&self, row: &Delivery) -> bool {
        let tried = row.built_at();
        let called = || row.attempts.call.as_deref() == self.call.as_deref();
        (self.call.is_none() || called())
            && self.since.is_none_or(|since| tried >= since)
            && self.until.is_none_or(|until| tried < until)
    }
}

/// The result of settling deliveries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// The number of settled deliveries.
    pub settled: u64,
    /// The number of deliveries whose user has another open delivery. Settle them after that one
    /// ends.
    pub busy: u64,
}

/// The most deliveries of a user that are read.
const A_PERSONS: usize = 10_000;
/// The most unknown deliveries that are read.
const ALL: usize = 10_000_000;

fn judge(id: &DeliveryId, verdict: Verdict) -> Correction {
    let reason = match verdict {
        Verdict::Sent => "settled by hand: it was mailed",
        Verdict::NotSent => "settled by hand: it was not mailed",
    };
    Correction::Judge {
        id: id.clone(),
        verdict,
        reason: reason.to_owned(),
    }
}

impl DeliveryService {
    /// Returns the newest deliveries, at most `limit`.
    pub async fn list(&self, only: &Only, limit: usize) -> Result<Vec<Delivery>> {
        if let Some(user) = &only.user {
            let theirs = DeliveryFilter::User(user);
            let store = &self.context.store;
            let mut rows = store.find_deliveries(&theirs, A_PERSONS).await?;
            rows.retain(|row| only.holds(row));
            rows.truncate(limit);
            return Ok(rows);
        }
        let mut rows = Vec::new();
        for state in DeliveryState::ALL {
            if only.state.is_none_or(|only| only == state) {
                let of = DeliveryFilter::StateWithin(state, only.span, only.feedback);
                rows.extend(self.context.store.find_deliveries(&of, limit).await?);
            }
        }
        rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        rows.truncate(limit);
        Ok(rows)
    }

    /// Returns the delivery with this id, if it exists.
    pub async fn get(&self, id: &DeliveryId) -> Result<Option<Delivery>> {
        let store = &self.context.store;
        let found = store.deliveries(std::slice::from_ref(id)).await?;
        Ok(found.into_iter().flatten().next())
    }

    /// Returns the selected unknown deliveries, newest first.
    pub async fn unknown(&self, which: &Unknown) -> Result<Vec<Delivery>> {
        let unknown = DeliveryFilter::State(DeliveryState::Unknown);
        let mut rows = self.context.store.find_deliveries(&unknown, ALL).await?;
        rows.retain(|row| which.holds(row));
        Ok(rows)
    }

    /// Settles unknown deliveries: all were sent, or none was. Skips a delivery that has another
    /// state by now.
    pub async fn settle_all(&self, rows: &[Delivery], verdict: Verdict) -> Result<Settled> {
        let (now, mut settled) = (self.context.clock.now(), Settled::default());
        for rows in rows.chunks(AT_ONCE) {
            let judged: Vec<Correction> = rows.iter().map(|row| judge(&row.id, verdict)).collect();
            for judged in self.context.store.correct(now, &judged).await? {
                match judged {
                    Corrected::Done => settled.settled += 1,
                    Corrected::Busy => settled.busy += 1,
                    Corrected::OtherState => {}
                }
            }
        }
        Ok(settled)
    }

    /// Settles an unknown delivery. If it was not sent, its events are emailed after all.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if it does not exist, is not unknown, is not closed yet, or the user has
    /// another open delivery.
    pub async fn settle(&self, id: &DeliveryId, verdict: Verdict) -> Result<()> {
        let now = self.context.clock.now();
        let store = &self.context.store;
        let judged = store.correct(now, &[judge(id, verdict)]).await?;
        match judged.first() {
            Some(Corrected::Done) => Ok(()),
            Some(Corrected::Busy) => Err(Error::Conflict(format!(
                "another delivery of the person of {id} is open; settle this one when that one has ended"
            ))),
            Some(Corrected::OtherState) | None => {
                Err(Error::Conflict(match self.get(id).await? {
                    None => format!("there is no delivery {id}"),
                    Some(row) if row.state == DeliveryState::Unknown => {
                        format!("{id} is being closed at this moment; ask again")
                    }
                    Some(row) => format!("{id} is {}, not unknown", row.state.as_str()),
                }))
            }
        }
    }

    /// Reopens these failed deliveries as if they were new. The next run or a worker sends them.
    pub async fn retry(&self, ids: &[DeliveryId]) -> Result<Retried> {
        let reopening = |id: &DeliveryId| Correction::Reopen(Reopening::of(id.clone()));
        let asked: Vec<Correction> = ids.iter().map(reopening).collect();
        let store = &self.context.store;
        let answers = store.correct(self.context.clock.now(), &asked).await?;
        let mut retried = Retried::default();
        for (id, answer) in ids.iter().zip(answers) {
            match answer {
                Corrected::Done => retried.again += 1,
                Corrected::Busy => retried.busy.push(id.clone()),
                Corrected::OtherState => retried.not_failed.push(id.clone()),
            }
        }
        Ok(retried)
    }

    /// Reopens all failed deliveries, of one user if given.
    pub async fn retry_all(&self, user: Option<&UserId>) -> Result<Retried> {
        let mut all = Retried::default();
        loop {
            let only = Only {
                state: Some(DeliveryState::Failed),
                user: user.cloned(),
                ..Only::default()
            };
            let rows = self.list(&only, AT_ONCE + all.busy.len()).await?;
            let ids = rows.into_iter().map(|row| row.id);
            let ids: Vec<DeliveryId> = ids.filter(|id| !all.busy.contains(id)).collect();
            let some = self.retry(&ids).await?;
            let done = some.again == 0 && some.busy.is_empty();
            all.again += some.again;
            all.busy.extend(some.busy);
            if done {
                return Ok(all);
            }
        }
    }

    /// Returns the pause, if sending is paused.
    pub async fn pause(&self) -> Result<Option<Pause>> {
        Pause::standing(self.context.store.as_ref()).await
    }

    /// Resumes sending, also of deferred emails. Returns the pause that ended.
    pub async fn resume(&self) -> Result<Option<Pause>> {
        let now = self.context.clock.now();
        let pause = Pause::lift(self.context.store.as_ref(), now).await?;
        self.context.store.release(&Waits::PutOff(now)).await?;
        Ok(pause)
    }
}
