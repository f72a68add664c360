//! Stores the feed items that users have seen, read and archived: one document per user.
//!
//! A record is replaced only if it still has the stamp that was read, and gets a new one. A
//! repeated statement recognizes its own stamp. Concurrent writes share a command
//! ([`super::joint`]).

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{Bson, RawDocument, RawDocumentBuf, doc};
use mongodb::options::FindOptions;

use super::bulk::{Verb, Write};
use super::values::oid;
use super::{INBOXES, Mongo, document};
use crate::domain::{ChangeNotice, Id, Inbox, UserId, Window};
use crate::store::record::fields::As;
use crate::store::record::inbox::InboxRecord;
use crate::store::record::{read_bson, write_bson};
use crate::store::{FeedParts, Inboxes, Result};

#[async_trait]
impl Inboxes for Mongo {
    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
        if users.is_empty() {
            return Ok(Vec::new());
        }
        let doing = "reading what people have seen";
        let names: Vec<&str> = users.iter().map(UserId::as_str).collect();
        let (filter, options) = (doc! {"_id": {"$in": names}}, FindOptions::default());
        let found = self.find_raw(doing, INBOXES, &filter, options).await?;
        let found = found.iter().filter_map(|raw| inbox(doing, raw));
        let inboxes: HashMap<UserId, Inbox> =
            found.map(|inbox| (inbox.user.clone(), inbox)).collect();
        let inboxes = users.iter().map(|user| inboxes.get(user).cloned());
        Ok(inboxes.collect())
    }

    async fn feed(&self, window: Window, user: &UserId) -> Result<FeedParts> {
        self.feed_parts(&window, user).await
    }

    async fn put_inbox(&self, inbox: &Inbox, revision: Id) -> Result<bool> {
        let doing = "putting what somebody has seen";
        // With the new stamp, it was written by an attempt whose reply was lost.
        let stamps = match inbox.revision {
            Some(read) => Bson::from(doc! {"$in": [oid(read), oid(revision)]}),
            None => oid(revision),
        };
        let put = Inbox {
            revision: Some(revision),
            ..inbox.clone()
        };
        let put = Write {
            q: doc! {"_id": inbox.user.as_str(), "stamp": stamps},
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
                self.poke(ChangeNotice::people(people.iter().map(String::as_str)))
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
    let standing = document(doing, raw)?;
    let stamp = standing.get_object_id("stamp").ok();
    Some(Inbox {
        revision: stamp.map(|stamp| Id::from_bytes(stamp.bytes())),
        ..Inbox::empty(UserId::stored(standing.get_str("_id").ok()?))
    })
}
