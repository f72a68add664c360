//! Measures calls to the provider: their duration and the outcome of each email.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;

use crate::domain::DeliveryId;
use crate::email::{Answer, Certainty, Checked, Leave, Mailer, Message, Outcome};
use crate::metrics::Metrics;

/// Wraps a mailer.
pub(in crate::app) struct MeasuredMailer {
    pub(in crate::app) inner: Arc<dyn Mailer>,
    pub(in crate::app) metrics: Metrics,
}

fn name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted { .. } => "accepted",
        Outcome::Refused { .. } => "refused",
        Outcome::Unsendable { .. } => "unsendable",
        Outcome::RefusedTogether { .. } => "refused_together",
        Outcome::Undeliverable { .. } => "undeliverable",
        Outcome::Unreachable { .. } => "unreachable",
        Outcome::TryLater { .. } => "try_later",
        Outcome::Deferred { .. } => "deferred",
        Outcome::Withheld { .. } => "withheld",
        Outcome::Stop { .. } => "stop",
        Outcome::Unknown { .. } => "unknown",
    }
}

#[async_trait]
impl Mailer for MeasuredMailer {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        self.inner.calls(messages)
    }

    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let began = Instant::now();
        let outcomes = self.inner.send(reference, messages, leave).await;
        self.metrics
            .called(began.elapsed(), outcomes.iter().map(name));
        outcomes
    }

    fn certainty(&self) -> Certainty {
        self.inner.certainty()
    }

    async fn ask(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<Answer> {
        self.inner.ask(reference, deliveries).await
    }

    async fn check(&self) -> Checked {
        self.inner.check().await
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn outbox(&self) -> Option<&Path> {
        self.inner.outbox()
    }

    fn account(&self) -> String {
        self.inner.account()
    }
}
