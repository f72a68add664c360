//! The walk of a mail: claim, compose, send, conclude.
//!
//! The rule (P2–P5): a row is ours by a lease, `sending` with the call's reference is durable
//! before the provider hears of the mail, and the row stays open until its markers stand. The walk
//! is `finish` → [`Compose`] → `make_calls` → [`Retry`] → [`Ledger`]; what nobody
//! saw the end of goes to `resolve`.

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

/// Takes rows to their end.
#[derive(Clone)]
pub struct Sender {
    /// Builds the mails of rows.
    pub compose: Compose,
    /// Asked before every call.
    pub gate: Gate,
    /// Writes what became of rows.
    pub ledger: Ledger,
    /// Says what an outcome means for its row.
    pub retry: Retry,
    pub(crate) mailer: Arc<dyn Mailer>,
    pub(crate) context: Arc<Context>,
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Some rows were claimed and worked on.
    Worked,
    /// There is nothing to claim.
    Idle,
    /// Nothing was claimed, as no mail may leave.
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

    /// The same sender for a new run, whose tally is empty.
    #[must_use]
    pub fn anew(&self) -> Self {
        let mut anew = self.clone();
        anew.ledger.tally = RunTally::default();
        anew
    }

    /// Claims open rows that nobody works on, and finishes them.
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

    /// Steps until nothing is left to claim, or nothing may leave.
    pub async fn drain(&self) -> Result<Step> {
        loop {
            match self.step().await? {
                Step::Worked => {}
                ended => return Ok(ended),
            }
        }
    }

    /// Takes rows that this worker holds as far as they go now; ascending by user where they are
    /// dense. Without a turn, which only `pending` rows can do without, it waits for one before
    /// calls are made: what is built, canceled or put off until then is its own.
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
        // Markers first: they depend on nobody.
        self.ledger
            .close(settled.iter().map(|row| (row, row.state)))
            .await?;
        self.resolve_each(sending).boxed().await?;
        pending.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        self.send_each(pending, spread, turn).boxed().await
    }
}
