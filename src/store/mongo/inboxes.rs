//! Stores the feed items that users have seen, read and archived: one document per user.
//!
//! A record is replaced only if it still has the stamp that was read, and gets a new one. A
//! repeated statement recognizes its own stamp. Concurrent writes share a command
//! ([`super::joint`]).

use async_trait::async_trait;
use bson::{RawDocument, RawDocumentBuf, doc};

use super::bulk::{Verb, Write};
use super::reads::{document, in_order_of};
use super::{INBOXES, Mongo, read_or_written};
use crate::domain::{ChangeNotice, Id, Inbox, UserId, Window};
use crate::store::record::fields::As;
use crate::store::record::inbox::InboxRecord;
use crate::store::record::{read_bson, write_bson};
use crate::store::{FeedParts, Inboxes, Result};

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
        let doing = "putting what somebody has seen";
        let stamp = read_or_written(inbox.revision, revision);
        let put = Inbox {
            revision: Some(revision),
            ..inbox.clone()
        };
        let put = Write {
            q: doc! {"_id": inbox.user.as_str(), "stamp": stamp},
            u: InboxRecord::keep(&put),
            // If none was read, none may exist. A duplicate shows that one does.
            upsert: inbox.revision.is_none(),
        };
        let put = write_bson(doing, &put)?;
        let all = |puts: Vec<(String, RawDocumentBuf)>| async move {
            let (people, puts): (Vec<_>, Vec<_>) = puts.into_iter().unzip();
            let items = (0..puts.len()).collect();
            let outcome = self.write_some(doing, Verb::Update, INBOXES, &puts, items);
            let outcome = outcome.await?;
            let (n, is_one) = (outcome.n, puts.len() == 1);
            let refused = match is_one {
                true => outcome.duplicates(doing)?,
                // Each caller checks its own record.
                false => outcome.refused,
            };
            let are_put = refused.is_empty() && n == puts.len() as u64;
            if are_put {
                self.notify(ChangeNotice::people(people.iter().map(String::as_str)))
                    .await;
            }
            Ok(are_put)
        };
        self.0.inboxes.write(inbox.user.as_str(), put, all).await
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
