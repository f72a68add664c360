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
use super::{INBOXES, Mongo, Replacement, oid, read_or_written};
use crate::domain::{ChangeNotice, Id, Inbox, UserId, Window};
use crate::store::contract::in_order_of;
use crate::store::record::fields::As;
use crate::store::record::small::InboxRecord;
use crate::store::record::{read_bson, write_bson};
use crate::store::{Error, FeedParts, Inboxes, Result};

#[async_trait]
impl Inboxes for Mongo {
    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
        let doing = "reading what people have seen";
        let names = users.iter().map(UserId::as_str);
        let found = self.find_by_id(doing, INBOXES, names).await?;
        let found = found.iter().filter_map(|raw| inbox(doing, raw));
        Ok(in_order_of(users, found, |inbox| &inbox.user))
    }

    async fn feed(&self, window: Window, user: &UserId) -> Result<FeedParts> {
        self.feed_parts(&window, user).await
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
        let (send, mut done) = oneshot::channel();
        self.waiting_inboxes().push((put.clone(), send));
        let in_flight = self.0.inboxes.in_flight.lock().await;
        // Otherwise an earlier holder of the lock has written this one, or was canceled.
        if let Err(TryRecvError::Empty) = done.try_recv() {
            self.put_waiting_inboxes().await;
        }
        drop(in_flight);
        match done.await {
            Ok(outcome) => outcome,
            Err(_) => Ok(self.put_inboxes(&[put]).await?[0]),
        }
    }
}

const DOING: &str = "putting what somebody has seen";

impl Mongo {
    fn waiting_inboxes(&self) -> MutexGuard<'_, Vec<(Replacement, oneshot::Sender<Result<bool>>)>> {
        let waiting = self.0.inboxes.waiting.lock();
        waiting.unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes all waiting inboxes with one command. If one of them cannot be written, the channels
    /// close, and each caller writes alone.
    async fn put_waiting_inboxes(&self) {
        let mut waiting = std::mem::take(&mut *self.waiting_inboxes());
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
        let done = self.replace_each(DOING, INBOXES, "stamp", puts).await?;
        let written = puts.iter().zip(&done).filter(|(_, done)| **done);
        let users: Vec<&str> = written.filter_map(|(put, _)| put.id.as_str()).collect();
        if !users.is_empty() {
            self.notify(ChangeNotice::people(users)).await;
        }
        Ok(done)
    }
}

/// Decodes an inbox. An unreadable one counts as empty; `None` if even its user is unreadable.
pub(super) fn inbox(doing: &str, raw: &RawDocument) -> Option<Inbox> {
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
