//! Finds the users near a point, by a grid over the Earth and the exact distance.
//!
//! Grid cells only narrow the search; [`Point::distance_km`] decides. Each cell lists its users by
//! id, so a page is a merge of these lists and costs what it returns. If a circle touches more than
//! [`MOST`] cells, all users are read in id order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rusqlite::{Rows, Transaction};

use super::rows::bound;
use crate::domain::audience::EARTH_RADIUS_KM;
use crate::domain::{Point, UserId};
use crate::store::Result;

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
pub(super) fn cell(place: Point) -> i64 {
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
    let (south, north) = (
        (center.lat() - reach).max(-90.0),
        (center.lat() + reach).min(90.0),
    );
    // The width at the widest latitude. A circle that contains a pole spans all longitudes.
    let width = if south > -90.0 && north < 90.0 {
        (angle.sin() / center.lat().to_radians().cos())
            .min(1.0)
            .asin()
            .to_degrees()
            + SLACK
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
pub(super) fn find(
    transaction: &Transaction<'_>,
    center: Point,
    km: f64,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<UserId>> {
    let (bound, from) = (bound(after), after.unwrap_or_default());
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
            let place = lng
                .zip(lat)
                .and_then(|(lng, lat)| Point::new(lng, lat).ok());
            if place.is_some_and(|place| center.distance_km(place) <= km) {
                return Ok(Some(row.get("id")?));
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
            let found = find(&transaction, at(13.4, 52.5), km, None, 10);
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
