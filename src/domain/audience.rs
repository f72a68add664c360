//! Whom an event concerns: named people, the followers of keys, or everybody near a point.
//!
//! The rule: an audience is resolved page by page in the order of user ids, so that one id is a
//! resumable cursor and audiences can be merged; see [`crate::engine::fanout`].

use serde::{Deserialize, Serialize};

use super::name::{FollowKey, Invalid, UserId};

/// A place on Earth, in degrees: longitude first, as GeoJSON and MongoDB have it (RFC 7946, 3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "[f64; 2]", into = "[f64; 2]")]
pub struct Point {
    lng: f64,
    lat: f64,
}

impl Point {
    /// Refuses a longitude outside -180 to 180 degrees, a latitude outside -90 to 90, and NaN.
    pub fn new(lng: f64, lat: f64) -> Result<Self, Invalid> {
        if !(-180.0..=180.0).contains(&lng) {
            return Err(Invalid::new(
                "longitude",
                lng,
                "is not between -180 and 180 degrees",
            ));
        }
        if !(-90.0..=90.0).contains(&lat) {
            return Err(Invalid::new(
                "latitude",
                lat,
                "is not between -90 and 90 degrees",
            ));
        }
        Ok(Self { lng, lat })
    }

    /// Longitude in degrees, -180 to 180; east is positive.
    pub fn lng(self) -> f64 {
        self.lng
    }

    /// Latitude in degrees, -90 to 90; north is positive.
    pub fn lat(self) -> f64 {
        self.lat
    }

    /// Great-circle distance in kilometers, on a sphere of MongoDB's radius (6378.1 km), by the
    /// haversine formula.
    pub fn distance_km(self, other: Self) -> f64 {
        let (lat_a, lat_b) = (self.lat.to_radians(), other.lat.to_radians());
        let half = |degrees: f64| (degrees.to_radians() / 2.0).sin().powi(2);
        let h = half(other.lat - self.lat) + lat_a.cos() * lat_b.cos() * half(other.lng - self.lng);
        2.0 * EARTH_RADIUS_KM * h.sqrt().min(1.0).asin()
    }
}

/// The radius with which both stores turn kilometers into angles.
pub const EARTH_RADIUS_KM: f64 = 6378.1;

impl TryFrom<[f64; 2]> for Point {
    type Error = Invalid;

    fn try_from([lng, lat]: [f64; 2]) -> Result<Self, Invalid> {
        Self::new(lng, lat)
    }
}

impl From<Point> for [f64; 2] {
    fn from(point: Point) -> Self {
        [point.lng, point.lat]
    }
}

/// Who is meant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// These people; sorted and each once.
    Users(Vec<UserId>),
    /// Who follows any of these keys; each person once.
    FollowersOf(Vec<FollowKey>),
    /// Who lives within `km` kilometers of the point.
    Near {
        /// The center of the circle.
        point: Point,
        /// The radius in kilometers: above 0, up to [`MAX_KM`].
        km: f64,
    },
}

/// Who is meant, and who is left out of it (usually whoever did it).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Audience {
    /// Who is meant, before anybody is left out.
    pub to: Selector,
    /// Who is left out; ascending and each once, as [`Self::leaves_out`] searches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<UserId>,
}

/// An audience that names so many people, and leaves out no more, is small.
pub const SMALL: usize = 16;
/// The most people that can be named in one event.
pub const MAX_USERS: usize = 100_000;
/// The most people that can be left out of one event: they fit into its journal entry on every
/// store.
pub const MAX_EXCEPT: usize = 10_000;
/// The most keys whose followers one event can go to.
pub const MAX_KEYS: usize = 100;

/// Refuses to leave out more than [`MAX_EXCEPT`] people.
pub fn check_except(count: usize) -> Result<(), Invalid> {
    if count <= MAX_EXCEPT {
        return Ok(());
    }
    let why = format!("is more than {MAX_EXCEPT} people to leave out of one event");
    Err(Invalid::limit("except", count, why))
}

/// The furthest two places on Earth can be apart, rounded up, in kilometers.
pub const MAX_KM: f64 = 20_100.0;

impl Audience {
    /// These people, each once; refuses nobody, and a list of more than [`MAX_USERS`].
    pub fn users(users: impl IntoIterator<Item = UserId>) -> Result<Self, Invalid> {
        let mut users: Vec<_> = users.into_iter().collect();
        if users.is_empty() {
            return Err(Invalid::new("audience", "[]", "names nobody"));
        }
        if users.len() > MAX_USERS {
            let why = format!(
                "is more than {MAX_USERS} people in one event; let them follow a key instead"
            );
            return Err(Invalid::limit("audience", users.len(), why));
        }
        users.sort_unstable();
        users.dedup();
        Ok(Self {
            to: Selector::Users(users),
            except: Vec::new(),
        })
    }

    /// The followers of these keys, each key once; refuses no keys, and a list of more than
    /// [`MAX_KEYS`].
    pub fn followers_of(keys: impl IntoIterator<Item = FollowKey>) -> Result<Self, Invalid> {
        let mut keys: Vec<_> = keys.into_iter().collect();
        let why = format!("is not 1 to {MAX_KEYS} keys");
        if keys.is_empty() {
            return Err(Invalid::new("followers_of", 0, why));
        }
        if keys.len() > MAX_KEYS {
            return Err(Invalid::limit("followers_of", keys.len(), why));
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(Self {
            to: Selector::FollowersOf(keys),
            except: Vec::new(),
        })
    }

    /// Everybody within this distance; refuses one that is not above 0, or above [`MAX_KM`].
    pub fn near(point: Point, km: f64) -> Result<Self, Invalid> {
        if !(km > 0.0 && km <= MAX_KM) {
            return Err(Invalid::new(
                "km",
                km,
                format!("is not a distance above 0 and up to {MAX_KM} kilometers"),
            ));
        }
        Ok(Self {
            to: Selector::Near { point, km },
            except: Vec::new(),
        })
    }

    /// What the type cannot say: that not too many are left out. One is whoever did it, who is
    /// named elsewhere.
    pub fn check(&self) -> Result<(), Invalid> {
        check_except(self.except.len().saturating_sub(1))
    }

    /// The same without these people.
    pub fn except(mut self, users: impl IntoIterator<Item = UserId>) -> Self {
        self.except.extend(users);
        self.except.sort_unstable();
        self.except.dedup();
        self
    }

    /// The people it names; none where it says otherwise who is meant.
    pub fn named(&self) -> &[UserId] {
        match &self.to {
            Selector::Users(users) => users,
            Selector::FollowersOf(_) | Selector::Near { .. } => &[],
        }
    }

    /// Whether it names its people, and neither them nor those left out are more than [`SMALL`].
    pub fn is_small(&self) -> bool {
        let names = matches!(self.to, Selector::Users(_));
        names && self.named().len() <= SMALL && self.except.len() <= SMALL
    }

    /// Whether this person is among those left out.
    pub fn leaves_out(&self, user: &UserId) -> bool {
        self.except.binary_search(user).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_people_are_each_meant_once() {
        let user = |id: &str| UserId::new(id).unwrap();
        let audience = Audience::users([user("b"), user("a"), user("b")])
            .unwrap()
            .except([user("a")]);
        assert_eq!(audience.to, Selector::Users(vec![user("a"), user("b")]));
        assert!(audience.leaves_out(&user("a")) && !audience.leaves_out(&user("b")));
    }

    #[test]
    fn an_audience_of_nobody_or_too_many_is_refused() {
        assert!(Audience::users([]).is_err());
        assert!(Audience::followers_of([]).is_err());
        let many = (0..=MAX_USERS).map(|n| UserId::new(n.to_string()).unwrap());
        assert!(
            Audience::users(many)
                .unwrap_err()
                .to_string()
                .contains("100001")
        );
    }

    #[test]
    fn places_and_distances_have_ranges() {
        assert!(Point::new(181.0, 0.0).is_err() && Point::new(0.0, f64::NAN).is_err());
        let (berlin, paris) = (
            Point::new(13.405, 52.52).unwrap(),
            Point::new(2.3522, 48.8566).unwrap(),
        );
        assert!((berlin.distance_km(paris) - 878.0).abs() < 2.0);
        for km in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Audience::near(berlin, km).is_err(), "{km}");
        }
    }
}
