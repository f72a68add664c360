//! Sends due digests while the run reads the next users.
//!
//! No user is in two chunks, so chunks do not depend on each other. A chunk that was begun is
//! finished, even if the scan fails. Two chunks are processed at a time: one is built while the
//! other is sent. Start with [`UnderWay::begin`].

use std::pin::pin;

use futures::future::{BoxFuture, Either, select};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::rows::Opening;
use super::{Digests, Request};
use crate::domain::Lease;
use crate::engine::delivery::{Sender, Spread};
use crate::engine::{Result, Watcher, came_to, crash};
use crate::wire::digest::Ended;

/// The due digests of users that were read together.
pub(super) struct FoundDue {
    pub rows: Vec<Opening>,
    pub spread: Spread,
}

/// The rows that were not sent.
#[derive(Default)]
pub(super) struct NotMailed {
    /// Rows that another process has opened.
    pub busy: u64,
    /// Rows that were not begun.
    pub held: u64,
    /// The reason why no more rows are begun.
    pub ended: Option<Ended>,
}

/// The context in which a run sends its chunks.
pub(super) struct Mailing<'a> {
    pub digests: &'a Digests,
    pub request: &'a Request,
    pub progress: &'a dyn Watcher,
    pub sender: &'a Sender,
}

/// Chunks that are being sent.
pub(super) struct UnderWay<'a> {
    mailing: &'a Mailing<'a>,
    going: FuturesUnordered<BoxFuture<'a, Result<NotMailed>>>,
    done: Vec<Result<NotMailed>>,
}

/// The number of chunks at a time, unless the operator limits the emails per hour.
const AT_ONCE: usize = 2;

impl<'a> UnderWay<'a> {
    pub(super) fn new(mailing: &'a Mailing<'a>) -> Self {
        Self {
            mailing,
            going: FuturesUnordered::new(),
            done: Vec::new(),
        }
    }

    /// Begins to send these rows, a chunk whenever one fits. Begins none after a chunk has failed.
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

    /// Runs `work` while chunks are being sent.
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

    /// Waits until all chunks are finished.
    pub(super) async fn finish(&mut self) {
        while let Some(mailed) = self.going.next().await {
            self.done.push(mailed);
        }
    }

    /// Returns the results of the chunks that have ended since the last call. If one failed, waits
    /// for the others first.
    pub(super) async fn done(&mut self) -> Result<Vec<NotMailed>> {
        if self.done.iter().any(Result::is_err) {
            self.finish().await;
        }
        self.done.drain(..).collect()
    }
}

impl Mailing<'_> {
    /// Opens the rows of a chunk and sends them. If the run has ended, only counts them.
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
            // Without an end, the rows are opened now and sent when the gate permits it.
            (None, None) => sender.ready().await?.ended(),
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
        // A task of its own lets two chunks be built on two cores.
        let finishing = async move { sender.finish(ours, spread).await };
        came_to(tokio::spawn(finishing.boxed()).await)?;
        Ok(others)
    }
}
