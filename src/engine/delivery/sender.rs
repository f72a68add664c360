//! Takes each delivery through its steps: claim, build, send, record the outcome.
//!
//! A row is leased, and durably `sending` with the call's reference, before the provider receives
//! the email. It stays open until its markers are written (P2 to P5). The steps are `finish` →
//! [`Compose`] → `make_calls` → [`Retry`] → [`Ledger`]; `resolve` handles calls without an answer.

use std::sync::Arc;

use futures::FutureExt;

use super::compose::{Compose, Spread};
use super::gate::{Gate, GateState, Turn};
use super::ledger::Ledger;
use super::retry::Retry;
use super::tally::RunTally;
use crate::context::Context;
use crate::domain::{Delivery, DeliveryState};
use crate::email::Mailer;
use crate::engine::Result;
use crate::store::Claim;

mod brands;
mod calls;
mod resolve;
mod wait;

/// Sends the emails of deliveries and closes the rows.
#[derive(Clone)]
pub struct Sender {
    /// Builds the emails.
    pub compose: Compose,
    /// Permits each call.
    pub gate: Gate,
    /// Writes the outcomes.
    pub ledger: Ledger,
    /// Decides what an outcome means for its row.
    pub retry: Retry,
    pub(crate) mailer: Arc<dyn Mailer>,
    pub(crate) context: Arc<Context>,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Some rows were claimed and processed.
    Worked,
    /// No row can be claimed.
    Idle,
    /// No row was claimed, because no email may be sent.
    Held(GateState),
}

impl Sender {
    /// Sends what `compose` builds, with the default's identity unless a brand has its own. All
    /// senders of a process share the limits of their accounts.
    pub fn new(compose: Compose) -> Self {
        let context = compose.context.clone();
        let (settings, identity) = (context.config.delivery, &compose.identities.default);
        Self {
            gate: Gate {
                context: context.clone(),
                owner: context.owner.clone(),
                settings,
                account_prefix: identity.account_prefix.clone(),
                account: identity.account.clone(),
                pacer: identity.pacer.clone(),
            },
            ledger: Ledger::new(context.clone()),
            retry: Retry {
                settings,
                certainty: identity.mailer.certainty(),
            },
            mailer: identity.mailer.clone(),
            context,
            compose,
        }
    }

    /// Returns this sender with an empty tally, for a new run.
    #[must_use]
    pub fn anew(&self) -> Self {
        let mut anew = self.clone();
        anew.ledger.tally = RunTally::default();
        anew
    }

    /// Claims open rows without a lease and processes them.
    pub async fn step(&self) -> Result<Step> {
        let turn = self.gate.turn().await;
        match self.ready().await? {
            GateState::Open => {}
            held => return Ok(Step::Held(held)),
        }
        let now = self.context.clock.now();
        let limit = self.gate.chunk();
        let rows = self.ledger.claim(&Claim::Free { now, limit }, now).await?;
        if rows.is_empty() {
            return Ok(Step::Idle);
        }
        self.finish(rows, Spread::Sparse, Some(turn))
            .boxed()
            .await?;
        Ok(Step::Worked)
    }

    /// Steps until no row can be claimed or no email may be sent. Returns the last result.
    pub async fn drain(&self) -> Result<Step> {
        loop {
            match self.step().await? {
                Step::Worked => {}
                ended => return Ok(ended),
            }
        }
    }

    /// Processes rows that this worker has leased, as far as is possible now. `spread` is how close
    /// together their users are.
    ///
    /// `turn` may be `None` only if all rows are `pending` or settled. Then the sender waits for a
    /// turn before it makes calls, and builds and cancels emails without one.
    pub async fn finish(
        &self,
        rows: Vec<Delivery>,
        spread: Spread,
        turn: Option<Turn>,
    ) -> Result<()> {
        self.ledger.tally.take_up(&rows);
        let (settled, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.state.settled());
        let (sending, mut pending): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| row.state == DeliveryState::Sending);
        // Markers first: they need no provider.
        self.ledger
            .close(settled.iter().map(|row| (row, row.state)))
            .await?;
        self.resolve_each(sending).boxed().await?;
        pending.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        self.send_each(pending, spread, turn).boxed().await
    }
}
