//! Compare-and-set writes that come at the same time are sent at once: one command for all.
//!
//! The rule: while a command is under way, what comes waits and goes with the next, so that all
//! wait for a majority once; as `engine::joint` does for calls. Of one key a command has one
//! statement; whoever waits behind one that was done is told that theirs was not, and looks again.
//! A statement may be sent twice: if a caller does not learn the outcome (the writer was canceled,
//! or only some were done), it writes alone.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::{self, error::TryRecvError};

use super::encode::STATEMENTS;
use crate::store::{Error, Result};

/// Those who write something of one kind.
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
    /// Writes a statement, with what else waits; whether it was done. `write` says whether all of
    /// the statements that it is given by their keys were done.
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
            // Whoever had the turn before may have written it just now.
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
                    // Each finds out about its own.
                    Ok(_) | Err(_) => continue,
                };
                // Who was given up meanwhile does not listen.
                drop(waiting.told.send(told));
            }
            // Only now, as whoever has it next asks what they were told.
            drop(turn);
        }
        write(vec![(key.to_owned(), statement)]).await
    }

    /// Tells those who wait with a key of which something was done just now that theirs was not: it
    /// compares with what is gone, unless it was made in this very moment.
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

    /// The first that waits of each key, but for those that were given up.
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
