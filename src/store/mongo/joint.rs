//! Coalesces concurrent compare-and-set writes: while a command is in flight, statements wait.
//!
//! A command has one statement per key. If it succeeds, waiting statements for the same key fail,
//! because they compare with a replaced revision. A caller whose outcome is unknown writes alone,
//! so a statement may be sent twice. This happens if the writer was canceled, or if only some were
//! done.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::encode::STATEMENTS;
use crate::store::{Error, Result};

/// The statements of one kind that wait to be written.
#[derive(Default)]
pub(super) struct Joint<T> {
    waiting: Mutex<VecDeque<Waiting<T>>>,
    turn: tokio::sync::Mutex<()>,
}

struct Waiting<T> {
    key: String,
    statement: T,
    told: oneshot::Sender<Result<bool>>,
}

impl<T: Clone> Joint<T> {
    /// Writes a statement together with other waiting ones, and returns whether it was done.
    /// `write` returns whether all of the given statements, with their keys, were done.
    pub(super) async fn write<F>(
        &self,
        key: &str,
        statement: T,
        write: impl Fn(Vec<(String, T)>) -> F,
    ) -> Result<bool>
    where
        F: Future<Output = Result<bool>>,
    {
        let (tell, mut told) = oneshot::channel();
        self.open().push_back(Waiting {
            key: key.to_owned(),
            statement: statement.clone(),
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
            // The previous holder of the lock may have written this statement.
            match told.try_recv() {
                Ok(told) => return told,
                Err(TryRecvError::Closed) => break,
                Err(TryRecvError::Empty) => {}
            }
            let batch = self.take();
            let statements = batch.iter();
            let statements = statements.map(|of| (of.key.clone(), of.statement.clone()));
            let written = write(statements.collect()).await;
            if let Ok(true) = written {
                self.come_too_late_for(&batch);
            }
            let alone = batch.len() == 1;
            for waiting in batch {
                let told = match &written {
                    Ok(done) if *done || alone => Ok(*done),
                    Err(Error::Database { doing, cause }) => {
                        Err(Error::database(doing.as_str(), cause.to_string()))
                    }
                    // Each caller checks its own statement.
                    Ok(_) | Err(_) => continue,
                };
                // A canceled caller has dropped its receiver.
                drop(waiting.told.send(told));
            }
            // Unlock only now: the next holder checks first whether it has a result.
            drop(turn);
        }
        write(vec![(key.to_owned(), statement)]).await
    }

    /// Fails waiting statements for the keys that were just written: they compare with a replaced
    /// revision. A caller that has just read the new revision fails too, and reads again.
    fn come_too_late_for(&self, done: &[Waiting<T>]) {
        let keys: HashSet<&str> = done.iter().map(|of| of.key.as_str()).collect();
        let mut waiting = self.open();
        let is_late = |of: &Waiting<T>| keys.contains(of.key.as_str());
        let (late, left): (Vec<_>, _) = waiting.drain(..).partition(is_late);
        *waiting = left.into();
        for of in late {
            drop(of.told.send(Ok(false)));
        }
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<Waiting<T>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the first waiting statement of each key. Drops those of canceled callers.
    fn take(&self) -> Vec<Waiting<T>> {
        let mut waiting = self.open();
        let (mut taken, mut keys, mut left) = (Vec::new(), HashSet::new(), VecDeque::new());
        for one in waiting.drain(..).filter(|one| !one.told.is_closed()) {
            if taken.len() < STATEMENTS && keys.insert(one.key.clone()) {
                taken.push(one);
            } else {
                left.push_back(one);
            }
        }
        *waiting = left;
        taken
    }
}

#[cfg(test)]
#[path = "joint_tests.rs"]
mod tests;
