//! People and what they follow.
//!
//! The rule: preferences are read as they stand or not at all (P7): a route or cadence that cannot
//! be read is an error, never a default. Event types are values in a list, not field names, so they
//! may hold dots and dollars. A follow is all `_id`: `{k, u}`.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use bson::{Bson, Document, RawDocumentBuf, doc};
use chrono::{DateTime, Utc, Weekday};
use futures::TryStreamExt;
use mongodb::options::FindOptions;

use super::bulk::Verb;
use super::encode::Writer;
use super::record::{Record, date, geo_json, put};
use super::{FOLLOWS, Mongo, USERS};
use crate::domain::audience::EARTH_RADIUS_KM;
use crate::domain::user::{DigestPreference, TypePreference};
use crate::domain::{Address, Cadence, EventType, FollowKey, Point, Route, User, UserId};
use crate::store::{Directory, Error, Result};

#[async_trait]
impl Directory for Mongo {
    async fn put_users(&self, users: &[User]) -> Result<()> {
        let records: Vec<(&str, Document)> = users
            .iter()
            .map(|user| (user.id.as_str(), record_of(user)))
            .collect();
        self.put_records("putting users", USERS, &records).await
    }

    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>> {
        let names: Vec<&str> = ids.iter().map(UserId::as_str).collect();
        let filter = doc! {"_id": {"$in": names}};
        let options = FindOptions::default();
        let found = self
            .find_all("reading users", USERS, &filter, options)
            .await?;
        let mut users = HashMap::with_capacity(found.len());
        for record in &found {
            let user = user_of(record)?;
            users.insert(user.id.clone(), user);
        }
        Ok(ids.iter().map(|id| users.get(id).cloned()).collect())
    }

    async fn delete_user(&self, id: &UserId) -> Result<bool> {
        // Asked first: a deletion that is repeated after a lost answer no longer knows.
        let stood = self.users_known(id).await?;
        self.patiently("deleting a user", || {
            let (users, follows) = (self.collection(USERS), self.collection(FOLLOWS));
            let (user, theirs) = (doc! {"_id": id.as_str()}, doc! {"_id.u": id.as_str()});
            async move {
                follows.delete_many(theirs).await?;
                users.delete_one(user).await?;
                Ok(())
            }
        })
        .await?;
        Ok(stood)
    }

    async fn follow(&self, follows: &[(FollowKey, UserId)]) -> Result<()> {
        let doing = "recording follows";
        let targets = vec![(FOLLOWS.to_owned(), (0..follows.len()).collect())];
        let inserted = self.bulk(doing, Verb::Insert, targets, |writer, item| {
            write_follow(writer, &follows[item]);
        });
        inserted.await?.duplicates(doing).map(drop)
    }

    async fn unfollow(&self, follows: &[(FollowKey, UserId)]) -> Result<()> {
        let doing = "forgetting follows";
        let targets = vec![(FOLLOWS.to_owned(), (0..follows.len()).collect())];
        let deleted = self.bulk(doing, Verb::Delete, targets, |writer, item| {
            writer.document("q");
            write_follow(writer, &follows[item]);
            writer.close();
            writer.int("limit", 1);
        });
        deleted.await?.complete(doing).map(drop)
    }

    async fn followers(
        &self,
        key: &FollowKey,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        // Documents compare field by field, so these are all of one key; `{}` stands after every
        // text.
        let (key, after) = (key.as_str(), after.map_or("", UserId::as_str));
        let filter = doc! {"_id": {"$gt": {"k": key, "u": after}, "$lt": {"k": key, "u": {}}}};
        let found = self
            .page("reading followers", FOLLOWS, &filter, limit)
            .await?;
        let user = |follow: &RawDocumentBuf| {
            let follow = follow.get_document("_id")?;
            Ok(UserId::stored(follow.get_str("u")?))
        };
        let corrupt = |error: bson::error::Error| Error::corrupt("a follow", error);
        found
            .iter()
            .map(|follow| user(follow).map_err(corrupt))
            .collect()
    }

    async fn near(
        &self,
        point: Point,
        km: f64,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let radius = km / EARTH_RADIUS_KM;
        let mut filter = match radius < std::f64::consts::PI {
            true => {
                doc! {"loc": {"$geoWithin": {"$centerSphere": [[point.lng(), point.lat()], radius]}}}
            }
            // The whole Earth: everybody who is anywhere.
            false => doc! {"loc": {"$exists": true, "$ne": null}},
        };
        if let Some(after) = after {
            filter.insert("_id", doc! {"$gt": after.as_str()});
        }
        let found = self
            .page("looking for people near a point", USERS, &filter, limit)
            .await?;
        let corrupt = |error: bson::error::Error| Error::corrupt("a user", error);
        found
            .iter()
            .map(|user| user.get_str("_id").map(UserId::stored).map_err(corrupt))
            .collect()
    }
}

impl Mongo {
    /// Creates or replaces records by `_id`.
    pub(super) async fn put_records(
        &self,
        doing: &str,
        collection: &str,
        records: &[(&str, Document)],
    ) -> Result<()> {
        let encode = |(_, record): &(&str, Document)| RawDocumentBuf::try_from(record);
        let encoded: Vec<RawDocumentBuf> = records
            .iter()
            .map(encode)
            .collect::<bson::error::Result<_>>()
            .map_err(|error| Error::Unsupported(format!("{doing}: {error}")))?;
        let write = |writer: &mut Writer, item: usize| {
            writer.document("q");
            writer.text("_id", records[item].0);
            writer.close();
            writer.encoded("u", encoded[item].as_bytes());
            writer.flag("upsert", true);
        };
        let all = vec![(collection.to_owned(), (0..records.len()).collect())];
        let put = self.bulk(doing, Verb::Update, all, write).await?;
        let met: Vec<usize> = put
            .duplicates(doing)?
            .iter()
            .map(|refused| refused.item)
            .collect();
        if met.is_empty() {
            return Ok(());
        }
        // Somebody else created these at the same moment: now they stand, and are replaced.
        let again = vec![(collection.to_owned(), met)];
        let put = self.bulk(doing, Verb::Update, again, write).await?;
        put.complete(doing).map(drop)
    }

    async fn users_known(&self, id: &UserId) -> Result<bool> {
        let filter = doc! {"_id": id.as_str()};
        Ok(!self
            .page("reading a user", USERS, &filter, 1)
            .await?
            .is_empty())
    }

    /// `_id`s in ascending order.
    async fn page(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.patiently(doing, || {
            let records = self.0.db.collection::<RawDocumentBuf>(collection);
            let filter = filter.clone();
            async move {
                let find = records.find(filter).projection(doc! {"_id": 1});
                let find = find.sort(doc! {"_id": 1}).limit(limit);
                Ok(find.batch_size(PAGE).await?.try_collect().await?)
            }
        })
        .await
    }
}

/// Ids a batch.
const PAGE: u32 = 10_000;

/// `_id: {k, u}`.
fn write_follow(writer: &mut Writer, (key, user): &(FollowKey, UserId)) {
    writer.document("_id");
    writer.text("k", key.as_str());
    writer.text("u", user.as_str());
    writer.close();
}

fn record_of(user: &User) -> Document {
    let mut record = doc! {"_id": user.id.as_str()};
    put(
        &mut record,
        "email",
        user.email.as_ref().map(Address::reveal),
    );
    put(&mut record, "name", user.name.as_deref());
    record.insert("confirmed", user.confirmed);
    put(&mut record, "tz", user.tz.map(|tz| tz.name()));
    put(&mut record, "locale", user.locale.as_deref());
    put(&mut record, "loc", user.loc.map(geo_json));
    let mut digest = Document::new();
    put(
        &mut digest,
        "cadence",
        user.digest.cadence.map(Cadence::as_str),
    );
    let weekday = user
        .digest
        .weekday
        .map(|day| day.to_string().to_lowercase());
    put(&mut digest, "weekday", weekday);
    put(&mut digest, "hour", user.digest.hour.map(i32::from));
    put(&mut digest, "since", user.digest.since.map(date));
    record.insert("digest", digest);
    let types = user.types.iter().map(|(kind, chosen)| {
        doc! {"t": kind.as_str(), "route": route_name(chosen.route), "since": date(chosen.since)}
    });
    record.insert("types", types.map(Bson::from).collect::<Vec<_>>());
    put(&mut record, "suppressed", user.suppressed.map(date));
    record
}

fn user_of(record: &Document) -> Result<User> {
    let user = Record::new("user", record);
    let id = UserId::stored(user.needs("_id", user.text("_id")?)?);
    let digest = match user.record("digest")? {
        None => DigestPreference::default(),
        Some(digest) => DigestPreference {
            cadence: digest.parsed::<Cadence>("cadence")?,
            weekday: match digest.text("weekday")? {
                None => None,
                Some(text) => {
                    let day = text.parse::<Weekday>();
                    Some(day.map_err(|_| digest.corrupt("weekday", "it is no weekday"))?)
                }
            },
            hour: match digest.count("hour")? {
                Some(hour @ 0..24) => Some(hour as u8),
                Some(_) => return Err(digest.corrupt("hour", "it is not 0 to 23")),
                None => None,
            },
            since: digest.time("since")?,
        },
    };
    Ok(User {
        id,
        // An address that is none cannot be written to, which is all there is to know about it.
        email: user
            .text("email")?
            .and_then(|email| Address::new(email).ok()),
        name: user.text("name")?.map(str::to_owned),
        confirmed: user.flag("confirmed")?.unwrap_or(false),
        tz: user.parsed("tz")?,
        locale: user.text("locale")?.map(str::to_owned),
        loc: user.place("loc")?,
        digest,
        types: types_of(&user)?,
        suppressed: suppressed_of(&user)?,
    })
}

fn types_of(user: &Record<'_>) -> Result<BTreeMap<EventType, TypePreference>> {
    let mut types = BTreeMap::new();
    for chosen in user.list("types")?.into_iter().flatten() {
        let Some(chosen) = chosen.as_document() else {
            return Err(user.corrupt("types", "it holds something that is no document"));
        };
        let chosen = Record::new("a choice of types", chosen);
        let kind = EventType::stored(chosen.needs("t", chosen.text("t")?)?);
        let name = chosen.needs("route", chosen.text("route")?)?;
        let preference = TypePreference {
            route: route_of(name).ok_or_else(|| chosen.corrupt("route", "it is no route"))?,
            since: chosen.time("since")?.unwrap_or(DateTime::UNIX_EPOCH),
        };
        types.insert(kind, preference);
    }
    Ok(types)
}

/// Whoever is suppressed without a date is suppressed since ever.
fn suppressed_of(user: &Record<'_>) -> Result<Option<DateTime<Utc>>> {
    match user.flag("suppressed") {
        Ok(Some(true)) => Ok(Some(DateTime::UNIX_EPOCH)),
        Ok(_) => Ok(None),
        Err(_) => user.time("suppressed"),
    }
}

const ROUTES: [Route; 4] = [Route::Never, Route::Immediate, Route::Batch, Route::Digest];

fn route_name(route: Route) -> &'static str {
    match route {
        Route::Never => "never",
        Route::Immediate => "immediate",
        Route::Batch => "batch",
        Route::Digest => "digest",
    }
}

fn route_of(name: &str) -> Option<Route> {
    ROUTES.into_iter().find(|route| route_name(*route) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> User {
        let time = DateTime::from_timestamp_millis(1_398_124_800_123).unwrap();
        let preference = |route| TypePreference { route, since: time };
        User {
            email: Some(Address::new("ada@example.org").unwrap()),
            name: Some("Ada".into()),
            confirmed: true,
            tz: Some(chrono_tz::Pacific::Apia),
            locale: Some("en-GB".into()),
            loc: Some(Point::new(-0.1, 51.5).unwrap()),
            digest: DigestPreference {
                cadence: Some(Cadence::Weekly),
                weekday: Some(Weekday::Wed),
                hour: Some(23),
                since: Some(time),
            },
            types: ROUTES
                .map(|route| {
                    (
                        EventType::stored(format!("$a.{route:?}")),
                        preference(route),
                    )
                })
                .into(),
            suppressed: Some(time),
            ..User::new(UserId::stored("$ne"))
        }
    }

    #[test]
    fn a_person_is_read_as_written() {
        for user in [whole(), User::new(UserId::stored("0"))] {
            assert_eq!(user_of(&record_of(&user)).unwrap(), user);
        }
    }

    #[test]
    fn a_choice_that_cannot_be_read_is_an_error_that_names_it() {
        let broken = [
            doc! {"_id": "a", "digest": {"cadence": "sometimes"}},
            doc! {"_id": "a", "digest": {"hour": 24}},
            doc! {"_id": "a", "digest": {"weekday": "x"}},
            doc! {"_id": "a", "digest": "never"},
            doc! {"_id": "a", "types": [{"t": "T", "route": "maybe"}]},
            doc! {"_id": "a", "types": ["T"]},
            doc! {"_id": "a", "confirmed": "yes"},
        ];
        for record in broken {
            let error = user_of(&record).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{record}: {error}");
        }
    }

    #[test]
    fn records_of_other_hands_are_read() {
        let record = doc! {
            "_id": "a", "email": "nobody", "confirmed": Bson::Null, "suppressed": true, "loc": [1, 2.5], "digest": {"weekday": "mon"}
        };
        let user = user_of(&record).unwrap();
        assert_eq!((user.email, user.confirmed), (None, false));
        assert_eq!(user.suppressed, Some(DateTime::UNIX_EPOCH));
        assert_eq!(user.loc, Some(Point::new(1.0, 2.5).unwrap()));
        assert_eq!(user.digest.weekday, Some(Weekday::Mon));
    }
}
