//! Users, their follows and their inboxes.
//!
//! Users near a point are found by a grid over the Earth and the exact distance. Grid cells only
//! narrow the search; [`Point::distance_km`] decides. Each cell lists its users by id, so a page is
//! a merge of these lists, and its cost depends on the users that it returns. If a circle touches
//! more than [`MAX_CELLS`] cells, all users are read in id order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use async_trait::async_trait;
use rusqlite::{Row, Rows, Transaction};

use super::Sqlite;
use super::journal::forget_actor;
use super::notes::notify;
use super::rows::{Fields, RowTable, Statements as _, json_list, lower_bound_operator, to_fields};
use crate::domain::audience::EARTH_RADIUS_KM;
use crate::domain::{
    Address, Cadence, ChangeNotice, DueUserFilter, FollowKey, Id, Inbox, Point, User, UserId,
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

/// Returns the first column, if it is text in UTF-8.
fn first_as_text(row: &Row<'_>) -> rusqlite::Result<Option<String>> {
    Ok(row.get_ref(0)?.as_str().ok().map(str::to_owned))
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

/// Grid cells per degree. Half a degree is 56 km from south to north.
const CELLS_PER_DEGREE: f64 = 2.0;
/// Number of grid cells around the Earth.
const GRID_COLUMNS: i64 = 720;
/// Maximum number of cells to merge. Each is a cursor, and opening one costs as much as reading
/// about 30 users.
const MAX_CELLS: usize = 1_000;
/// Margin for rounding errors in the outline of a circle, in degrees: a tenth of a millimeter.
const MARGIN_DEGREES: f64 = 1e-9;

/// Returns the cell of a point.
fn cell(point: Point) -> i64 {
    grid_row(point.lat()) * GRID_COLUMNS + grid_column(point.lng()).rem_euclid(GRID_COLUMNS)
}

fn grid_row(lat: f64) -> i64 {
    ((lat + 90.0) * CELLS_PER_DEGREE).floor() as i64
}

fn grid_column(lng: f64) -> i64 {
    ((lng + 180.0) * CELLS_PER_DEGREE).floor() as i64
}

/// Returns all cells that a circle touches, and possibly a few more; `None` if there are more than
/// [`MAX_CELLS`].
fn cells(center: Point, km: f64) -> Option<Vec<i64>> {
    let angle = km / EARTH_RADIUS_KM;
    let height = angle.to_degrees() + MARGIN_DEGREES;
    let south = (center.lat() - height).max(-90.0);
    let north = (center.lat() + height).min(90.0);
    // The width at the widest latitude. A circle that contains a pole spans all longitudes.
    let width = if south > -90.0 && north < 90.0 {
        let widest = angle.sin() / center.lat().to_radians().cos();
        widest.min(1.0).asin().to_degrees() + MARGIN_DEGREES
    } else {
        180.0
    };
    let west = grid_column(center.lng() - width);
    let east = grid_column(center.lng() + width).min(west + GRID_COLUMNS - 1);
    let (first_row, last_row) = (grid_row(south), grid_row(north));
    let count = (last_row - first_row + 1) * (east - west + 1);
    if usize::try_from(count).ok()? > MAX_CELLS {
        return None;
    }
    let cells_of_row =
        |row| (west..=east).map(move |column| row * GRID_COLUMNS + column.rem_euclid(GRID_COLUMNS));
    Some((first_row..=last_row).flat_map(cells_of_row).collect())
}

/// Returns the users within the circle in ascending order, starting after `after`, at most `limit`.
fn find_near(
    transaction: &Transaction<'_>,
    center: Point,
    km: f64,
    after: &Option<String>,
    limit: usize,
) -> Result<Vec<UserId>> {
    let (id_operator, from) = (lower_bound_operator(after), after.as_deref().unwrap_or_default());
    let (cells, cell_operator) = match cells(center, km) {
        Some(cells) => (cells, "="),
        // `cell >= 0` selects all users with a point.
        None => (vec![0], ">="),
    };
    let sql = format!(
        "SELECT id, lng, lat FROM users
         WHERE id {id_operator} ?1 AND cell {cell_operator} ?2 ORDER BY id"
    );
    let mut statements = cells
        .iter()
        .map(|_| transaction.prepare_cached(&sql))
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut cursors = Vec::with_capacity(cells.len());
    for (statement, cell) in statements.iter_mut().zip(&cells) {
        cursors.push(statement.query((from, cell))?);
    }
    // The next user of each cursor. Popping the heap merges the cursors in id order.
    let mut next_users = BinaryHeap::new();
    for (n, cursor) in cursors.iter_mut().enumerate() {
        next_users.extend(next_within(cursor, center, km)?.map(|user| Reverse((user, n))));
    }
    let mut users = Vec::new();
    while users.len() < limit
        && let Some(Reverse((user, n))) = next_users.pop()
    {
        users.push(UserId::stored(user));
        next_users.extend(next_within(&mut cursors[n], center, km)?.map(|user| Reverse((user, n))));
    }
    Ok(users)
}

/// Returns the next user of a cursor who is within the circle.
fn next_within(cursor: &mut Rows<'_>, center: Point, km: f64) -> Result<Option<String>> {
    while let Some(row) = cursor.next()? {
        let (lng, lat): (Option<f64>, Option<f64>) = (row.get("lng")?, row.get("lat")?);
        let point = lng.zip(lat).and_then(|(lng, lat)| Point::new(lng, lat).ok());
        if point.is_some_and(|point| center.distance_km(point) <= km)
            && let Some(id) = first_as_text(row)?
        {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lng: f64, lat: f64) -> Point {
        Point::new(lng, lat).unwrap()
    }

    #[test]
    fn both_sides_of_the_antimeridian_share_a_cell() {
        assert_eq!(cell(point(180.0, 10.2)), cell(point(-180.0, 10.2)));
        assert_eq!(cell(point(180.0, 10.2)), cell(point(-179.6, 10.2)));
    }

    #[test]
    fn a_city_needs_a_few_cells_and_a_continent_too_many() {
        let berlin = point(13.4, 52.5);
        assert!(cells(berlin, 10.0).unwrap().len() <= 4);
        assert!(cells(berlin, 50.0).unwrap().len() <= 16);
        assert_eq!(cells(berlin, 3_000.0), None);
        assert_eq!(cells(point(0.0, 90.0), 1.0), None);
    }

    #[test]
    fn a_row_without_a_complete_point_is_skipped() {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        let cell = cell(point(13.4, 52.5));
        let rows = format!(
            "CREATE TABLE users (id TEXT, lng REAL, lat REAL, cell INTEGER);
             INSERT INTO users VALUES ('ada', NULL, 52.5, {cell}), ('ben', 13.4, 52.5, {cell})"
        );
        connection.execute_batch(&rows).unwrap();
        let transaction = connection.transaction().unwrap();

        for km in [1.0, 3_000.0] {
            let users = find_near(&transaction, point(13.4, 52.5), km, &None, 10);
            assert_eq!(users.ok(), Some(vec![UserId::stored("ben")]), "{km}");
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
            let (angle, lat1) = (share * km / EARTH_RADIUS_KM, lat.to_radians());
            let sin_lat2 = lat1.sin() * angle.cos() + lat1.cos() * angle.sin() * bearing.cos();
            let lat2_radians = sin_lat2.clamp(-1.0, 1.0).asin();
            let y = bearing.sin() * angle.sin() * lat1.cos();
            let x = angle.cos() - lat1.sin() * lat2_radians.sin();
            let (lng2, lat2) = (lng + y.atan2(x).to_degrees(), lat2_radians.to_degrees());
            let destination =
                point((lng2 + 540.0).rem_euclid(360.0) - 180.0, lat2.clamp(-90.0, 90.0));
            let center = point(lng, lat);
            if let Some(cells) = cells(center, km) && center.distance_km(destination) <= km {
                proptest::prop_assert!(cells.contains(&cell(destination)), "{destination:?}");
            }
        }
    }
}
