//! Users and their follows. [`super::near`] finds users by their place.

use async_trait::async_trait;
use chrono_tz::Tz;
use rusqlite::{OptionalExtension, Transaction};

use super::answer::Answer;
use super::columns::{Met, Table, fields};
use super::pokes::poke;
use super::{Sqlite, near};
use crate::domain::user::UnreadableField;
use crate::domain::{Cadence, ChangeNotice, DueChoices, FollowKey, User, UserId};
use crate::store::record::fields::As;
use crate::store::record::user::UserRecord;
use crate::store::{Directory, FollowChange, PeopleFilter, Result, SharedAddresses};

pub(super) const USERS: Table = Table {
    name: "users",
    columns: "id=_id email name confirmed:flag tz locale brand lng=loc.lng lat=loc.lat cell
        cadence=digest.cadence weekday=digest.weekday hour=digest.hour digest_since=digest.since
        types:json mutes:json quiet:json suppressed unsubscribed start rev preferences:rest",
};

#[async_trait]
impl Directory for Sqlite {
    async fn put_users(&self, users: &[User]) -> Result<Vec<bool>> {
        self.change_each("putting users", users, put).await
    }

    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>> {
        self.read_each("reading users", ids, find).await
    }

    async fn delete_user(&self, id: &UserId) -> Result<bool> {
        let id = id.as_str().to_owned();
        let delete = move |transaction: &Transaction<'_>| {
            transaction
                .prepare_cached("DELETE FROM follows WHERE u = ?1")?
                .execute([&id])?;
            transaction
                .prepare_cached("DELETE FROM inboxes WHERE user = ?1")?
                .execute([&id])?;
            poke(transaction, &ChangeNotice::people([id.as_str()]))?;
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
            PeopleFilter::All => {
                let look = move |transaction: &Transaction<'_>| {
                    let all = "SELECT id FROM users WHERE id";
                    names(
                        transaction,
                        all,
                        None,
                        after.as_ref().map(UserId::as_str),
                        limit,
                    )
                };
                let found = self.connections.read("listing users", look).await?;
                Ok(found.iter().map(UserId::stored).collect())
            }
            PeopleFilter::Follow(key) => {
                let key = key.as_str().to_owned();
                let look = move |transaction: &Transaction<'_>| {
                    let followers = "SELECT u FROM follows WHERE k = ?3 AND u";
                    let after = after.as_ref().map(UserId::as_str);
                    names(transaction, followers, Some(&key), after, limit)
                };
                let found = self.connections.read("reading followers", look).await?;
                Ok(found.iter().map(UserId::stored).collect())
            }
            PeopleFilter::Near { point, km } => {
                let look = move |transaction: &Transaction<'_>| {
                    near::find(transaction, point, km, after, limit)
                };
                let doing = "looking for people near a point";
                self.connections.read(doing, look).await
            }
            PeopleFilter::Address(address) => {
                let spellings = address.spellings();
                let look = move |transaction: &Transaction<'_>| {
                    let at = "SELECT id FROM users WHERE email = ?3 COLLATE NOCASE AND id";
                    let after = after.as_ref().map(UserId::as_str);
                    let mut found = Vec::new();
                    for spelling in &spellings {
                        let named = Some(spelling.reveal());
                        found.extend(names(transaction, at, named, after, limit)?);
                    }
                    found.sort_unstable();
                    found.dedup();
                    found.truncate(limit);
                    Ok(found)
                };
                let doing = "looking for users by their address";
                let found = self.connections.read(doing, look).await?;
                Ok(found.iter().map(UserId::stored).collect())
            }
            PeopleFilter::Chose(choices) => {
                let choices = choices.clone();
                let look = move |transaction: &Transaction<'_>| {
                    chose(transaction, &choices, after.as_ref(), limit)
                };
                let doing = "looking for people by their choices";
                let found = self.connections.read(doing, look).await?;
                Ok(found.iter().map(UserId::stored).collect())
            }
        }
    }

    async fn zones(&self) -> Result<Vec<Tz>> {
        let look = |transaction: &Transaction<'_>| {
            // Jumps from each zone to the next one, instead of reading the whole index.
            let sql = "WITH RECURSIVE zones(tz) AS (
                    SELECT min(tz) FROM users
                    UNION ALL
                    SELECT (SELECT min(tz) FROM users WHERE tz > zones.tz) FROM zones
                        WHERE zones.tz IS NOT NULL
                ) SELECT tz FROM zones WHERE tz IS NOT NULL";
            let mut statement = transaction.prepare_cached(sql)?;
            let names = statement.query_map([], |row| row.get::<_, String>(0))?;
            Ok(names.collect::<rusqlite::Result<Vec<_>>>()?)
        };
        let doing = "looking which time zones there are";
        let names = self.connections.read(doing, look).await?;
        // Zones that this version does not know are skipped.
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    async fn locales(&self) -> Result<Vec<String>> {
        let read = |transaction: &Transaction<'_>| {
            let sql = "SELECT DISTINCT locale FROM users WHERE locale IS NOT NULL";
            let mut statement = transaction.prepare_cached(sql)?;
            let names = statement.query_map([], |row| row.get::<_, String>(0))?;
            Ok(names.collect::<rusqlite::Result<Vec<_>>>()?)
        };
        self.connections
            .read("reading the locales of users", read)
            .await
    }

    async fn shared_addresses(&self, limit: usize) -> Result<SharedAddresses> {
        let count = move |transaction: &Transaction<'_>| {
            let sql = "WITH read AS (
                    SELECT email COLLATE NOCASE AS address, id FROM users
                    WHERE email IS NOT NULL ORDER BY email COLLATE NOCASE LIMIT ?1
                ), grouped AS (
                    SELECT count(*) AS users, min(id) AS first FROM read GROUP BY address
                ) SELECT coalesce(sum(users), 0), count(*) FILTER (WHERE users > 1),
                    coalesce(sum(users) FILTER (WHERE users > 1), 0),
                    min(first) FILTER (WHERE users > 1) FROM grouped";
            let mut statement = transaction.prepare_cached(sql)?;
            Ok(statement.query_row([limit as i64], |row| {
                Ok(SharedAddresses {
                    read: row.get::<_, u32>(0)?.into(),
                    addresses: row.get::<_, u32>(1)?.into(),
                    users: row.get::<_, u32>(2)?.into(),
                    first: row.get::<_, Option<String>>(3)?.map(UserId::stored),
                })
            })?)
        };
        let doing = "counting the addresses that users share";
        self.connections.read(doing, count).await
    }

    async fn following(&self, follows: &[(FollowKey, UserId)]) -> Result<Vec<bool>> {
        if follows.is_empty() {
            return Ok(Vec::new());
        }
        let follows = follows.to_vec();
        let look = move |transaction: &Transaction<'_>| {
            let sql = "SELECT 1 FROM follows WHERE k = ?1 AND u = ?2";
            let mut statement = transaction.prepare_cached(sql)?;
            let stands = |(key, user): &(FollowKey, UserId)| {
                Ok(statement.exists((key.as_str(), user.as_str()))?)
            };
            follows.iter().map(stands).collect()
        };
        let doing = "looking whether people follow";
        self.connections.read(doing, look).await
    }

    async fn follows(
        &self,
        user: &UserId,
        after: Option<&FollowKey>,
        limit: usize,
    ) -> Result<Vec<FollowKey>> {
        let (user, after) = (user.as_str().to_owned(), after.cloned());
        let look = move |transaction: &Transaction<'_>| {
            let keys = "SELECT k FROM follows WHERE u = ?3 AND k";
            let after = after.as_ref().map(FollowKey::as_str);
            names(transaction, keys, Some(&user), after, limit)
        };
        let found = self.connections.read("reading follows", look).await?;
        Ok(found.iter().map(FollowKey::stored).collect())
    }
}

/// Returns the users with these choices, in ascending order after `after`, at most `limit`.
///
/// Each combination is a range of an index, in id order. No more of it is read than can be
/// returned.
fn chose(
    transaction: &Transaction<'_>,
    choices: &DueChoices,
    after: Option<&UserId>,
    limit: usize,
) -> Answer<Vec<String>> {
    let bound = if after.is_some() { ">" } else { ">=" };
    let sql = format!(
        "SELECT id FROM users WHERE tz IS ?1 AND hour IS ?2 AND cadence IS ?3 AND weekday IS ?4
            AND id {bound} ?5 ORDER BY id LIMIT ?6"
    );
    let mut statement = transaction.prepare_cached(&sql)?;
    let tz = choices.tz.map(|tz| tz.name());
    let after = after.map_or("", UserId::as_str);
    let mut found = Vec::new();
    for cadence in &choices.cadences {
        let cadence = cadence.map(Cadence::as_str);
        for weekday in &choices.weekdays {
            let weekday = weekday.map(|day| day.to_string());
            let asked = (tz, choices.hour, cadence, weekday, after, limit as i64);
            let ids = statement.query_map(asked, |row| row.get(0))?;
            for id in ids {
                found.push(id?);
            }
        }
    }
    found.sort_unstable();
    found.truncate(limit);
    Ok(found)
}

/// Returns the first column of a query, in ascending order after `after`. `of` is its third
/// parameter.
fn names(
    transaction: &Transaction<'_>,
    selected: &str,
    of: Option<&str>,
    after: Option<&str>,
    limit: usize,
) -> Answer<Vec<String>> {
    let bound = if after.is_some() { ">" } else { ">=" };
    let sql = format!("{selected} {bound} ?1 ORDER BY 1 LIMIT ?2");
    let mut statement = transaction.prepare_cached(&sql)?;
    let (from, limit) = (after.unwrap_or_default(), limit as i64);
    let mut rows = match of {
        Some(of) => statement.query((from, limit, of))?,
        None => statement.query((from, limit))?,
    };
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        found.push(name);
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
    write(transaction, user, read + 1)?;
    if !user.mutes.is_empty() || user.start.is_some() {
        // Feeds count muted items as read, and show nothing from before a start.
        poke(transaction, &ChangeNotice::people([user.id.as_str()]))?;
    }
    Ok(true)
}

/// Replaces a record regardless of its revision.
pub(super) fn write(transaction: &Transaction<'_>, user: &User, rev: i64) -> Answer<()> {
    let mut fields = fields(&UserRecord::keep(user))?;
    fields.insert("rev".to_owned(), rev.into());
    fields.insert("cell".to_owned(), user.loc.map(near::cell).into());
    USERS.insert(transaction, Met::Replaced, &fields).map(drop)
}

pub(super) fn find(transaction: &Transaction<'_>, id: &UserId) -> Answer<Option<User>> {
    let error = match USERS.find::<UserRecord>(transaction, "id = ?1", [id.as_str()]) {
        Ok(mut found) => return Ok(found.pop()),
        Err(failure) if failure.is_unreadable() => failure.told(),
        Err(failure) => return Err(failure),
    };
    tracing::warn!(
        error,
        "a user's record has fields that this version cannot read"
    );
    let mut statement = transaction.prepare_cached("SELECT * FROM users WHERE id = ?1")?;
    let mut rows = statement.query([id.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let mut unreadable = Vec::new();
    let read = USERS.read_with_defaults::<UserRecord>(row, &mut unreadable)?;
    let user = read.unwrap_or_else(|| {
        unreadable = vec![UnreadableField::record(error)];
        User::new(id.clone())
    });
    Ok(Some(User { unreadable, ..user }))
}
