//! Mails what was found due, while the next people are being looked at.
//!
//! The rule: nobody is in two chunks, so what is found of one does not rest on what becomes of
//! another; and what was begun is seen through, whatever becomes of the search. Two chunks are
//! mailed at a time: one is built while what became of the other is written down. Their calls are
//! made in turn ([`Turn`](crate::engine::delivery::Turn)).

use std::pin::pin;

use futures::future::{BoxFuture, Either, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::rows::Opening;
use super::{Digests, Request};
use crate::domain::Lease;
use crate::engine::delivery::{GateState, Sender, Spread};
use crate::engine::{Result, Watcher, came_to, crash};
use crate::wire::digest::Ended;

/// What was found due, of people who were read together.
pub(super) struct FoundDue {
    pub rows: Vec<Opening>,
    pub spread: Spread,
}

/// Those of such rows that were not mailed.
#[derive(Default)]
pub(super) struct NotMailed {
    /// Somebody else has these.
    pub busy: u64,
    /// These were not begun with.
    pub held: u64,
    /// Why no more is begun with.
    pub ended: Option<Ended>,
}

/// Mails for a run.
pub(super) struct Mailing<'a> {
    pub digests: &'a Digests,
    pub request: &'a Request,
    pub progress: &'a dyn Watcher,
    pub sender: &'a Sender,
}

/// Chunks that are being mailed, a few at a time.
pub(super) struct UnderWay<'a> {
    mailing: &'a Mailing<'a>,
    going: FuturesUnordered<BoxFuture<'a, Result<NotMailed>>>,
    done: Vec<Result<NotMailed>>,
}

/// So many chunks are mailed at a time, unless an operator's limit is what they wait for.
const AT_ONCE: usize = 2;

impl<'a> UnderWay<'a> {
    pub(super) fn new(mailing: &'a Mailing<'a>) -> Self {
        Self {
            mailing,
            going: FuturesUnordered::new(),
            done: Vec::new(),
        }
    }

    /// Begins to mail these, a chunk each time that there is room; none after one has failed.
    pub(super) async fn begin(&mut self, found: FoundDue, ended: Option<&Ended>) {
        let gate = &self.mailing.sender.gate;
        let limited = gate.settings.mails_per_hour > 0;
        let most = if limited { 1 } else { AT_ONCE };
        for rows in found.rows.chunks(gate.chunk()) {
            while self.going.len() >= most
                && let Some(mailed) = self.going.next().await
            {
                self.done.push(mailed);
            }
            if self.done.iter().any(Result::is_err) {
                return;
            }
            let mut done = self.done.iter().flatten();
            let ended = ended.or_else(|| done.find_map(|rows| rows.ended.as_ref()));
            let mailing = self
                .mailing
                .mail(rows.to_vec(), found.spread, ended.cloned());
            self.going.push(mailing.boxed());
        }
    }

    /// Does this while chunks are being mailed.
    pub(super) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        while !self.going.is_empty() {
            match select(work.as_mut(), self.going.next()).await {
                Either::Left((done, _)) => return done,
                Either::Right((mailed, _)) => self.done.extend(mailed),
            }
        }
        work.await
    }

    /// Sees all of them through, each chunk to its end.
    pub(super) async fn finish(&mut self) {
        while let Some(mailed) = self.going.next().await {
            self.done.push(mailed);
        }
    }

    /// What became of those that were mailed since this was last asked. Where one failed, the
    /// others are seen through first.
    pub(super) async fn done(&mut self) -> Result<Vec<NotMailed>> {
        if self.done.iter().any(Result::is_err) {
            self.finish().await;
        }
        self.done.drain(..).collect()
    }
}

impl Mailing<'_> {
    /// Opens the rows of a chunk and takes them as far as they go, unless the run has ended: then
    /// it only says how many there would be.
    async fn mail(
        &self,
        mut rows: Vec<Opening>,
        spread: Spread,
        ended: Option<Ended>,
    ) -> Result<NotMailed> {
        let (sender, mut others) = (self.sender.clone(), NotMailed::default());
        others.ended = match (ended, self.request.patience) {
            (Some(ended), _) => Some(ended),
            (None, Some(patience)) => sender.wait_for_gate(patience, self.progress).await?,
            (None, None) => match sender.ready().await? {
                GateState::Paused(pause) => Some(Ended::Paused(pause)),
                GateState::Stopping => Some(Ended::Stopped),
                // They are opened, and leave when they may.
                GateState::Open | GateState::ClosedUntil(_) => None,
            },
        };
        if others.ended.is_some() {
            others.held = rows.len() as u64;
            return Ok(others);
        }
        let lease = Lease {
            owner: sender.ledger.context.owner.clone(),
            until: self.digests.context.clock.now() + sender.ledger.lease(),
        };
        rows.iter_mut()
            .for_each(|opening| opening.row.lease = Some(lease.clone()));
        let all = rows.len();
        crash::point("before-open");
        let ours = self.digests.open(rows).await?;
        crash::point("after-open");
        others.busy = (all - ours.len()) as u64;
        // In a task of its own, so that two chunks are built on two cores.
        let finishing = async move { sender.finish(ours, spread, None).await };
        came_to(tokio::spawn(finishing.boxed()).await)?;
        Ok(others)
    }
}
