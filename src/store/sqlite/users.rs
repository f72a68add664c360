//! Users, their follows and their inboxes.

use async_trait::async_trait;
use rusqlite::Transaction;

use super::Sqlite;
use super::coordination::notify;
use super::journal::forget_actor;
use super::rows::{
    Fields, RowTable, Statements as _, first_as_text, json_list, lower_bound_operator, to_fields,
};
use super::users_near_point::{cell, find_near};
use crate::domain::{
    Address, Cadence, ChangeNotice, DueUserFilter, FollowKey, Id, Inbox, User, UserId,
};
use crate::store::record::small::InboxRecord;
use crate::store::record::user::{UserRecord, user_with_defaults};
use crate::store::record::values::StoredForm;
use crate::store::{Directory, FollowChange, Result, UserField, UserFilter};

pub(super) const USERS: RowTable = RowTable {
    name: "users",
    columns: "id=_id email name confirmed:flag tz locale brand lng=loc.lng lat=loc.lat cell
        cadence=digest.cadence weekday=digest.weekday hour=digest.hour digest_since=digest.since
        types:json mutes:json quiet:json suppressed unsubscribed start rev preferences:rest",
};

pub(super) const INBOXES: RowTable =
    RowTable { name: "inboxes", columns: "user=_id stamp changed days:json" };

#[async_trait]
impl Directory for Sqlite {
    async fn put_users(&self, users: &[User]) -> Result<Vec<bool>> {
        self.change_each(users, put_user).await
    }

    async fn users(&self, ids: &[UserId]) -> Result<Vec<Option<User>>> {
        self.read_each(ids, find_user).await
    }

    async fn delete_user(&self, id: &UserId) -> Result<bool> {
        let id = id.as_str().to_owned();
        self.write(move |transaction| {
            transaction.run("DELETE FROM follows WHERE u = ?1", [&id])?;
            transaction.run("DELETE FROM inboxes WHERE user = ?1", [&id])?;
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

    async fn find_users(
        &self,
        filter: &UserFilter<'_>,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let after = after.map(|after| after.as_str().to_owned());
        // The queries end with the column that `ids_after` compares with `after`.
        let (query, argument) = match *filter {
            UserFilter::All => ("SELECT id FROM users WHERE ?3 IS NULL AND id", None),
            UserFilter::Follow(key) => {
                let followers = "SELECT u FROM follows WHERE k = ?3 AND u";
                (followers, Some(key.as_str().to_owned()))
            }
            UserFilter::Address(address) => {
                let with_address = "SELECT id FROM users WHERE email COLLATE NOCASE IN
                                   (SELECT value FROM json_each(?3)) AND id";
                let spellings = json_list(address.spellings().iter().map(Address::reveal));
                (with_address, Some(spellings))
            }
            UserFilter::Near(point, km) => {
                return self
                    .read(move |transaction| find_near(transaction, point, km, &after, limit))
                    .await;
            }
            UserFilter::Choices(choices) => {
                let choices = choices.clone();
                return self
                    .read(move |transaction| find_by_choices(transaction, &choices, &after, limit))
                    .await;
            }
        };
        self.read(move |transaction| {
            let ids = ids_after(transaction, query, &argument, &after, limit)?;
            Ok(ids.iter().map(UserId::stored).collect())
        })
        .await
    }

    async fn values(&self, field: UserField) -> Result<Vec<String>> {
        let sql = match field {
            // Looks up the zone after each zone, instead of reading the whole index.
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
        let values =
            self.read(move |transaction| transaction.query_all(sql, [], first_as_text)).await?;
        Ok(values.into_iter().flatten().collect())
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
        let user = Some(user.as_str().to_owned());
        let after = after.map(|after| after.as_str().to_owned());
        self.read(move |transaction| {
            let query = "SELECT k FROM follows WHERE u = ?3 AND k";
            let keys = ids_after(transaction, query, &user, &after, limit)?;
            Ok(keys.iter().map(FollowKey::stored).collect())
        })
        .await
    }

    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
        self.read_each(users, find_inbox).await
    }

    async fn put_inboxes(&self, inboxes: &[(Inbox, Id)]) -> Result<Vec<bool>> {
        self.change_each(inboxes, |transaction, (inbox, revision)| {
            let stored = inbox_revision(transaction, &inbox.user)?;
            if stored != inbox.revision {
                return Ok(stored == Some(*revision));
            }
            notify(transaction, &ChangeNotice::users([inbox.user.as_str()]))?;
            let mut record = InboxRecord::from_value(inbox);
            record.revision = Some(StoredForm::from_value(revision));
            INBOXES.replace(transaction, &record)?;
            Ok(true)
        })
        .await
    }
}

/// Returns the users with these choices, in ascending order after `after`, at most `limit`.
///
/// Each combination is a range of an index, in id order. No more of it is read than can be
/// returned.
fn find_by_choices(
    transaction: &Transaction<'_>,
    choices: &DueUserFilter,
    after: &Option<String>,
    limit: usize,
) -> Result<Vec<UserId>> {
    let sql = format!(
        "SELECT id FROM users WHERE tz IS ?1 AND hour IS ?2 AND cadence IS ?3 AND weekday IS ?4
            AND id {} ?5 ORDER BY id LIMIT ?6",
        lower_bound_operator(after)
    );
    let tz = choices.tz.map(|tz| tz.name());
    let after = after.as_deref().unwrap_or_default();
    let mut ids: Vec<String> = Vec::new();
    for cadence in &choices.cadences {
        let cadence = cadence.map(Cadence::as_str);
        for weekday in &choices.weekdays {
            let weekday = weekday.map(|day| day.to_string());
            ids.extend(read_until_limit(limit, |row_limit| {
                let values = (tz, choices.hour, cadence, &weekday, after, row_limit);
                transaction.query_all(&sql, values, first_as_text)
            })?);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids.iter().map(UserId::stored).take(limit).collect())
}

/// Returns the ids that a query selects, in ascending order after `after`. The query ends with the
/// column to compare, and `argument` is its third parameter. Skips ids that are not UTF-8. Fewer
/// than `limit` ids are the last ones.
fn ids_after(
    transaction: &Transaction<'_>,
    query: &str,
    argument: &Option<String>,
    after: &Option<String>,
    limit: usize,
) -> Result<Vec<String>> {
    let sql = format!("{query} {} ?1 ORDER BY 1 LIMIT ?2", lower_bound_operator(after));
    let from = after.as_deref().unwrap_or_default();
    read_until_limit(limit, |row_limit| {
        transaction.query_all(&sql, (from, row_limit, argument), first_as_text)
    })
}

/// Runs a query with a row limit, and raises the limit until the result has `limit` ids besides
/// those that are not UTF-8 (`None`). Fewer than `limit` ids are the last ones.
fn read_until_limit(
    limit: usize,
    query: impl Fn(i64) -> Result<Vec<Option<String>>>,
) -> Result<Vec<String>> {
    let mut row_limit = limit;
    loop {
        let rows = query(row_limit as i64)?;
        let row_count = rows.len();
        let mut ids: Vec<String> = rows.into_iter().flatten().collect();
        if ids.len() >= limit || row_count < row_limit {
            if ids.len() < row_count {
                tracing::warn!("users or follows with names that are not UTF-8 are skipped");
            }
            ids.truncate(limit);
            return Ok(ids);
        }
        row_limit = row_limit.saturating_mul(2);
    }
}

/// Replaces a user whose revision is unchanged. Returns whether it was.
fn put_user(transaction: &Transaction<'_>, user: &User) -> Result<bool> {
    let sql = "SELECT rev FROM users WHERE id = ?1";
    let stored: Option<i64> = transaction.query_first(sql, [user.id.as_str()], |row| row.get(0))?;
    let expected = user.revision.0 as i64;
    if stored.unwrap_or_default() != expected {
        return Ok(false);
    }
    replace_user(transaction, user, expected + 1)?;
    if !user.mutes.is_empty() || user.start.is_some() {
        // Feeds count muted items as read, and show nothing from before a start.
        notify(transaction, &ChangeNotice::users([user.id.as_str()]))?;
    }
    Ok(true)
}

/// Replaces a user regardless of its revision.
pub(super) fn replace_user(transaction: &Transaction<'_>, user: &User, rev: i64) -> Result<()> {
    let mut fields = to_fields(&UserRecord::from_value(user))?;
    fields.insert("rev".to_owned(), rev.into());
    fields.insert("cell".to_owned(), user.loc.map(cell).into());
    USERS.replace(transaction, &fields)
}

fn find_user(transaction: &Transaction<'_>, id: &UserId) -> Result<Option<User>> {
    let error = match USERS.find_one::<UserRecord>(transaction, "id = ?1", [id.as_str()]) {
        Err(error) if !error.is_outage() => error,
        result => return result,
    };
    let mut statement = transaction.prepare_cached("SELECT * FROM users WHERE id = ?1")?;
    let mut rows = statement.query([id.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let fields = USERS.read_fields(row, Fields::new()).ok();
    Ok(Some(user_with_defaults(id.clone(), &error, fields)))
}

fn find_inbox(transaction: &Transaction<'_>, user: &UserId) -> Result<Option<Inbox>> {
    match INBOXES.find_one::<InboxRecord>(transaction, "user = ?1", [user.as_str()]) {
        Err(error) if !error.is_outage() => {
            tracing::warn!(%error, "an inbox cannot be read; all its items count as new");
            let revision = inbox_revision(transaction, user)?;
            Ok(Some(Inbox { revision, ..Inbox::empty(user.clone()) }))
        }
        result => result,
    }
}

/// Returns the stored revision; `None` if there is no record or no valid revision.
fn inbox_revision(transaction: &Transaction<'_>, user: &UserId) -> Result<Option<Id>> {
    let sql = "SELECT stamp FROM inboxes WHERE user = ?1";
    let stored: Option<String> = transaction.query_first(sql, [user.as_str()], |row| row.get(0))?;
    Ok(stored.and_then(|revision| revision.parse().ok()))
}
