//! Stores the feed items that users have seen, read and archived: one document per user.
//!
//! A record is replaced only if it still has the stamp that was read, and gets a new one. A
//! repeated statement recognizes its own stamp. While a command is in flight, further writes wait,
//! and then share the next one. A write may be sent twice.

use std::sync::{MutexGuard, PoisonError};

use async_trait::async_trait;
use bson::{RawDocument, doc};

use tokio::sync::oneshot::{self, error::TryRecvError};

use super::bulk::Write;
use super::patience::Failure;
use super::reads::document;
use super::{INBOXES, InboxQueue, Mongo, Replacement, oid, read_or_written};
use crate::domain::{ChangeNotice, Id, Inbox, UserId};
use crate::store::contract::in_order_of;
use crate::store::record::fields::As;
use crate::store::record::small::InboxRecord;
use crate::store::record::{read_bson, write_bson};
use crate::store::{Error, Inboxes, Result};

#[async_trait]
impl Inboxes for Mongo {
    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
        let doing = "reading what people have seen";
        let names = users.iter().map(UserId::as_str);
        let found = self.find_by_id(doing, INBOXES, names).await?;
        let found = found.iter().filter_map(|raw| inbox(doing, raw));
        Ok(in_order_of(users, found, |inbox| &inbox.user))
    }

    async fn put_inbox(&self, inbox: &Inbox, revision: Id) -> Result<bool> {
        let put = Inbox {
            revision: Some(revision),
            ..inbox.clone()
        };
        let put = Write {
            q: doc! {
                "_id": inbox.user.as_str(),
                "stamp": read_or_written(inbox.revision, revision),
            },
            u: InboxRecord::from_value(&put),
            // If none was read, none may exist. A duplicate shows that one does.
            upsert: inbox.revision.is_none(),
        };
        let put = Replacement {
            id: inbox.user.as_str().into(),
            revision: oid(revision),
            statement: write_bson(DOING, &put)?,
        };
        let queue = &self.0.inboxes;
        match queue.outcome(put.clone(), self.put_waiting_inboxes()).await {
            Some(outcome) => outcome,
            None => Ok(self.put_inboxes(&[put]).await?[0]),
        }
    }
}

impl InboxQueue {
    /// Queues a write and returns its outcome. If the command in flight ends without this write,
    /// `write_waiting` writes all waiting ones. Returns `None` if the outcome is unknown.
    async fn outcome(
        &self,
        put: Replacement,
        write_waiting: impl Future<Output = ()>,
    ) -> Option<Result<bool>> {
        let (send, mut done) = oneshot::channel();
        self.waiting().push((put, send));
        let in_flight = self.in_flight.lock().await;
        // A receiver that has returned its result, or that it is closed, must not be awaited.
        match done.try_recv() {
            Ok(outcome) => return Some(outcome),
            Err(TryRecvError::Closed) => return None,
            Err(TryRecvError::Empty) => write_waiting.await,
        }
        drop(in_flight);
        done.await.ok()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<(Replacement, oneshot::Sender<Result<bool>>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const DOING: &str = "putting what somebody has seen";

impl Mongo {
    /// Writes all waiting inboxes with one command. If one of them cannot be written, the channels
    /// close, and each caller writes alone.
    async fn put_waiting_inboxes(&self) {
        let mut waiting = std::mem::take(&mut *self.0.inboxes.waiting());
        // A canceled caller has dropped its receiver.
        waiting.retain(|(_, done)| !done.is_closed());
        let (puts, callers): (Vec<Replacement>, Vec<_>) = waiting.into_iter().unzip();
        let outcomes = match self.put_inboxes(&puts).await {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(Error::Database { cause, .. }) => {
                let failure = cause.downcast_ref::<Failure>();
                if puts.len() > 1 && failure.is_none_or(|failure| !failure.passing) {
                    return;
                }
                let error = |_| Err(Error::database(DOING, cause.to_string()));
                puts.iter().map(error).collect::<Vec<Result<bool>>>()
            }
            Err(_) => return,
        };
        for (done, outcome) in callers.into_iter().zip(outcomes) {
            drop(done.send(outcome));
        }
    }

    /// Writes inboxes. Returns which are stored under their new revisions.
    async fn put_inboxes(&self, puts: &[Replacement]) -> Result<Vec<bool>> {
        let done = self.replace_each(DOING, INBOXES, "stamp", puts).await;
        // After an error, any of them may have been written.
        let is_written = |at: usize| done.as_ref().map_or(true, |done| done[at]);
        let written = puts.iter().enumerate().filter(|(at, _)| is_written(*at));
        let users: Vec<&str> = written.filter_map(|(_, put)| put.id.as_str()).collect();
        if !users.is_empty() {
            self.notify(ChangeNotice::people(users)).await;
        }
        done
    }
}

/// Decodes an inbox. An unreadable one counts as empty; `None` if even its user is unreadable.
fn inbox(doing: &str, raw: &RawDocument) -> Option<Inbox> {
    let error = match read_bson::<InboxRecord>(raw) {
        Ok(inbox) => return Some(inbox),
        Err(error) => error,
    };
    tracing::warn!(%error, "what somebody has seen cannot be read; all is new");
    let stored = document(doing, raw)?;
    let stamp = stored.get_object_id("stamp").ok();
    Some(Inbox {
        revision: stamp.map(|stamp| Id::from_bytes(stamp.bytes())),
        ..Inbox::empty(UserId::stored(stored.get_str("_id").ok()?))
    })
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use bson::{Bson, RawDocumentBuf};
    use futures::poll;

    use super::*;

    fn put(user: &str) -> Replacement {
        Replacement {
            id: user.into(),
            revision: Bson::Null,
            statement: RawDocumentBuf::new(),
        }
    }

    #[tokio::test]
    async fn a_write_in_the_command_of_another_caller_is_not_sent_again() {
        let queue = InboxQueue::default();
        let write_all = async {
            let waiting = std::mem::take(&mut *queue.waiting());
            assert_eq!(waiting.len(), 2);
            for (put, done) in waiting {
                done.send(Ok(put.id.as_str() == Some("ben"))).unwrap();
            }
        };
        let in_flight = queue.in_flight.lock().await;
        let mut ada = pin!(queue.outcome(put("ada"), write_all));
        let mut ben = pin!(queue.outcome(put("ben"), async { panic!("it was written") }));
        assert!(poll!(ada.as_mut()).is_pending());
        assert!(poll!(ben.as_mut()).is_pending());

        drop(in_flight);

        assert!(!ada.await.unwrap().unwrap());
        assert!(ben.await.unwrap().unwrap());
    }

    #[tokio::test]
    async fn after_the_writing_future_is_dropped_the_others_write_alone() {
        let queue = InboxQueue::default();
        let write_forever = async {
            let _waiting = std::mem::take(&mut *queue.waiting());
            pending().await
        };
        let in_flight = queue.in_flight.lock().await;
        let mut ada = Box::pin(queue.outcome(put("ada"), write_forever));
        let mut ben = pin!(queue.outcome(put("ben"), async { panic!("it is not waiting") }));
        assert!(poll!(ada.as_mut()).is_pending());
        assert!(poll!(ben.as_mut()).is_pending());
        drop(in_flight);
        assert!(poll!(ada.as_mut()).is_pending());

        drop(ada);

        assert!(ben.await.is_none());
        assert!(queue.waiting().is_empty());
    }
}
