//! Combines concurrent requests into one call, so that all wait for the disk or a majority once.
//!
//! While a call runs, new requests queue for the next call. Each request gets its own answer. A
//! call runs in its own task, so a dropped caller does not cancel it. After a shared call has
//! failed, its requests are repeated alone, so a request that the store rejects fails no other. If
//! the store is unavailable, queued requests fail too. Start with [`Coalescer::call`].

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::store::{Error, Result};

/// The most requests in one call.
pub(crate) const MOST: usize = 250;

/// Combines requests of one kind. A process has one for each kind.
pub struct Coalescer<Q, A> {
    waiting: Mutex<VecDeque<Waiting<Q, A>>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

struct Waiting<Q, A> {
    request: Q,
    reply: oneshot::Sender<Result<A>>,
}

impl<Q, A> Default for Coalescer<Q, A> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            turn: Arc::default(),
        }
    }
}

impl<Q, A> Coalescer<Q, A>
where
    Q: Clone + Send + 'static,
    A: Send + 'static,
{
    /// Returns the answer to `request`, which may share a call with other requests. `call` returns
    /// one answer for each request, in order.
    pub async fn call<F>(self: &Arc<Self>, request: Q, call: impl Fn(Vec<Q>) -> F) -> Result<A>
    where
        F: Future<Output = Result<Vec<A>>> + Send + 'static,
    {
        let (sender, mut reply) = oneshot::channel();
        self.open().push_back(Waiting {
            request: request.clone(),
            reply: sender,
        });
        loop {
            let turn = tokio::select! {
                biased;
                reply = &mut reply => match reply {
                    Ok(reply) => return reply,
                    Err(_) => break,
                },
                turn = Arc::clone(&self.turn).lock_owned() => turn,
            };
            // The previous holder of the lock may have answered this request.
            match reply.try_recv() {
                Ok(reply) => return reply,
                Err(TryRecvError::Closed) => break,
                Err(TryRecvError::Empty) => {}
            }
            let batch = self.take();
            let answers = call(batch.iter().map(|one| one.request.clone()).collect());
            let alone = batch.iter().take(if batch.len() > 1 { 2 } else { 0 });
            let alone: Vec<F> = alone.map(|one| call(vec![one.request.clone()])).collect();
            let coalescer = Arc::clone(self);
            tokio::spawn(async move {
                coalescer.reply_to_all(batch, answers.await, alone).await;
                // Unlock only now: the next holder first checks whether it has been answered.
                drop(turn);
            });
        }
        call(vec![request]).await?.pop().ok_or_else(missing)
    }

    /// Answers the requests of a batch. A request without an answer is repeated alone by its
    /// caller. Dropped callers are ignored.
    ///
    /// If the database failed, `alone` repeats the first two requests. If both fail again, the
    /// database is unavailable. Otherwise it rejected one of the requests.
    async fn reply_to_all<F>(
        &self,
        mut batch: Vec<Waiting<Q, A>>,
        answers: Result<Vec<A>>,
        alone: Vec<F>,
    ) where
        F: Future<Output = Result<Vec<A>>>,
    {
        match answers {
            Ok(answers) => reply(batch, answers.into_iter().map(Ok)),
            Err(error) if batch.len() == 1 => reply(batch, [Err(error)]),
            Err(Error::Database { doing, cause }) => {
                let repeated = futures::future::join_all(alone).await;
                if repeated.iter().all(Result::is_err) {
                    batch.extend(self.open().drain(..));
                    let error = || Err(Error::database(doing.as_str(), cause.to_string()));
                    reply(batch, std::iter::repeat_with(error));
                } else {
                    let answer = |answers: Result<Vec<A>>| answers?.pop().ok_or_else(missing);
                    reply(batch, repeated.into_iter().map(answer));
                }
            }
            Err(_) => {}
        }
    }

    /// Removes up to [`MOST`] requests from the queue and discards those of dropped callers.
    fn take(&self) -> Vec<Waiting<Q, A>> {
        let mut waiting = self.open();
        waiting.retain(|one| !one.reply.is_closed());
        let most = waiting.len().min(MOST);
        waiting.drain(..most).collect()
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<Waiting<Q, A>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn missing() -> Error {
    Error::database("repeating a request alone", "an answer is missing")
}

fn reply<Q, A>(batch: Vec<Waiting<Q, A>>, answers: impl IntoIterator<Item = Result<A>>) {
    for (one, answer) in batch.into_iter().zip(answers) {
        drop(one.reply.send(answer));
    }
}

#[cfg(test)]
#[path = "coalescer_tests.rs"]
mod tests;
