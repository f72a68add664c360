//! Calls that come at the same time are made as one, so that all wait for the disk, or for a
//! majority, once.
//!
//! The rule: while a call is under way, what comes waits and goes with the next; nobody waits for
//! others to come. Each is answered as if it had called alone. A call may be made twice: whoever
//! does not learn how theirs ended (whoever made it was given up, or something in it could not be
//! done) calls alone.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::store::{Error, Result};

/// So many go together at most.
const MOST: usize = 250;

/// Those who ask for something of one kind; one for all of a process.
pub struct Joint<Q, A> {
    waiting: Mutex<VecDeque<Waiting<Q, A>>>,
    turn: tokio::sync::Mutex<()>,
}

struct Waiting<Q, A> {
    asked: Q,
    told: oneshot::Sender<Result<A>>,
}

impl<Q, A> Default for Joint<Q, A> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }
}

impl<Q: Clone, A> Joint<Q, A> {
    /// Asks this, with what else waits. `call` answers each of what it is given, in order.
    pub async fn call<F>(&self, asked: Q, call: impl Fn(Vec<Q>) -> F) -> Result<A>
    where
        F: Future<Output = Result<Vec<A>>>,
    {
        let (tell, mut told) = oneshot::channel();
        self.open().push_back(Waiting {
            asked: asked.clone(),
            told: tell,
        });
        loop {
            let turn = tokio::select! {
                biased;
                told = &mut told => match told {
                    Ok(told) => return told,
                    Err(_) => break,
                },
                turn = self.turn.lock() => turn,
            };
            // Whoever had the turn before may have asked it just now.
            match told.try_recv() {
                Ok(told) => return told,
                Err(TryRecvError::Closed) => break,
                Err(TryRecvError::Empty) => {}
            }
            let batch = self.take();
            let answers = call(batch.iter().map(|one| one.asked.clone()).collect()).await;
            tell_all(batch, answers);
            // Only now, as whoever has it next asks what they were told.
            drop(turn);
        }
        let missing = || Error::database("asking alone", "an answer is missing");
        call(vec![asked]).await?.pop().ok_or_else(missing)
    }

    /// The first that wait, but for those that were given up.
    fn take(&self) -> Vec<Waiting<Q, A>> {
        let mut waiting = self.open();
        waiting.retain(|one| !one.told.is_closed());
        let most = waiting.len().min(MOST);
        waiting.drain(..most).collect()
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<Waiting<Q, A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever is told nothing calls alone. Who was given up meanwhile does not listen.
fn tell_all<Q, A>(mut batch: Vec<Waiting<Q, A>>, answers: Result<Vec<A>>) {
    match answers {
        Ok(answers) => {
            for (one, answer) in batch.into_iter().zip(answers) {
                drop(one.told.send(Ok(answer)));
            }
        }
        Err(error) if batch.len() == 1 => {
            let one = batch.pop();
            drop(one.map(|one| one.told.send(Err(error))));
        }
        // Each would wait for the store as long again.
        Err(Error::Database { doing, cause }) => {
            for one in batch {
                let error = Error::database(doing.as_str(), cause.to_string());
                drop(one.told.send(Err(error)));
            }
        }
        Err(_) => {}
    }
}

#[cfg(test)]
#[path = "joint_tests.rs"]
mod tests;
