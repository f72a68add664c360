//! Combines concurrent requests into one call, so that all wait for the disk or a majority once.
//!
//! While a call runs, new requests queue for the next call. Each request gets its own answer. A
//! call runs in its own task, so a dropped caller does not cancel it. If the store is unavailable,
//! queued requests fail too instead of waiting as long again. After another error, each request of
//! a shared call is repeated alone. Start with [`Coalescer::call`].

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::mutex::lock;
use crate::store::{Error, Result};

/// The most requests in one call.
pub(crate) const MAX_REQUESTS_PER_CALL: usize = 250;

/// Combines requests of one kind. A process has one for each kind.
pub struct Coalescer<Q, A> {
    waiting: Mutex<VecDeque<WaitingCall<Q, A>>>,
    /// Locked while a call runs.
    call_lock: Arc<tokio::sync::Mutex<()>>,
}

struct WaitingCall<Q, A> {
    request: Q,
    reply: oneshot::Sender<Result<A>>,
}

impl<Q, A> Default for Coalescer<Q, A> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), call_lock: Arc::default() }
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
        lock(&self.waiting).push_back(WaitingCall { request: request.clone(), reply: sender });
        loop {
            let call_guard = tokio::select! {
                biased;
                reply = &mut reply => match reply {
                    Ok(reply) => return reply,
                    Err(_) => break,
                },
                guard = Arc::clone(&self.call_lock).lock_owned() => guard,
            };
            // The previous holder of the lock may have answered this request.
            match reply.try_recv() {
                Ok(reply) => return reply,
                Err(TryRecvError::Closed) => break,
                Err(TryRecvError::Empty) => {}
            }
            let batch = self.take_batch();
            let answers = call(batch.iter().map(|waiting| waiting.request.clone()).collect());
            let coalescer = Arc::clone(self);
            tokio::spawn(async move {
                coalescer.reply_to_all(batch, answers.await);
                // Unlock only now: the next holder first checks whether it has been answered.
                drop(call_guard);
            });
        }
        let missing = || Error::database("repeating a request alone", "an answer is missing");
        call(vec![request]).await?.pop().ok_or_else(missing)
    }

    /// Answers the requests of a batch. A request without an answer is repeated alone by its
    /// caller. Dropped callers are ignored.
    fn reply_to_all(&self, mut batch: Vec<WaitingCall<Q, A>>, answers: Result<Vec<A>>) {
        match answers {
            Ok(answers) => {
                for (waiting, answer) in batch.into_iter().zip(answers) {
                    drop(waiting.reply.send(Ok(answer)));
                }
            }
            Err(Error::Database { doing, cause }) => {
                batch.extend(lock(&self.waiting).drain(..));
                for waiting in batch {
                    let error = Error::database(doing.as_str(), cause.to_string());
                    drop(waiting.reply.send(Err(error)));
                }
            }
            Err(error) if batch.len() == 1 => {
                drop(batch.pop().map(|waiting| waiting.reply.send(Err(error))));
            }
            Err(_) => {}
        }
    }

    /// Removes up to [`MAX_REQUESTS_PER_CALL`] requests from the queue and discards those of
    /// dropped callers.
    fn take_batch(&self) -> Vec<WaitingCall<Q, A>> {
        let mut waiting = lock(&self.waiting);
        waiting.retain(|call| !call.reply.is_closed());
        let count = waiting.len().min(MAX_REQUESTS_PER_CALL);
        waiting.drain(..count).collect()
    }
}

#[cfg(test)]
#[path = "coalescer_tests.rs"]
mod tests;
