//! Takes ledger rows to their end: built, checked again, sent, settled, flushed, closed.
//!
//! The rule (P2–P7): the row came first and is ours by a lease. What it mails is read again here,
//! between the markers that stand now and the reach the row notes, so nothing is told twice and
//! nothing that arrived since is lost. `sending`, with the call's reference, is durable before the
//! provider hears of the mail; the row stays open until its markers stand. Whoever dies here, the
//! next run finishes. The walk is `finish` → `build` → `hand_over` → `outcome` → `conclude`; what
//! nobody saw the end of goes to `resolve`.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::FutureExt;

use super::links::Links;
use super::{Result, crash};
use crate::clock::Clock;
use crate::domain::delivery::Settlement;
use crate::domain::digest::Caps;
use crate::domain::{Delivery, DeliveryId, DeliveryState, Policies, Schedule, Sending};
use crate::mail::Mailer;
use crate::render::Renderer;
use crate::store::{
    Batches, Deliveries, Directory, Feedbacks, Leases, Notes, Objects, Stacks, Suppressions,
};

mod build;
mod close;
mod gathered;
mod hand_over;
mod hold;
mod outcome;
mod pace;
mod pause;
mod preview;
mod resolve;
mod shared;
mod suppress;
mod tally;
mod wait;

pub use outcome::Undeliverable;
pub use pace::Traffic;
pub use pause::Pause;
pub use preview::{Looked, Preview, Shown, Story};
pub use tally::{Account, Tally};
pub use wait::Ended;

use outcome::Verdicts;
use tally::Concluded;

#[derive(Clone)]
pub struct Deliver {
    pub deliveries: Arc<dyn Deliveries>,
    pub stacks: Arc<dyn Stacks>,
    pub batches: Arc<dyn Batches>,
    pub directory: Arc<dyn Directory>,
    pub objects: Arc<dyn Objects>,
    pub leases: Arc<dyn Leases>,
    pub notes: Arc<dyn Notes>,
    pub suppressions: Arc<dyn Suppressions>,
    pub feedbacks: Arc<dyn Feedbacks>,
    pub policies: Arc<Policies>,
    pub mailer: Arc<dyn Mailer>,
    pub renderer: Arc<Renderer>,
    pub links: Arc<Links>,
    /// The sender's part of `Feedback-ID`; without it mails have none.
    pub feedback_id: Option<String>,
    pub clock: Arc<dyn Clock>,
    pub owner: String,
    pub settings: Sending,
    pub caps: Caps,
    pub schedule: Schedule,
    /// What this process knows of the provider's mood; shared by all that deliver in it.
    pub traffic: Arc<Traffic>,
}

/// How close together the people of some rows stand in the stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Most people between the first and the last are wanted.
    Dense,
    Sparse,
}

/// Whether mails may leave now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Road {
    Free,
    /// Not before then: the provider or our own limit asks for patience.
    Closed(DateTime<Utc>),
    /// Not until somebody resumes.
    Paused(Pause),
    /// Not by this process, which is to end.
    Ending,
}

/// What a step came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Some rows were claimed and worked on.
    Worked,
    /// There is nothing to claim.
    Idle,
    /// Nothing was claimed, as no mail may leave.
    Held(Road),
}

impl Deliver {
    /// Claims open rows that nobody works on, and finishes them.
    pub async fn step(&self, account: &mut Account) -> Result<Step> {
        let _turn = self.turn().await;
        match self.road().await? {
            Road::Free => {}
            held => return Ok(Step::Held(held)),
        }
        let now = self.clock.now();
        let until = now + self.settings.lease;
        let rows = self
            .deliveries
            .claim(&self.owner, now, until, self.chunk())
            .await?;
        if rows.is_empty() {
            return Ok(Step::Idle);
        }
        self.finish(rows, Spread::Sparse, account).boxed().await?;
        Ok(Step::Worked)
    }

    /// Steps until nothing is left to claim, or nothing may leave.
    pub async fn drain(&self, account: &mut Account) -> Result<Step> {
        loop {
            match self.step(account).await? {
                Step::Worked => {}
                ended => return Ok(ended),
            }
        }
    }

    /// Takes rows that this worker holds as far as they go now; ascending by user where they are
    /// dense.
    pub async fn finish(
        &self,
        rows: Vec<Delivery>,
        spread: Spread,
        account: &mut Account,
    ) -> Result<()> {
        account.take_up(&rows);
        let (settled, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.state.settled());
        let (sending, mut pending): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| row.state == DeliveryState::Sending);
        // Markers first: they depend on nobody.
        let bad = self
            .close(settled.iter().map(|row| (row, row.state)))
            .await?;
        account.passed_over(bad);
        self.resolve(sending, account).boxed().await?;
        pending.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        self.send(pending, spread, account).boxed().await
    }

    /// Lets go of the rows that wait; settles the others, writes their markers and closes them.
    /// Answers what was done.
    async fn conclude(&self, rows: &[&Delivery], verdicts: Verdicts) -> Result<Concluded> {
        if !verdicts.deferrals.is_empty() {
            self.deliveries
                .defer(&self.owner, &verdicts.deferrals)
                .await?;
        }
        if verdicts.settlements.is_empty() {
            return Ok(Concluded {
                deferred: verdicts.deferrals,
                ..Concluded::default()
            });
        }
        crash::point("before-settle");
        let now = self.clock.now();
        let done = self
            .deliveries
            .settle(&self.owner, now, &verdicts.settlements)
            .await?;
        crash::point("after-settle");
        let settled: Vec<Settlement> = verdicts
            .settlements
            .into_iter()
            .zip(done)
            .filter_map(|(end, done)| done.then_some(end))
            .collect();
        let undeliverable = verdicts.undeliverable;
        let of: HashMap<&DeliveryId, &Delivery> = rows.iter().map(|row| (&row.id, *row)).collect();
        let excused = |end: &&Settlement| {
            let tried_again = of.get(&end.id).is_some_and(|row| row.reopened > 0);
            let of_address = || undeliverable.iter().any(|lost| lost.delivery == end.id);
            end.state == DeliveryState::Failed && (tried_again || of_address())
        };
        let excused = settled.iter().filter(excused).count() as u64;
        let closing = settled
            .iter()
            .filter_map(|end| Some((*of.get(&end.id)?, end.state)));
        let bad = self.close(closing).await?;
        Ok(Concluded {
            excused,
            settled,
            deferred: verdicts.deferrals,
            bad,
            ..Concluded::default()
        })
    }
}

fn settlement(
    row: &Delivery,
    state: DeliveryState,
    items: u32,
    reason: Option<&str>,
) -> Settlement {
    Settlement {
        id: row.id.clone(),
        state,
        items,
        provider_id: None,
        reason: reason.map(str::to_owned),
    }
}
