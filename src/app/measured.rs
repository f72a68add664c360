//! Counts and times the calls from the engine to the store.
//!
//! Arguments and results pass through unchanged. Work is counted when a call reports success, so a
//! lost reply makes a counter too low. The log names a delivery by its tag, because its id contains
//! the user's id.

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use futures::stream::BoxStream;

use crate::clock::Clock;
use crate::domain::delivery::{SettlementCause, Transition};
use crate::domain::{Delivery, DeliveryId, Fanout, FanoutProgress, Feedback, Id};
use crate::metrics::Metrics;
use crate::store::{Acceptance, Intercept, Result, Store};

/// Wraps a store.
pub(super) struct MeasuredStore {
    pub(super) inner: Arc<dyn Store>,
    pub(super) metrics: Metrics,
    pub(super) clock: Arc<dyn Clock>,
}

impl Intercept for MeasuredStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    /// Does not time subscriptions, because they last until their subscribers drop them.
    async fn call<T: Send + 'static>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if verb == "change_notices" {
            return work.await;
        }
        let started = Instant::now();
        let result = work.await;
        self.metrics.record_store_call(verb, started.elapsed(), result.is_ok());
        result
    }

    /// Times a stream until its first chunk, because later chunks depend on the speed of the
    /// reader. Records errors of all chunks.
    fn stream<'a, T: Send + 'a>(
        &'a self,
        verb: &'static str,
        chunks: BoxStream<'a, Result<T>>,
    ) -> BoxStream<'a, Result<T>> {
        let started = Instant::now();
        let mut is_first = true;
        let measured = chunks.inspect(move |chunk| {
            if is_first || chunk.is_err() {
                self.metrics.record_store_call(verb, started.elapsed(), chunk.is_ok());
            }
            is_first = false;
        });
        measured.boxed()
    }

    fn accepted(&self, fanouts: &[Fanout], outcomes: &[Acceptance]) {
        for (fanout, outcome) in fanouts.iter().zip(outcomes) {
            match outcome {
                Acceptance::New => self.metrics.count_accepted_event(fanout.kind.as_str()),
                Acceptance::Duplicate(_) => self.metrics.count_repeated_event(),
            }
        }
    }

    fn saved(&self, progress: &[(Id, FanoutProgress)], saved: &[bool]) {
        let now = self.clock.now();
        for ((id, progress), is_saved) in progress.iter().zip(saved) {
            if !is_saved || !progress.done {
                continue;
            }
            let lag = (now - id.time()).to_std().unwrap_or_default();
            let counts = progress.counts;
            self.metrics.record_fan_out(lag, counts.people, counts.pushed, counts.capped);
            tracing::debug!(event = %id, people = counts.people, "an event was fanned out");
        }
    }

    fn opened(&self, rows: &[Delivery], opened: &[bool]) {
        for (row, _) in rows.iter().zip(opened).filter(|(_, is_opened)| **is_opened) {
            self.metrics.count_opened_delivery(occasion(&row.id));
        }
    }

    fn advanced(&self, transitions: &[Transition], applied: &[bool]) {
        for (transition, _) in transitions.iter().zip(applied).filter(|(_, is_ok)| **is_ok) {
            self.count_transition(transition);
        }
    }

    fn reported(&self, feedback: &[(DeliveryId, Feedback)], _: &()) {
        for (delivery, Feedback { news, .. }) in feedback {
            let (delivery, news) = (delivery.tag(), news.as_str());
            self.metrics.count_report(news);
            tracing::debug!(%delivery, news, "a report was recorded");
        }
    }
}

impl MeasuredStore {
    /// Counts and logs a completed transition of a delivery.
    fn count_transition(&self, transition: &Transition) {
        let occasion = occasion(transition.id());
        match transition {
            Transition::Settle(settlement) | Transition::SettleAndClose(settlement) => {
                let state = settlement.state.as_str();
                let cause = settlement.cause.map_or("", SettlementCause::as_str);
                self.metrics.count_settled_delivery(occasion, state, cause);
                let delivery = settlement.id.tag();
                tracing::debug!(%delivery, occasion, state, "a delivery ended");
            }
            Transition::Defer(deferral) => {
                self.metrics.count_deferral(occasion);
                let delivery = deferral.id.tag();
                tracing::debug!(%delivery, occasion, "a delivery was deferred");
            }
            Transition::HandOver(handover) => {
                let delivery = handover.id.tag();
                tracing::debug!(%delivery, occasion, call = handover.call, "a delivery is sent");
            }
            Transition::ReturnToPending(_) | Transition::RenewLease(_) => {}
        }
    }
}

/// Returns the label for the occasion of a delivery, which its id starts with.
fn occasion(id: &DeliveryId) -> &'static str {
    if id.as_str().starts_with("batch:") { "batch" } else { "digest" }
}
