//! Finds users near a point, by a grid over the Earth and the exact distance.
//!
//! Grid cells only narrow the search; [`Point::distance_km`] decides. Each cell lists its users by
//! id, so a page is a merge of these lists, and its cost depends on the users that it returns. If a
//! circle touches more than [`MAX_CELLS`] cells, all users are read in id order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rusqlite::{Rows, Transaction};

use super::rows::{first_as_text, lower_bound_operator};
use crate::domain::audience::EARTH_RADIUS_KM;
use crate::domain::{Point, UserId};
use crate::store::Result;

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
pub(super) fn cell(point: Point) -> i64 {
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
pub(super) fn find_near(
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
