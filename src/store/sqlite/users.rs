//! Users, their follows and their inboxes.
//!
//! Users near a point are found by a grid over the Earth and the exact distance. Grid cells only
//! narrow the search; [`Point::distance_km`] decides. Each cell lists its users by id, so a page is
//! a merge of these lists and costs what it returns. If a circle touches more than [`MOST`] cells,
//! all users are read in id order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use async_trait::async_trait;
use rusqlite::{Row, Rows, Transaction};

use super::Sqlite;
use super::journal::forget_actor;
use super::notes::notify;
use super::rows::{Fields, RowTable, Statements as _, bound, fields, list};
use crate::domain::audience::EARTH_RADIUS_KM;
use crate::domain::{
    Address, Cadence, ChangeNotice, DueChoices, FollowKey, Id, Inbox, Point, User, UserId,
};
use crate::store::record::small::InboxRecord;
use crate::store::record::user::{UserRecord, user_with_defaults};
use crate::store::record::values::As;
use crate::store::{Directory, FollowChange, PeopleFilter, Result, UserField};

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
                let spellings = list(address.spellings().iter().map(Address::reveal));
                (sharing, Some(spellings))
            }
            PeopleFilter::Near(point, km) => {
                return self
                    .read(move |transaction| find_near(transaction, point, km, &after, limit))
                    .await;
            }
            PeopleFilter::Chose(choices) => {
                let choices = choices.clone();
                return self
                    .read(move |transaction| chose(transaction, &choices, &after, limit))
                    .await;
            }
        };
        self.read(move |transaction| {
            let found = names(transaction, selected, &of, &after, limit)?;
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
        let found = self.read(move |transaction| transaction.all(sql, [], text));
        Ok(found.await?.into_iter().flatten().collect())
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
        let of = Some(user.as_str().to_owned());
        let after = after.map(|after| after.as_str().to_owned());
        self.read(move |transaction| {
            let keys = "SELECT k FROM follows WHERE u = ?3 AND k";
            let found = names(transaction, keys, &of, &after, limit)?;
            Ok(found.iter().map(FollowKey::stored).collect())
        })
        .await
    }

    async fn inboxes(&self, users: &[UserId]) -> Result<Vec<Option<Inbox>>> {
        self.read_each(users, find_inbox).await
    }

    async fn put_inboxes(&self, inboxes: &[(Inbox, Id)]) -> Result<Vec<bool>> {
        self.change_each(inboxes, |transaction, (inbox, revision)| {
            let stored = revision_of(transaction, &inbox.user)?;
            if stored != inbox.revision {
                return Ok(stored == Some(*revision));
            }
            notify(transaction, &ChangeNotice::people([inbox.user.as_str()]))?;
            let mut record = InboxRecord::from_value(inbox);
            record.revision = Some(As::from_value(revision));
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
fn chose(
    transaction: &Transaction<'_>,
    choices: &DueChoices,
    after: &Option<String>,
    limit: usize,
) -> Result<Vec<UserId>> {
    let sql = format!(
        "SELECT id FROM users WHERE tz IS ?1 AND hour IS ?2 AND cadence IS ?3 AND weekday IS ?4
            AND id {} ?5 ORDER BY id LIMIT ?6",
        bound(after)
    );
    let tz = choices.tz.map(|tz| tz.name());
    let after = after.as_deref().unwrap_or_default();
    let mut found: Vec<String> = Vec::new();
    for cadence in &choices.cadences {
        let cadence = cadence.map(Cadence::as_str);
        for weekday in &choices.weekdays {
            let weekday = weekday.map(|day| day.to_string());
            found.extend(readable(limit, |most| {
                let values = (tz, choices.hour, cadence, &weekday, after, most);
                transaction.all(&sql, values, text)
            })?);
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found.iter().map(UserId::stored).take(limit).collect())
}

/// Returns the first column of a query, in ascending order after `after`. `of` is its third
/// parameter. Skips values that are not UTF-8. Fewer than `limit` values are the last ones.
fn names(
    transaction: &Transaction<'_>,
    selected: &str,
    of: &Option<String>,
    after: &Option<String>,
    limit: usize,
) -> Result<Vec<String>> {
    let sql = format!("{selected} {} ?1 ORDER BY 1 LIMIT ?2", bound(after));
    let from = after.as_deref().unwrap_or_default();
    readable(limit, |most| transaction.all(&sql, (from, most, of), text))
}

/// Returns at most `limit` names of a query that takes a limit, and skips those that are not UTF-8.
/// Fewer than `limit` are the last ones.
fn readable(
    limit: usize,
    query: impl Fn(i64) -> Result<Vec<Option<String>>>,
) -> Result<Vec<String>> {
    let mut most = limit;
    loop {
        let found = query(most as i64)?;
        let all = found.len();
        let mut names: Vec<String> = found.into_iter().flatten().collect();
        if names.len() >= limit || all < most {
            if names.len() < all {
                tracing::warn!("users or follows with names that are not UTF-8 are skipped");
            }
            names.truncate(limit);
            return Ok(names);
        }
        most = most.saturating_mul(2);
    }
}

/// Returns the first column, if it is a text in UTF-8.
fn text(row: &Row<'_>) -> rusqlite::Result<Option<String>> {
    Ok(row.get_ref(0)?.as_str().ok().map(str::to_owned))
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
    fields.insert("cell".to_owned(), user.loc.map(cell).into());
    USERS.replace(transaction, &fields)
}

fn find(transaction: &Transaction<'_>, id: &UserId) -> Result<Option<User>> {
    let error = match USERS.find::<UserRecord>(transaction, "id = ?1", [id.as_str()]) {
        Ok(mut found) => return Ok(found.pop()),
        Err(error) if error.is_outage() => return Err(error),
        Err(error) => error,
    };
    let mut statement = transaction.prepare_cached("SELECT * FROM users WHERE id = ?1")?;
    let mut rows = statement.query([id.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let stored = USERS.fields(row, Fields::new()).ok();
    Ok(Some(user_with_defaults(id.clone(), &error, stored)))
}

fn find_inbox(transaction: &Transaction<'_>, user: &UserId) -> Result<Option<Inbox>> {
    match INBOXES.find::<InboxRecord>(transaction, "user = ?1", [user.as_str()]) {
        Ok(mut found) => Ok(found.pop()),
        Err(error) if error.is_outage() => Err(error),
        Err(error) => {
            tracing::warn!(%error, "an inbox cannot be read; all is new");
            Ok(Some(Inbox {
                revision: revision_of(transaction, user)?,
                ..Inbox::empty(user.clone())
            }))
        }
    }
}

/// Returns the revision of the stored record; `None` if there is no record or no valid revision.
fn revision_of(transaction: &Transaction<'_>, user: &UserId) -> Result<Option<Id>> {
    let sql = "SELECT stamp FROM inboxes WHERE user = ?1";
    let stamp: Option<String> = transaction.first(sql, [user.as_str()], |row| row.get(0))?;
    Ok(stamp.and_then(|stamp| stamp.parse().ok()))
}

/// Cells per degree. Half a degree is 56 km from south to north.
const PER_DEGREE: f64 = 2.0;
/// Cells around the Earth.
const COLUMNS: i64 = 720;
/// Maximum number of cells to merge. Each is a cursor, and opening one costs as much as reading
/// about 30 users.
const MOST: usize = 1_000;
/// Margin for rounding errors in the outline of a circle, in degrees: a tenth of a millimeter.
const SLACK: f64 = 1e-9;

/// Returns the cell of a place.
fn cell(place: Point) -> i64 {
    row(place.lat()) * COLUMNS + column(place.lng()).rem_euclid(COLUMNS)
}

fn row(lat: f64) -> i64 {
    ((lat + 90.0) * PER_DEGREE).floor() as i64
}

fn column(lng: f64) -> i64 {
    ((lng + 180.0) * PER_DEGREE).floor() as i64
}

/// Returns all cells that a circle touches, and possibly a few more; `None` if there are more than
/// [`MOST`].
fn cells(center: Point, km: f64) -> Option<Vec<i64>> {
    let angle = km / EARTH_RADIUS_KM;
    let reach = angle.to_degrees() + SLACK;
    let south = (center.lat() - reach).max(-90.0);
    let north = (center.lat() + reach).min(90.0);
    // The width at the widest latitude. A circle that contains a pole spans all longitudes.
    let width = if south > -90.0 && north < 90.0 {
        let widest = angle.sin() / center.lat().to_radians().cos();
        widest.min(1.0).asin().to_degrees() + SLACK
    } else {
        180.0
    };
    let (west, mut east) = (column(center.lng() - width), column(center.lng() + width));
    east = east.min(west + COLUMNS - 1);
    let (south, north) = (row(south), row(north));
    let count = (north - south + 1) * (east - west + 1);
    if usize::try_from(count).ok()? > MOST {
        return None;
    }
    let squares = |row| (west..=east).map(move |column| row * COLUMNS + column.rem_euclid(COLUMNS));
    Some((south..=north).flat_map(squares).collect())
}

/// Returns the users within the circle in ascending order, starting after `after`, at most `limit`.
fn find_near(
    transaction: &Transaction<'_>,
    center: Point,
    km: f64,
    after: &Option<String>,
    limit: usize,
) -> Result<Vec<UserId>> {
    let (bound, from) = (bound(after), after.as_deref().unwrap_or_default());
    let (cells, compared) = match cells(center, km) {
        Some(cells) => (cells, "="),
        None => (vec![0], ">="),
    };
    let sql = format!(
        "SELECT id, lng, lat FROM users WHERE id {bound} ?1 AND cell {compared} ?2 ORDER BY id"
    );
    let statements = cells.iter().map(|_| transaction.prepare_cached(&sql));
    let mut statements: Vec<_> = statements.collect::<rusqlite::Result<_>>()?;
    let mut lists = Vec::with_capacity(cells.len());
    for (statement, cell) in statements.iter_mut().zip(&cells) {
        lists.push(statement.query((from, cell))?);
    }
    // Returns the next user of a list who is within the circle.
    let next = |list: &mut Rows<'_>| -> Result<Option<String>> {
        while let Some(row) = list.next()? {
            let (lng, lat): (Option<f64>, Option<f64>) = (row.get("lng")?, row.get("lat")?);
            let place = lng.zip(lat).and_then(|(lng, lat)| Point::new(lng, lat).ok());
            if place.is_some_and(|place| center.distance_km(place) <= km)
                && let Some(id) = text(row)?
            {
                return Ok(Some(id));
            }
        }
        Ok(None)
    };
    let mut heads = BinaryHeap::new();
    for (n, list) in lists.iter_mut().enumerate() {
        heads.extend(next(list)?.map(|user| Reverse((user, n))));
    }
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(Reverse((user, n))) = heads.pop()
    {
        found.push(UserId::stored(user));
        heads.extend(next(&mut lists[n])?.map(|user| Reverse((user, n))));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lng: f64, lat: f64) -> Point {
        Point::new(lng, lat).unwrap()
    }

    #[test]
    fn both_sides_of_the_antimeridian_share_a_cell() {
        assert_eq!(cell(at(180.0, 10.2)), cell(at(-180.0, 10.2)));
        assert_eq!(cell(at(180.0, 10.2)), cell(at(-179.6, 10.2)));
    }

    #[test]
    fn a_city_needs_a_few_cells_and_a_continent_too_many() {
        let berlin = at(13.4, 52.5);
        assert!(cells(berlin, 10.0).unwrap().len() <= 4);
        assert!(cells(berlin, 50.0).unwrap().len() <= 16);
        assert_eq!(cells(berlin, 3_000.0), None);
        assert_eq!(cells(at(0.0, 90.0), 1.0), None);
    }

    #[test]
    fn a_row_without_a_complete_place_is_skipped() {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        let cell = cell(at(13.4, 52.5));
        let rows = format!(
            "CREATE TABLE users (id TEXT, lng REAL, lat REAL, cell INTEGER);
             INSERT INTO users VALUES ('ada', NULL, 52.5, {cell}), ('ben', 13.4, 52.5, {cell})"
        );
        connection.execute_batch(&rows).unwrap();
        let transaction = connection.transaction().unwrap();

        for km in [1.0, 3_000.0] {
            let found = find_near(&transaction, at(13.4, 52.5), km, &None, 10);
            assert_eq!(found.ok(), Some(vec![UserId::stored("ben")]), "{km}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_point_in_the_circle_is_in_one_of_its_cells(
            lng in -180.0..=180.0_f64,
            lat in -90.0..=90.0_f64,
            km in 0.001..400.0_f64,
            bearing in 0.0..std::f64::consts::TAU,
            share in 0.0..=1.0_f64,
        ) {
            // The point at a share of the distance in that direction (the direct problem on a
            // sphere).
            let (angle, from) = (share * km / EARTH_RADIUS_KM, lat.to_radians());
            let to = (from.sin() * angle.cos() + from.cos() * angle.sin() * bearing.cos()).clamp(-1.0, 1.0).asin();
            let turn = (bearing.sin() * angle.sin() * from.cos()).atan2(angle.cos() - from.sin() * to.sin());
            let there = at((lng + turn.to_degrees() + 540.0).rem_euclid(360.0) - 180.0, to.to_degrees().clamp(-90.0, 90.0));
            let center = at(lng, lat);
            if let Some(cells) = cells(center, km) && center.distance_km(there) <= km {
                proptest::prop_assert!(cells.contains(&cell(there)), "{there:?}");
            }
        }
    }
}
