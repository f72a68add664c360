//! Calls that come at the same time are made as one, so that all wait for the disk, or for a
//! majority, once.
//!
//! The rule: while a call is under way, what comes waits and goes with the next; nobody waits for
//! others to come. Each is answered as if it had called alone. A call goes on in a task of its own,
//! so that nobody who was dropped keeps it from ending. Where the store is away, everybody is told
//! who waits: they would only wait for it as long again. Where anything else in a call fails, each
//! calls alone.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::store::{Error, Result};

/// So many go together at most.
pub(crate) const MOST: usize = 250;

/// Those who ask for something of one kind; one for all of a process.
pub struct Joint<Q, A> {
    waiting: Mutex<VecDeque<Waiting<Q, A>>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

struct Waiting<Q, A> {
    asked: Q,
    told: oneshot::Sender<Result<A>>,
}

impl<Q, A> Default for Joint<Q, A> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            turn: Arc::default(),
        }
    }
}

impl<Q, A> Joint<Q, A>
where
    Q: Clone + Send + 'static,
    A: Send + 'static,
{
    /// Asks this, with what else waits. `call` answers each of what it is given, in order.
    pub async fn call<F>(self: &Arc<Self>, asked: Q, call: impl Fn(Vec<Q>) -> F) -> Result<A>
    where
        F: Future<Output = Result<Vec<A>>> + Send + 'static,
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
                turn = Arc::clone(&self.turn).lock_owned() => turn,
            };
            // Whoever had the turn before may have asked it just now.
            match told.try_recv() {
                Ok(told) => return told,
                Err(TryRecvError::Closed) => break,
                Err(TryRecvError::Empty) => {}
            }
            let batch = self.take();
            let answers = call(batch.iter().map(|one| one.asked.clone()).collect());
            let joint = Arc::clone(self);
            tokio::spawn(async move {
                joint.tell_all(batch, answers.await);
                // Only now, as whoever has it next asks what they were told.
                drop(turn);
            });
        }
        let missing = || Error::database("asking alone", "an answer is missing");
        call(vec![asked]).await?.pop().ok_or_else(missing)
    }

    /// Whoever is told nothing calls alone. Who was dropped meanwhile does not listen.
    fn tell_all(&self, mut batch: Vec<Waiting<Q, A>>, answers: Result<Vec<A>>) {
        match answers {
            Ok(answers) => {
                for (one, answer) in batch.into_iter().zip(answers) {
                    drop(one.told.send(Ok(answer)));
                }
            }
            Err(Error::Database { doing, cause }) => {
                batch.extend(self.open().drain(..));
                for one in batch {
                    let error = Error::database(doing.as_str(), cause.to_string());
                    drop(one.told.send(Err(error)));
                }
            }
            Err(error) if batch.len() == 1 => {
                let one = batch.pop();
                drop(one.map(|one| one.told.send(Err(error))));
            }
            Err(_) => {}
        }
    }

    /// The first that wait, but for those that were dropped.
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

#[cfg(test)]
#[path = "joint_tests.rs"]
mod tests;
