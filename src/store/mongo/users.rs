//! Users, their follows and their inboxes.
//!
//! An unreadable field of a user gets its default and is reported: see [`StoredFields`]. A follow
//! consists only of its `_id`, `{k, u}`, so the followers of a key are a range of the index.

use std::collections::HashSet;

use async_trait::async_trait;
use bson::raw::cstr;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use chrono::Weekday;
use chrono_tz::Tz;
use sha2::{Digest, Sha256};

use super::bulk::{CommandKind, Replacement, delete_one};
use super::reads::{decode, in_order_of};
use super::upgrade::any_case;
use super::{FOLLOWS, INBOXES, Mongo, USERS, oid, without_nulls};
use crate::domain::audience::EARTH_RADIUS_KM;
use crate::domain::user::Revision;
use crate::domain::{
    Address, Cadence, ChangeNotice, DueUserFilter, FollowKey, Id, Inbox, Point, User, UserId,
};
use crate::store::record::small::{Follow, InboxRecord};
use crate::store::record::user::{StoredFields, UserRecord, user_with_defaults};
use crate::store::record::values::StoredForm;
use crate::store::record::{read_bson, write_bson};
use crate::store::{Directory, FollowChange, Result, UserField, UserFilter};

const FOLLOWS_PER_READ: usize = 1_000;

#[async_trait]
impl Directory for Mongo {
    async fn put_users(&self, users: &[User]) -> Result<Vec<bool>> {
        let replacement = |user: &User| {
            let (record, revision) = encode_user(user)?;
            let old = Some(user.revision).filter(|old| *old != Revision::NONE);
            Ok(Replacement {
                id: user.id.as_str().into(),
                old_revision: old.map(|old| Bson::from(old.0 as i64)),
                new_revision: revision.into(),
                record,
            })
        };
        let records: Vec<_> = users.iter().map(replacement).collect::<Result<_>>()?;
        let is_written = self.replace_each(USERS, "rev", records).await;
        // Feeds count muted items as read, and omit events from before `start`.
        let changes_feed = |user: &&User| !user.mutes.is_empty() || user.start.is_some();
        let ids = users.iter().filter(changes_feed).map(|user| user.id.as_str());
        let changed: Vec<&str> = ids.collect();
        if !changed.is_empty() {
            // After an error too, because some may have been written.
            self.notify(ChangeNotice::users(changed)).await;
        }
        is_written
    }

    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>> {
        let documents = self.find_by_id(USERS, ids.iter().map(UserId::as_str)).raw().await?;
        let users = documents.iter().filter_map(|raw| read_user(raw));
        Ok(in_order_of(ids, users, |user| &user.id))
    }

    async fn delete_user(&self, id: &UserId) -> Result<bool> {
        let user = doc! {"_id": id.as_str()};
        // Checked first: a deletion that is repeated after a lost reply finds nothing.
        let existed = !self.find(USERS, user.clone()).ids().await?.is_empty();
        self.delete_matching(FOLLOWS, doc! {"_id.u": id.as_str()}).await?;
        self.delete_matching(INBOXES, user.clone()).await?;
        self.delete_matching(USERS, user).await?;
        self.notify(ChangeNotice::users([id.as_str()])).await;
        self.forget_actor(id).await?;
        Ok(existed)
    }

    async fn change_follows(
        &self,
        change: FollowChange,
        follows: &[(FollowKey, UserId)],
    ) -> Result<()> {
        let records = follows.iter().map(|follow| doc! {"_id": follow_id(follow)});
        match change {
            FollowChange::Follow => {
                self.write(CommandKind::Insert, FOLLOWS, records).await?.duplicates().map(drop)
            }
            FollowChange::Unfollow => {
                let deletes = records.map(delete_one);
                self.write(CommandKind::Delete, FOLLOWS, deletes).await?.complete().map(drop)
            }
        }
    }

    async fn find_users(
        &self,
        filter: &UserFilter<'_>,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let from = after.map_or("", UserId::as_str);
        let mut collation = None;
        let mut matching = match *filter {
            // Documents compare field by field, so the range has one key only. `{}` sorts after all
            // text.
            UserFilter::Follow(key) => {
                let key = key.as_str();
                doc! {"_id": {"$gt": {"k": key, "u": from}, "$lt": {"k": key, "u": {}}}}
            }
            UserFilter::All => doc! {},
            UserFilter::Near(point, km) => is_near(point, km),
            UserFilter::Address(address) => {
                let spellings = address.spellings();
                let spellings: Vec<&str> = spellings.iter().map(Address::reveal).collect();
                collation = Some(any_case());
                doc! {"email": {"$in": spellings}}
            }
            UserFilter::Choices(choices) => has_choices(choices),
        };
        let is_follow = matches!(filter, UserFilter::Follow(_));
        let collection = if is_follow { FOLLOWS } else { USERS };
        if !is_follow {
            // Other programs may have written numbers, which are not user ids.
            let bound = if after.is_some() { "$gt" } else { "$gte" };
            matching.insert("_id", doc! {bound: from});
        }
        let mut find = self.find(collection, matching).sort(doc! {"_id": 1});
        find.options.collation = collation;
        let read = |raw: &RawDocument| {
            if is_follow {
                read_follow(raw).map(|(_, user)| user)
            } else {
                Some(UserId::stored(raw.get_str("_id").ok()?))
            }
        };
        find.readable_ids(limit, read).await
    }

    async fn values(&self, field: UserField) -> Result<Vec<String>> {
        let field = match field {
            UserField::Zone => "$tz",
            UserField::Locale => "$locale",
        };
        let groups = self.aggregate(Some(USERS), vec![doc! {"$group": {"_id": field}}]).await?;
        let value = |group: &RawDocumentBuf| group.get_str("_id").ok().map(str::to_owned);
        Ok(groups.iter().filter_map(value).collect())
    }

    async fn following(&self, follows: &[(FollowKey, UserId)]) -> Result<Vec<bool>> {
        let mut stored = HashSet::new();
        for chunk in follows.chunks(FOLLOWS_PER_READ) {
            let found = self.find_by_id(FOLLOWS, chunk.iter().map(follow_id)).raw().await?;
            stored.extend(found.iter().filter_map(|raw| read_follow(raw)));
        }
        Ok(follows.iter().map(|follow| stored.contains(follow)).collect())
    }

    async fn follows(
        &self,
        user: &UserId,
        after: Option<&FollowKey>,
        limit: usize,
    ) -> Result<Vec<FollowKey>> {
        let keys = after.map(|after| doc! {"$gt": after.as_str()});
        let by_user = without_nulls(doc! {"_id.u": user.as_str(), "_id.k": keys});
        let find = self.find(FOLLOWS, by_user).sort(doc! {"_id.k": 1});
        find.readable_ids(limit, |raw| Some(read_follow(raw)?.0)).await
    }

    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
        let documents = self.find_by_id(INBOXES, users.iter().map(UserId::as_str)).raw().await?;
        let inboxes = documents.iter().filter_map(|raw| read_inbox(raw));
        Ok(in_order_of(users, inboxes, |inbox| &inbox.user))
    }

    async fn put_inboxes(&self, inboxes: &[(Inbox, Id)]) -> Result<Vec<bool>> {
        let replacement = |(inbox, revision): &(Inbox, Id)| {
            let mut record = InboxRecord::from_value(inbox);
            record.revision = Some(StoredForm::from_value(revision));
            Replacement {
                id: inbox.user.as_str().into(),
                old_revision: inbox.revision.map(oid),
                new_revision: oid(*revision),
                record,
            }
        };
        let records = inboxes.iter().map(replacement).collect();
        let written = self.replace_each(INBOXES, "stamp", records).await;
        // After an error, any of them may have been written.
        let may_be_written = |index: usize| written.as_ref().map_or(true, |written| written[index]);
        let changed = inboxes.iter().enumerate().filter(|(index, _)| may_be_written(*index));
        let users: Vec<&str> = changed.map(|(_, (inbox, _))| inbox.user.as_str()).collect();
        if !users.is_empty() {
            self.notify(ChangeNotice::users(users)).await;
        }
        written
    }
}

/// Decodes an inbox. An unreadable one counts as empty; `None` if even its user is unreadable.
fn read_inbox(raw: &RawDocument) -> Option<Inbox> {
    let error = match read_bson::<InboxRecord>(raw) {
        Ok(inbox) => return Some(inbox),
        Err(error) => error,
    };
    tracing::warn!(%error, "an inbox cannot be read, so all items count as new");
    let document = decode(raw)?;
    let revision = document.get_object_id("stamp").ok();
    Some(Inbox {
        revision: revision.map(|revision| Id::from_bytes(revision.bytes())),
        ..Inbox::empty(UserId::stored(document.get_str("_id").ok()?))
    })
}

fn read_follow(raw: &RawDocument) -> Option<(FollowKey, UserId)> {
    let Follow { id } = read_bson::<Follow>(raw).ok()?;
    Some((FollowKey::stored(id.k), UserId::stored(id.u)))
}

/// Returns the `_id` of a follow, which has no other fields.
fn follow_id((key, user): &(FollowKey, UserId)) -> Document {
    doc! {"k": key.as_str(), "u": user.as_str()}
}

/// Decodes a user. Fields that this version cannot read get their defaults and are reported.
fn read_user(raw: &RawDocument) -> Option<User> {
    let error = match read_bson::<UserRecord>(raw) {
        Ok(user) => return Some(user),
        Err(error) => error,
    };
    let (id, stored) = (raw.get_str("_id").ok()?, StoredFields::from_document(raw));
    Some(user_with_defaults(UserId::stored(id), &error, stored))
}

/// Selects users within this distance of a point.
fn is_near(point: Point, km: f64) -> Document {
    let radius = km / EARTH_RADIUS_KM;
    if radius < std::f64::consts::PI {
        let sphere = doc! {"$centerSphere": [[point.lng(), point.lat()], radius]};
        doc! {"loc": {"$geoWithin": sphere}}
    } else {
        // The whole Earth: all users with a location.
        doc! {"loc": {"$exists": true, "$ne": null}}
    }
}

/// Selects users who made these choices. The server treats an absent field as null, so null selects
/// users without a choice.
fn has_choices(choices: &DueUserFilter) -> Document {
    let cadences = choices.cadences.iter().map(|cadence| cadence.map(Cadence::as_str));
    let weekday = |day: Weekday| day.to_string().to_lowercase();
    let weekdays = choices.weekdays.iter().map(|day| day.map(weekday));
    doc! {
        "tz": choices.tz.map(Tz::name),
        "digest.hour": choices.hour.map(i32::from),
        "digest.cadence": {"$in": cadences.collect::<Vec<_>>()},
        "digest.weekday": {"$in": weekdays.collect::<Vec<_>>()},
    }
}

/// Encodes a user with a revision that is a hash of the content. So a write that is repeated after
/// a lost reply finds its own revision.
pub(super) fn encode_user(user: &User) -> Result<(RawDocumentBuf, i64)> {
    let mut document = write_bson("encoding a user", &UserRecord::from_value(user))?;
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&Sha256::digest(document.as_bytes())[..8]);
    // Never the value that means no revision.
    let revision = i64::from_le_bytes(bytes) | 1;
    document.append(cstr!("rev"), revision);
    Ok((document, revision))
}
