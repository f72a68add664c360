//! People and what they follow. Who lives where is asked in [`super::near`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use chrono::DateTime;
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::codec::{Record, millis, to_json};
use super::connections::{Answer, readable};
use super::{Sqlite, near};
use crate::domain::user::{DigestPreference, Revision, TypePreference, window};
use crate::domain::{Address, Cadence, EventType, FollowKey, Point, Route, User, UserId, duration};
use crate::store::{Directory, FollowChange, PeopleFilter, Result};

#[async_trait]
impl Directory for Sqlite {
    async fn put_users(&self, users: &[User]) -> Result<Vec<bool>> {
        if users.is_empty() {
            return Ok(Vec::new());
        }
        let users = users.to_vec();
        let put = move |transaction: &Transaction<'_>| {
            users.iter().map(|user| put(transaction, user)).collect()
        };
        self.connections.write("putting users", put).await
    }

    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.to_vec();
        let find = move |transaction: &Transaction<'_>| {
            let find = |id| readable(find(transaction, id));
            ids.iter().map(find).collect()
        };
        self.connections.read("reading users", find).await
    }

    async fn delete_user(&self, id: &UserId) -> Result<bool> {
        let id = id.as_str().to_owned();
        let delete = move |transaction: &Transaction<'_>| {
            transaction
                .prepare_cached("DELETE FROM follows WHERE u = ?1")?
                .execute([&id])?;
            Ok(transaction
                .prepare_cached("DELETE FROM users WHERE id = ?1")?
                .execute([&id])?
                == 1)
        };
        self.connections.write("deleting a user", delete).await
    }

    async fn change_follows(
        &self,
        change: FollowChange,
        follows: &[(FollowKey, UserId)],
    ) -> Result<()> {
        let sql = match change {
            FollowChange::Follow => {
                "INSERT INTO follows (k, u) VALUES (?1, ?2) ON CONFLICT DO NOTHING"
            }
            FollowChange::Unfollow => "DELETE FROM follows WHERE k = ?1 AND u = ?2",
        };
        let change = move |transaction: &Transaction<'_>, (key, user): &(FollowKey, UserId)| {
            let mut statement = transaction.prepare_cached(sql)?;
            Ok(statement.execute((key.as_str(), user.as_str()))? == 1)
        };
        self.change_each("changing follows", follows, change)
            .await
            .map(drop)
    }

    async fn find_people(
        &self,
        filter: &PeopleFilter<'_>,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let after = after.cloned();
        match *filter {
            PeopleFilter::Follow(key) => {
                let key = key.as_str().to_owned();
                let look = move |transaction: &Transaction<'_>| {
                    followers(transaction, &key, after.as_ref(), limit)
                };
                self.connections.read("reading followers", look).await
            }
            PeopleFilter::Near { point, km } => {
                let look = move |transaction: &Transaction<'_>| {
                    near::find(transaction, point, km, after, limit)
                };
                let doing = "looking for people near a point";
                self.connections.read(doing, look).await
            }
        }
    }
}

fn followers(
    transaction: &Transaction<'_>,
    key: &str,
    after: Option<&UserId>,
    limit: usize,
) -> Answer<Vec<UserId>> {
    let bound = if after.is_some() { ">" } else { ">=" };
    let sql = format!("SELECT u FROM follows WHERE k = ?1 AND u {bound} ?2 ORDER BY u LIMIT ?3");
    let mut statement = transaction.prepare_cached(&sql)?;
    let from = after.map_or("", UserId::as_str);
    let (mut rows, mut found) = (statement.query((key, from, limit as i64))?, Vec::new());
    while let Some(row) = rows.next()? {
        let what = "follower";
        found.push(UserId::stored(Record { what, row }.text("u")?));
    }
    Ok(found)
}

fn put(transaction: &Transaction<'_>, user: &User) -> Answer<bool> {
    let mut standing = transaction.prepare_cached("SELECT rev FROM users WHERE id = ?1")?;
    let standing: Option<i64> = standing
        .query_row([user.id.as_str()], |row| row.get(0))
        .optional()?;
    let read = user.revision.0 as i64;
    if standing.unwrap_or_default() != read {
        return Ok(false);
    }
    let sql = "INSERT OR REPLACE INTO users (id, email, name, confirmed, tz, locale, lng, lat, cell, cadence, weekday,
                   hour, digest_since, types, suppressed, unsubscribed, rev)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";
    let types: BTreeMap<_, _> = user
        .types
        .iter()
        .map(|(kind, chosen)| {
            let (since, window) = (millis(chosen.since), chosen.window.map(duration::show));
            let choice = match window {
                Some(window) => Choice::Window(chosen.route, since, window),
                None => Choice::Route(chosen.route, since),
            };
            (kind.as_str(), choice)
        })
        .collect();
    transaction.prepare_cached(sql)?.execute(params![
        user.id.as_str(),
        user.email.as_ref().map(Address::reveal),
        user.name,
        user.confirmed,
        user.tz.map(|tz| tz.name()),
        user.locale,
        user.loc.map(Point::lng),
        user.loc.map(Point::lat),
        user.loc.map(near::cell),
        user.digest.cadence.map(Cadence::as_str),
        user.digest.weekday.map(|weekday| weekday.to_string()),
        user.digest.hour,
        user.digest.since.map(millis),
        to_json(&types)?,
        user.suppressed.map(millis),
        user.unsubscribed.map(millis),
        read + 1,
    ])?;
    Ok(true)
}

/// What stands in `types` of one of them: `[route, since]`, and the window where they chose one.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Choice {
    Window(Route, i64, String),
    Route(Route, i64),
}

pub(super) fn find(transaction: &Transaction<'_>, id: &UserId) -> Answer<Option<User>> {
    let mut statement = transaction.prepare_cached("SELECT * FROM users WHERE id = ?1")?;
    let mut rows = statement.query([id.as_str()])?;
    rows.next()?.map(read).transpose()
}

fn read(row: &Row<'_>) -> Answer<User> {
    let record = Record { what: "user", row };
    let email: Option<String> = record.get("email")?;
    let email = email
        .map(Address::stored)
        .transpose()
        .or_else(|why| record.corrupt("email", why))?;
    let types: BTreeMap<String, Choice> = record.json("types")?;
    let preference = |(kind, choice)| {
        let (route, since, own) = match choice {
            Choice::Route(route, since) => (route, since, None),
            Choice::Window(route, since, window) => (route, since, Some(window)),
        };
        let Some(since) = DateTime::from_timestamp_millis(since) else {
            return record.corrupt("types", format!("{since} ms are no time"));
        };
        let own = own.as_deref().map(window).transpose();
        let chosen = TypePreference {
            window: own.or_else(|why| record.corrupt("types", why))?,
            ..TypePreference::new(route, since)
        };
        Ok((EventType::stored(kind), chosen))
    };
    Ok(User {
        id: UserId::stored(record.text("id")?),
        email,
        name: record.get("name")?,
        confirmed: record.get("confirmed")?,
        tz: record.maybe_parsed("tz")?,
        locale: record.get("locale")?,
        loc: record.place()?,
        digest: DigestPreference {
            cadence: record.maybe_parsed("cadence")?,
            weekday: record.maybe_parsed("weekday")?,
            hour: record.get("hour")?,
            since: record.maybe_time("digest_since")?,
        },
        types: types.into_iter().map(preference).collect::<Answer<_>>()?,
        suppressed: record.maybe_time("suppressed")?,
        unsubscribed: record.maybe_time("unsubscribed")?,
        revision: Revision(record.get::<i64>("rev")? as u64),
    })
}
