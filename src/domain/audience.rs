//! The audience of an event: named users, the followers of keys, or the users near a point.
//!
//! An audience is read page by page in the order of user ids. One user id is therefore a cursor to
//! resume from, and several audiences can be merged; see [`crate::engine::fanout`].

use serde::{Deserialize, Serialize};

use super::name::{FollowKey, InvalidValue, UserId};

/// A place on Earth in degrees, longitude first, as in GeoJSON and MongoDB (RFC 7946, 3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "[f64; 2]", into = "[f64; 2]")]
pub struct Point {
    lng: f64,
    lat: f64,
}

impl Point {
    /// Creates a point. Rejects a longitude outside -180 to 180, a latitude outside -90 to 90, and
    /// NaN.
    pub fn new(lng: f64, lat: f64) -> Result<Self, InvalidValue> {
        for (what, degrees, limit) in [("longitude", lng, 180.0), ("latitude", lat, 90.0)] {
            if !(-limit..=limit).contains(&degrees) {
                let why = format!("is not between -{limit} and {limit} degrees");
                return Err(InvalidValue::new(what, degrees, why));
            }
        }
        Ok(Self { lng, lat })
    }

    /// Returns the longitude in degrees, -180 to 180; east is positive.
    pub fn lng(self) -> f64 {
        self.lng
    }

    /// Returns the latitude in degrees, -90 to 90; north is positive.
    pub fn lat(self) -> f64 {
        self.lat
    }

    /// Returns the great-circle distance in kilometers by the haversine formula. The sphere has
    /// MongoDB's radius (6378.1 km).
    pub fn distance_km(self, other: Self) -> f64 {
        let (lat_a, lat_b) = (self.lat.to_radians(), other.lat.to_radians());
        let hav = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
        let h = hav(other.lat - self.lat) + lat_a.cos() * lat_b.cos() * hav(other.lng - self.lng);
        2.0 * EARTH_RADIUS_KM * h.sqrt().min(1.0).asin()
    }
}

/// The radius with which both stores convert kilometers to angles.
pub const EARTH_RADIUS_KM: f64 = 6378.1;

impl TryFrom<[f64; 2]> for Point {
    type Error = InvalidValue;

    fn try_from([lng, lat]: [f64; 2]) -> Result<Self, InvalidValue> {
        Self::new(lng, lat)
    }
}

impl From<Point> for [f64; 2] {
    fn from(point: Point) -> Self {
        [point.lng, point.lat]
    }
}

/// A rule that selects users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// These users, sorted and without duplicates.
    Users(Vec<UserId>),
    /// The followers of any of these keys; each user counts once.
    FollowersOf(Vec<FollowKey>),
    /// The users within `km` kilometers of the point.
    Near {
        /// The center of the circle.
        point: Point,
        /// The radius in kilometers: above 0, up to [`MAX_KM`].
        km: f64,
    },
}

/// The selected users of an event, minus the excluded ones (usually the actor).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Audience {
    /// The selected users, including the excluded ones.
    pub to: Selector,
    /// The excluded users, sorted and without duplicates, because [`Self::excludes`] uses a
    /// binary search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<UserId>,
}

/// The most users that a small audience names, and the most that it excludes. Workers claim events
/// with small audiences in larger groups.
pub const MAX_SMALL_AUDIENCE: usize = 16;
/// The most users that one event can name.
pub const MAX_USERS: usize = 100_000;
/// The most bytes of their ids. They fit into its journal entry on every store.
const MAX_USERS_BYTES: usize = 10 << 20;
/// The most users that one event can exclude. They fit into its journal entry on every store.
pub const MAX_EXCEPT: usize = 10_000;
/// The most keys whose followers one event can address.
pub const MAX_KEYS: usize = 100;

/// Rejects more than [`MAX_EXCEPT`] excluded users.
pub fn check_except(count: usize) -> Result<(), InvalidValue> {
    let why = format_args!("is more than {MAX_EXCEPT} people to leave out of one event");
    InvalidValue::check_limit("except", count, MAX_EXCEPT, why)
}

/// Half the circumference of the Earth in kilometers, rounded up.
pub const MAX_KM: f64 = 20_100.0;

impl From<Selector> for Audience {
    fn from(to: Selector) -> Self {
        Self { to, except: Vec::new() }
    }
}

impl Audience {
    /// Selects these users, each once.
    ///
    /// # Errors
    ///
    /// The list is empty, has more than [`MAX_USERS`] users, or their ids are longer than 10 MiB.
    pub fn users(users: impl IntoIterator<Item = UserId>) -> Result<Self, InvalidValue> {
        let users: Vec<_> = users.into_iter().collect();
        if users.is_empty() {
            return Err(InvalidValue::new("audience", "[]", "names no users"));
        }
        let why = format_args!(
            "is more than {MAX_USERS} people in one event; let them follow a key instead"
        );
        InvalidValue::check_limit("audience", users.len(), MAX_USERS, why)?;
        let bytes = users.iter().map(|user| user.as_str().len()).sum();
        let why = format_args!("is more than {MAX_USERS_BYTES} bytes of user ids in one event");
        InvalidValue::check_limit("audience", bytes, MAX_USERS_BYTES, why)?;
        Ok(Selector::Users(distinct(users)).into())
    }

    /// Selects the followers of these keys.
    ///
    /// # Errors
    ///
    /// The list is empty or has more than [`MAX_KEYS`] keys.
    pub fn followers_of(keys: impl IntoIterator<Item = FollowKey>) -> Result<Self, InvalidValue> {
        let keys: Vec<_> = keys.into_iter().collect();
        let why = format_args!("is not 1 to {MAX_KEYS} keys");
        if keys.is_empty() {
            return Err(InvalidValue::new("followers_of", 0, why.to_string()));
        }
        InvalidValue::check_limit("followers_of", keys.len(), MAX_KEYS, why)?;
        Ok(Selector::FollowersOf(distinct(keys)).into())
    }

    /// Selects the users within `km` kilometers of a point.
    ///
    /// # Errors
    ///
    /// The distance is not above 0, or it exceeds [`MAX_KM`].
    pub fn near(point: Point, km: f64) -> Result<Self, InvalidValue> {
        if !(km > 0.0 && km <= MAX_KM) {
            let why = format!("is not a distance above 0 and up to {MAX_KM} kilometers");
            return Err(InvalidValue::new("km", km, why));
        }
        Ok(Selector::Near { point, km }.into())
    }

    /// Checks the number of excluded users. It allows one more than [`MAX_EXCEPT`], because the
    /// list also contains the actor.
    pub fn check(&self) -> Result<(), InvalidValue> {
        check_except(self.except.len().saturating_sub(1))
    }

    /// Excludes these users as well.
    pub fn except(mut self, users: impl IntoIterator<Item = UserId>) -> Self {
        self.except.extend(users);
        self.except = distinct(self.except);
        self
    }

    /// Returns the named users; empty for any other selector.
    pub fn named_users(&self) -> &[UserId] {
        match &self.to {
            Selector::Users(users) => users,
            Selector::FollowersOf(_) | Selector::Near { .. } => &[],
        }
    }

    /// Returns whether the audience names at most [`MAX_SMALL_AUDIENCE`] users and excludes at most
    /// [`MAX_SMALL_AUDIENCE`].
    pub fn is_small(&self) -> bool {
        matches!(&self.to, Selector::Users(users) if users.len() <= MAX_SMALL_AUDIENCE)
            && self.except.len() <= MAX_SMALL_AUDIENCE
    }

    /// Returns whether this user is excluded.
    pub fn excludes(&self, user: &UserId) -> bool {
        self.except.binary_search(user).is_ok()
    }
}

/// Returns these values in ascending order, each once.
pub fn distinct<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut sorted: Vec<T> = values.into_iter().collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_users_are_deduplicated() {
        let user = |id: &str| UserId::new(id).unwrap();
        let audience =
            Audience::users([user("b"), user("a"), user("b")]).unwrap().except([user("a")]);
        assert_eq!(audience.to, Selector::Users(vec![user("a"), user("b")]));
        assert!(audience.excludes(&user("a")) && !audience.excludes(&user("b")));
    }

    #[test]
    fn an_empty_or_oversized_audience_is_rejected() {
        assert!(Audience::users([]).is_err());
        assert!(Audience::followers_of([]).is_err());
        let many = (0..=MAX_USERS).map(|n| UserId::new(n.to_string()).unwrap());
        assert!(Audience::users(many).unwrap_err().to_string().contains("100001"));
    }

    #[test]
    fn coordinates_and_distances_have_ranges() {
        assert!(Point::new(181.0, 0.0).is_err() && Point::new(0.0, f64::NAN).is_err());
        let (berlin, paris) =
            (Point::new(13.405, 52.52).unwrap(), Point::new(2.3522, 48.8566).unwrap());
        assert!((berlin.distance_km(paris) - 878.0).abs() < 2.0);
        for km in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Audience::near(berlin, km).is_err(), "{km}");
        }
    }
}
