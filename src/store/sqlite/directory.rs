//! Users and their follows. [`super::near`] finds users by their place.

use async_trait::async_trait;
use rusqlite::Transaction;

use super::change_notices::notify;
use super::journal::forget_actor;
use super::rows::{Statements as _, Table, bound, fields, list};
use super::{Sqlite, near};
use crate::domain::user::UnreadableField;
use crate::domain::{Cadence, ChangeNotice, DueChoices, FollowKey, User, UserId};
use crate::store::record::fields::As;
use crate::store::record::user::UserRecord;
use crate::store::{Directory, FollowChange, PeopleFilter, Result, UserField};

pub(super) const USERS: Table = Table {
    name: "users",
    columns: "id=_id email name confirmed:flag tz locale brand lng=loc.lng lat=loc.lat cell
        cadence=digest.cadence weekday=digest.weekday hour=digest.hour digest_since=digest.since
        types:json mutes:json quiet:json suppressed unsubscribed start rev preferences:rest",
};

#[async_trait]
impl Directory for Sqlite {
    async fn put_users(&self, users: &[User]) -> Result<Vec<bool>> {
        self.change_each(users, put).await
    }

    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>> {
        self.read_each(ids, find).await
    }

    async fn delete_user(&self, id: &UserId) -> Result<bool> {
        let id = id.as_str().to_owned();
        self.write(move |transaction| {
            transaction.run("DELETE FROM follows WHERE u = ?1", [&id])?;
            transaction.run("DELETE FROM inboxes WHERE user = ?1", [&id])?;
            notify(transaction, &ChangeNotice::people([id.as_str()]))?;
            forget_actor(transaction, &id)?;
            notify(transaction, &ChangeNotice::All)?;
            Ok(transaction.run("DELETE FROM users WHERE id = ?1", [&id])? == 1)
        })
        .await
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
        self.change_each(follows, move |transaction, (key, user)| {
            transaction.run(sql, (key.as_str(), user.as_str()))
        })
        .await
        .map(drop)
    }

    async fn find_people(
        &self,
        filter: &PeopleFilter<'_>,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let after = after.map(|after| after.as_str().to_owned());
        let (selected, of) = match *filter {
            PeopleFilter::All => ("SELECT id FROM users WHERE ?3 IS NULL AND id", None),
            PeopleFilter::Follow(key) => {
                let followers = "SELECT u FROM follows WHERE k = ?3 AND u";
                (followers, Some(key.as_str().to_owned()))
            }
            PeopleFilter::Address(address) => {
                let sharing = "SELECT id FROM users WHERE email COLLATE NOCASE IN
                                   (SELECT value FROM json_each(?3)) AND id";
                let spellings = address.spellings().into_iter();
                (
                    sharing,
                    Some(list(spellings.map(|one| one.reveal().to_owned()))),
                )
            }
            PeopleFilter::Near { point, km } => {
                return self
                    .read(move |transaction| {
                        near::find(transaction, point, km, after.as_deref(), limit)
                    })
                    .await;
            }
            PeopleFilter::Chose(choices) => {
                let choices = choices.clone();
                return self
                    .read(move |transaction| chose(transaction, &choices, after.as_deref(), limit))
                    .await;
            }
        };
        self.read(move |transaction| {
            let found = names(
                transaction,
                selected,
                of.as_deref(),
                after.as_deref(),
                limit,
            )?;
            Ok(found.iter().map(UserId::stored).collect())
        })
        .await
    }

    async fn values(&self, field: UserField) -> Result<Vec<String>> {
        let sql = match field {
            // Jumps from each zone to the next one, instead of reading the whole index.
            UserField::Zone => {
                "WITH RECURSIVE zones(tz) AS (
                    SELECT min(tz) FROM users
                    UNION ALL
                    SELECT (SELECT min(tz) FROM users WHERE tz > zones.tz) FROM zones
                        WHERE zones.tz IS NOT NULL
                ) SELECT tz FROM zones WHERE tz IS NOT NULL"
            }
            UserField::Locale => "SELECT DISTINCT locale FROM users WHERE locale IS NOT NULL",
        };
        self.read(move |transaction| transaction.all(sql, [], |row| row.get(0)))
            .await
    }

    async fn following(&self, follows: &[(FollowKey, UserId)]) -> Result<Vec<bool>> {
        self.read_each(follows, |transaction, (key, user)| {
            let sql = "SELECT 1 FROM follows WHERE k = ?1 AND u = ?2";
            let mut statement = transaction.prepare_cached(sql)?;
            Ok(statement.exists((key.as_str(), user.as_str()))?)
        })
        .await
    }

    async fn follows(
        &self,
        user: &UserId,
        after: Option<&FollowKey>,
        limit: usize,
    ) -> Result<Vec<FollowKey>> {
        let (of, after) = (user.as_str().to_owned(), after.cloned());
        self.read(move |transaction| {
            let keys = "SELECT k FROM follows WHERE u = ?3 AND k";
            let after = after.as_ref().map(FollowKey::as_str);
            let found = names(transaction, keys, Some(&of), after, limit)?;
            Ok(found.iter().map(FollowKey::stored).collect())
        })
        .await
    }
}

/// Returns the users with these choices, in ascending order after `after`, at most `limit`.
///
/// Each combination is a range of an index, in id order. No more of it is read than can be
/// returned.
fn chose(
    transaction: &Transaction<'_>,
    choices: &DueChoices,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<UserId>> {
    let sql = format!(
        "SELECT id FROM users WHERE tz IS ?1 AND hour IS ?2 AND cadence IS ?3 AND weekday IS ?4
            AND id {} ?5 ORDER BY id LIMIT ?6",
        bound(after)
    );
    let (tz, after) = (choices.tz.map(|tz| tz.name()), after.unwrap_or_default());
    let mut found: Vec<String> = Vec::new();
    for cadence in &choices.cadences {
        let cadence = cadence.map(Cadence::as_str);
        for weekday in &choices.weekdays {
            let weekday = weekday.map(|day| day.to_string());
            let values = (tz, choices.hour, cadence, weekday, after, limit as i64);
            found.extend(transaction.all(&sql, values, |row| row.get(0))?);
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found.iter().map(UserId::stored).take(limit).collect())
}

/// Returns the first column of a query, in ascending order after `after`. `of` is its third
/// parameter.
fn names(
    transaction: &Transaction<'_>,
    selected: &str,
    of: Option<&str>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>> {
    let sql = format!("{selected} {} ?1 ORDER BY 1 LIMIT ?2", bound(after));
    let (from, limit) = (after.unwrap_or_default(), limit as i64);
    transaction.all(&sql, (from, limit, of), |row| row.get(0))
}

fn put(transaction: &Transaction<'_>, user: &User) -> Result<bool> {
    let sql = "SELECT rev FROM users WHERE id = ?1";
    let stored: Option<i64> = transaction.first(sql, [user.id.as_str()], |row| row.get(0))?;
    let read = user.revision.0 as i64;
    if stored.unwrap_or_default() != read {
        return Ok(false);
    }
    write(transaction, user, read + 1)?;
    if !user.mutes.is_empty() || user.start.is_some() {
        // Feeds count muted items as read, and show nothing from before a start.
        notify(transaction, &ChangeNotice::people([user.id.as_str()]))?;
    }
    Ok(true)
}

/// Replaces a record regardless of its revision.
pub(super) fn write(transaction: &Transaction<'_>, user: &User, rev: i64) -> Result<()> {
    let mut fields = fields(&UserRecord::from_value(user))?;
    fields.insert("rev".to_owned(), rev.into());
    fields.insert("cell".to_owned(), user.loc.map(near::cell).into());
    USERS.replace(transaction, &fields)
}

fn find(transaction: &Transaction<'_>, id: &UserId) -> Result<Option<User>> {
    let error = match USERS.find::<UserRecord>(transaction, "id = ?1", [id.as_str()]) {
        Ok(mut found) => return Ok(found.pop()),
        Err(error) if error.is_outage() => return Err(error),
        Err(error) => error.to_string(),
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
