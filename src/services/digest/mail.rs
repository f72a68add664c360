//! Mails what was found due, while the next people are being looked at.
//!
//! The rule: nobody is in two chunks, so what is found of one does not rest on what becomes of
//! another; and what was begun is seen through, whatever becomes of the search.

use super::rows::Opening;
use super::{Digests, Request};
use crate::domain::Lease;
use crate::services::mailing::{GateState, Sender, Spread};
use crate::services::{Result, Watcher, crash};
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

impl Mailing<'_> {
    /// Opens these rows and takes them as far as they go, unless the run has ended: then it only
    /// says how many there would be.
    pub(super) async fn mail(
        &self,
        found: Option<FoundDue>,
        ended: Option<Ended>,
    ) -> Result<NotMailed> {
        let (sender, mut others) = (self.sender, NotMailed::default());
        others.ended = ended;
        let Some(FoundDue { rows, spread }) = found else {
            return Ok(others);
        };
        for rows in rows.chunks(sender.gate.chunk()) {
            if others.ended.is_none() {
                others.ended = match self.request.patience {
                    Some(patience) => sender.wait_for_gate(patience, self.progress).await?,
                    None => match sender.ready().await? {
                        GateState::Paused(pause) => Some(Ended::Paused(pause)),
                        GateState::Stopping => Some(Ended::Stopped),
                        // They are opened, and leave when they may.
                        GateState::Open | GateState::ClosedUntil(_) => None,
                    },
                };
            }
            if others.ended.is_some() {
                others.held += rows.len() as u64;
                continue;
            }
            let _turn = sender.gate.turn().await;
            // They may have waited: the lease begins now.
            let lease = Lease {
                owner: sender.ledger.owner.clone(),
                until: self.digests.clock.now() + sender.ledger.lease,
            };
            let mut rows = rows.to_vec();
            rows.iter_mut()
                .for_each(|opening| opening.row.lease = Some(lease.clone()));
            crash::point("before-open");
            let ours = self.digests.open(rows.clone()).await?;
            crash::point("after-open");
            others.busy += (rows.len() - ours.len()) as u64;
            sender.finish(ours, spread).await?;
        }
        Ok(others)
    }
}
