//! Users and their follows.
//!
//! An unreadable field of a user gets its default and is reported: see
//! [`crate::store::record::fallback`]. A follow consists only of its `_id`, `{k, u}`, so the
//! followers of a key are a range of the index.

use async_trait::async_trait;
use bson::raw::cstr;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use chrono::Weekday;
use chrono_tz::Tz;
use mongodb::options::Collation;
use sha2::{Digest, Sha256};

use super::bulk::{Verb, Write, delete_one};
use super::schema::any_case;
use super::{FOLLOWS, INBOXES, Mongo, Replacement, USERS, ids_in_order, put};
use crate::domain::audience::EARTH_RADIUS_KM;
use crate::domain::user::{Revision, UnreadableField};
use crate::domain::{Address, Cadence, ChangeNotice, DueChoices, FollowKey, Point, User, UserId};
use crate::store::contract::in_order_of;
use crate::store::record::fields::As;
use crate::store::record::user::UserRecord;
use crate::store::record::{read_bson, read_bson_with_defaults, write_bson};
use crate::store::{Directory, Error, FollowChange, FollowFilter, PeopleFilter, Result, UserField};

/// Follows per lookup request.
const FOLLOWS_AT_ONCE: usize = 1_000;

#[async_trait]
impl Directory for Mongo {
    async fn put_users(&self, users: &[User]) -> Result<Vec<bool>> {
        let doing = "putting users";
        let put = |user: &User| {
            let (u, revision) = revised(doing, user)?;
            let unread = user.revision == Revision::NONE;
            let rev = (!unread).then_some(user.revision.0 as i64);
            let write = Write {
                q: doc! {"_id": user.id.as_str(), "rev": rev},
                u,
                // A record that was deleted since it was read must not be recreated.
                upsert: unread,
            };
            Ok(Replacement {
                id: user.id.as_str().into(),
                revision: revision.into(),
                statement: write_bson(doing, &write)?,
            })
        };
        let records: Vec<Replacement> = users.iter().map(put).collect::<Result<_>>()?;
        let put = self.replace_each(doing, USERS, "rev", &records).await;
        // Feeds count muted items as read, and omit events from before `start`.
        let changes_feed = |user: &&User| !user.mutes.is_empty() || user.start.is_some();
        let changed = users.iter().filter(changes_feed);
        let changed: Vec<&str> = changed.map(|user| user.id.as_str()).collect();
        if !changed.is_empty() {
            // After an error too, because some may have been written.
            self.notify(ChangeNotice::people(changed)).await;
        }
        put
    }

    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>> {
        let names = ids.iter().map(UserId::as_str);
        let found = self.find_by_id("reading users", USERS, names).await?;
        let found = found.iter().filter_map(|raw| known(raw));
        Ok(in_order_of(ids, found, |user| &user.id))
    }

    async fn delete_user(&self, id: &UserId) -> Result<bool> {
        let (user, theirs) = (doc! {"_id": id.as_str()}, doc! {"_id.u": id.as_str()});
        // Checked first: a deletion that is repeated after a lost reply finds nothing.
        let found = self.page("reading a user", USERS, user.clone(), None, 1);
        let existed = !found.await?.is_empty();
        let doing = "deleting a user";
        self.delete_matching(doing, FOLLOWS, &theirs).await?;
        self.delete_matching(doing, INBOXES, &user).await?;
        self.delete_matching(doing, USERS, &user).await?;
        self.notify(ChangeNotice::people([id.as_str()])).await;
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
                let doing = "recording follows";
                let inserted = self.write(doing, Verb::Insert, FOLLOWS, records);
                inserted.await?.duplicates(doing).map(drop)
            }
            FollowChange::Unfollow => {
                let doing = "forgetting follows";
                let deleted = self.write(doing, Verb::Delete, FOLLOWS, records.map(delete_one));
                deleted.await?.complete(doing).map(drop)
            }
        }
    }

    async fn find_people(
        &self,
        filter: &PeopleFilter<'_>,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let (doing, mut matching, collation) = match *filter {
            PeopleFilter::Follow(key) => return self.followers(key, after, limit).await,
            // Other programs may have written numbers, which are not user ids.
            PeopleFilter::All => ("listing users", doc! {"_id": {"$gte": ""}}, None),
            PeopleFilter::Near { point, km } => {
                ("looking for people near a point", near(point, km), None)
            }
            PeopleFilter::Address(address) => {
                let spellings = address.spellings();
                let spellings: Vec<&str> = spellings.iter().map(Address::reveal).collect();
                let same = doc! {"email": {"$in": spellings}};
                ("looking for users by their address", same, Some(any_case()))
            }
            PeopleFilter::Chose(choices) => {
                ("looking for people by their choices", chose(choices), None)
            }
        };
        put(
            &mut matching,
            "_id",
            after.map(|after| doc! {"$gt": after.as_str()}),
        );
        let found = self.page(doing, USERS, matching, collation, limit);
        let id = |user: &RawDocumentBuf| Some(UserId::stored(user.get_str("_id").ok()?));
        Ok(found.await?.iter().filter_map(id).collect())
    }

    async fn values(&self, field: UserField) -> Result<Vec<String>> {
        let field = match field {
            UserField::Zone => "tz",
            UserField::Locale => "locale",
        };
        self.distinct_texts("reading a field of all users", USERS, field)
            .await
    }

    async fn find_follows(&self, which: FollowFilter<'_>) -> Result<Vec<(FollowKey, UserId)>> {
        let doing = "reading follows";
        let follow = |id: &Bson| {
            let (key, user) = names(id)?;
            Some((FollowKey::stored(key), UserId::stored(user)))
        };
        let mut found = Vec::new();
        match which {
            FollowFilter::Of { user, after, limit } => {
                let mut filter = doc! {"_id.u": user.as_str()};
                let after = after.map(|after| doc! {"$gt": after.as_str()});
                put(&mut filter, "_id.k", after);
                let order = doc! {"_id.k": 1};
                let ids = self.find_ids(doing, FOLLOWS, &filter, order, limit);
                found.extend(ids.await?.iter().filter_map(follow));
            }
            FollowFilter::Each(follows) => {
                for follows in follows.chunks(FOLLOWS_AT_ONCE) {
                    let ids: Vec<Document> = follows.iter().map(follow_id).collect();
                    let filter = doc! {"_id": {"$in": &ids}};
                    let ids = self.find_ids(doing, FOLLOWS, &filter, doc! {}, ids.len());
                    found.extend(ids.await?.iter().filter_map(follow));
                }
            }
        }
        Ok(found)
    }
}

/// Returns the `_id` of a follow, which has no other fields.
fn follow_id((key, user): &(FollowKey, UserId)) -> Document {
    doc! {"k": key.as_str(), "u": user.as_str()}
}

/// Returns the key and the user in a follow's `_id`.
fn names(id: &Bson) -> Option<(&str, &str)> {
    let id = id.as_document()?;
    Some((id.get_str("k").ok()?, id.get_str("u").ok()?))
}

impl Mongo {
    async fn followers(
        &self,
        key: &FollowKey,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        // Documents compare field by field, so the range has one key only. `{}` sorts after all
        // text.
        let (key, after) = (key.as_str(), after.map_or("", UserId::as_str));
        let filter = doc! {"_id": {"$gt": {"k": key, "u": after}, "$lt": {"k": key, "u": {}}}};
        let found = self.page("reading followers", FOLLOWS, filter, None, limit);
        let user = |follow: &RawDocumentBuf| {
            let user = follow.get_document("_id").and_then(|id| id.get_str("u"));
            user.map(UserId::stored)
                .map_err(|error| Error::corrupt("a follow", error))
        };
        found.await?.iter().map(user).collect()
    }

    /// Returns `_id`s in ascending order.
    async fn page(
        &self,
        doing: &str,
        collection: &str,
        filter: Document,
        collation: Option<Collation>,
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>> {
        let mut ids = ids_in_order(doc! {"_id": 1}, limit);
        (ids.batch_size, ids.collation) = (Some(PAGE), collation);
        self.find_raw(doing, collection, &filter, ids).await
    }
}

/// Decodes a user. Fields that this version cannot read get their defaults and are reported.
fn known(raw: &RawDocument) -> Option<User> {
    let error = match read_bson::<UserRecord>(raw) {
        Ok(user) => return Some(user),
        Err(error) => error,
    };
    tracing::warn!(%error, "a user's record has fields that this version cannot read");
    let mut unreadable = Vec::new();
    let user = match read_bson_with_defaults::<UserRecord>(raw, &mut unreadable) {
        Some(user) => user,
        None => {
            unreadable = vec![UnreadableField::record(&error)];
            User::new(UserId::stored(raw.get_str("_id").ok()?))
        }
    };
    Some(User { unreadable, ..user })
}

/// Selects users within this distance of a point, whose `_id` is text.
fn near(point: Point, km: f64) -> Document {
    let radius = km / EARTH_RADIUS_KM;
    match radius < std::f64::consts::PI {
        true => {
            let sphere = doc! {"$centerSphere": [[point.lng(), point.lat()], radius]};
            doc! {"loc": {"$geoWithin": sphere}, "_id": {"$gte": ""}}
        }
        // The whole Earth: all users with a location.
        false => doc! {"loc": {"$exists": true, "$ne": null}, "_id": {"$gte": ""}},
    }
}

/// Selects users who made these choices. The server treats an absent field as null, so null selects
/// users without a choice.
fn chose(choices: &DueChoices) -> Document {
    let cadences = choices
        .cadences
        .iter()
        .map(|of| Bson::from(of.map(Cadence::as_str)));
    let weekday = |day: Weekday| day.to_string().to_lowercase();
    let weekdays = choices
        .weekdays
        .iter()
        .map(|day| Bson::from(day.map(weekday)));
    doc! {
        "tz": choices.tz.map(Tz::name),
        "digest.hour": choices.hour.map(i32::from),
        "digest.cadence": {"$in": cadences.collect::<Vec<_>>()},
        "digest.weekday": {"$in": weekdays.collect::<Vec<_>>()},
    }
}

/// Encodes a user with a revision that is a hash of the content. So a write that is repeated after
/// a lost reply finds its own revision.
pub(super) fn revised(doing: &str, user: &User) -> Result<(RawDocumentBuf, i64)> {
    let mut record = write_bson(doing, &UserRecord::from_value(user))?;
    let hash = Sha256::digest(record.as_bytes());
    let mut rev = [0; 8];
    rev.copy_from_slice(&hash[..8]);
    // Never the value that means no revision.
    let rev = i64::from_le_bytes(rev) | 1;
    record.append(cstr!("rev"), rev);
    Ok((record, rev))
}

/// Ids per batch.
const PAGE: u32 = 10_000;
