//! A person's record as a document.
//!
//! The rule: preferences are read as they stand or not at all (P7): a record with a route or
//! cadence that cannot be read is an error, never a default. Event types are values in a list, not
//! field names, so they may hold dots and dollars. Kept by [`super::directory`].

use std::collections::BTreeMap;

use bson::raw::cstr;
use bson::{Bson, Document, RawDocumentBuf, doc};
use chrono::{DateTime, Utc, Weekday};
use sha2::{Digest, Sha256};

use super::record::{Record, date, geo_json, put};
use crate::domain::user::{DigestPreference, Revision, TypePreference, window};
use crate::domain::{Address, Cadence, EventType, User, UserId, duration};
use crate::store::Result;

pub(super) fn record_of(user: &User) -> Document {
    let mut record = doc! {"_id": user.id.as_str()};
    put(
        &mut record,
        "email",
        user.email.as_ref().map(Address::reveal),
    );
    put(&mut record, "name", user.name.as_deref());
    record.insert("confirmed", user.confirmed);
    put(&mut record, "tz", user.tz.map(|tz| tz.name()));
    put(&mut record, "locale", user.locale.as_deref());
    put(&mut record, "loc", user.loc.map(geo_json));
    let mut digest = Document::new();
    put(
        &mut digest,
        "cadence",
        user.digest.cadence.map(Cadence::as_str),
    );
    let weekday = user
        .digest
        .weekday
        .map(|day| day.to_string().to_lowercase());
    put(&mut digest, "weekday", weekday);
    put(&mut digest, "hour", user.digest.hour.map(i32::from));
    put(&mut digest, "since", user.digest.since.map(date));
    record.insert("digest", digest);
    let types = user.types.iter().map(|(kind, chosen)| {
        let mut choice =
            doc! {"t": kind.as_str(), "route": chosen.route.as_str(), "since": date(chosen.since)};
        put(&mut choice, "window", chosen.window.map(duration::show));
        choice
    });
    record.insert("types", types.map(Bson::from).collect::<Vec<_>>());
    put(&mut record, "suppressed", user.suppressed.map(date));
    put(&mut record, "unsubscribed", user.unsubscribed.map(date));
    record
}

/// A record and what it is known by: its content. So whoever writes the same again, as after an
/// answer that was lost, finds that it stands.
pub(super) fn revised(user: &User) -> bson::error::Result<(RawDocumentBuf, i64)> {
    let mut record = RawDocumentBuf::try_from(&record_of(user))?;
    let hash = Sha256::digest(record.as_bytes());
    let mut rev = [0; 8];
    rev.copy_from_slice(&hash[..8]);
    // Never what stands for no revision.
    let rev = i64::from_le_bytes(rev) | 1;
    record.append(cstr!("rev"), rev);
    Ok((record, rev))
}

pub(super) fn user_of(record: &Document) -> Result<User> {
    let user = Record::new("user", record);
    let id = UserId::stored(user.needs("_id", user.text("_id")?)?);
    let digest = match user.record("digest")? {
        None => DigestPreference::default(),
        Some(digest) => DigestPreference {
            cadence: digest.parsed::<Cadence>("cadence")?,
            weekday: match digest.text("weekday")? {
                None => None,
                Some(text) => {
                    let day = text.parse::<Weekday>();
                    Some(day.map_err(|_| digest.corrupt("weekday", "it is no weekday"))?)
                }
            },
            hour: match digest.count("hour")? {
                Some(hour @ 0..24) => Some(hour as u8),
                Some(_) => return Err(digest.corrupt("hour", "it is not 0 to 23")),
                None => None,
            },
            since: digest.time("since")?,
        },
    };
    Ok(User {
        id,
        // An address that is none cannot be written to, which is all there is to know about it.
        email: user
            .text("email")?
            .and_then(|email| Address::stored(email).ok()),
        name: user.text("name")?.map(str::to_owned),
        confirmed: user.flag("confirmed")?.unwrap_or(false),
        tz: user.parsed("tz")?,
        locale: user.text("locale")?.map(str::to_owned),
        loc: user.place("loc")?,
        digest,
        types: types_of(&user)?,
        suppressed: suppressed_of(&user)?,
        unsubscribed: user.time("unsubscribed")?,
        revision: Revision(user.long("rev")?.unwrap_or_default() as u64),
    })
}

fn types_of(user: &Record<'_>) -> Result<BTreeMap<EventType, TypePreference>> {
    let mut types = BTreeMap::new();
    let wrong = || user.corrupt("types", "it holds something that is no document");
    // Other hands may have written `{T: {route, since}}`.
    let by_name = user.record("types").ok().flatten();
    let named = by_name
        .iter()
        .flat_map(|types| types.fields())
        .map(|(t, chosen)| (Some(t), chosen));
    let list = match by_name {
        Some(_) => None,
        None => user.list("types")?,
    };
    for (name, chosen) in named.chain(list.into_iter().flatten().map(|chosen| (None, chosen))) {
        let chosen = Record::new("a choice of types", chosen.as_document().ok_or_else(wrong)?);
        let kind = match name {
            Some(name) => name,
            None => chosen.needs("t", chosen.text("t")?)?,
        };
        let kind = EventType::stored(kind);
        let preference = TypePreference {
            route: chosen.needs("route", chosen.parsed("route")?)?,
            since: chosen.time("since")?.unwrap_or(DateTime::UNIX_EPOCH),
            window: match chosen.text("window")? {
                None => None,
                Some(text) => Some(window(text).map_err(|why| chosen.corrupt("window", why))?),
            },
        };
        types.insert(kind, preference);
    }
    Ok(types)
}

/// Whoever is suppressed without a date is suppressed since ever.
fn suppressed_of(user: &Record<'_>) -> Result<Option<DateTime<Utc>>> {
    match user.flag("suppressed") {
        Ok(Some(true)) => Ok(Some(DateTime::UNIX_EPOCH)),
        Ok(_) => Ok(None),
        Err(_) => user.time("suppressed"),
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::domain::{Point, Route};
    use crate::store::Error;

    fn whole() -> User {
        let time = DateTime::from_timestamp_millis(1_398_124_800_123).unwrap();
        let preference = |route| TypePreference {
            window: (route == Route::Batch).then(|| TimeDelta::minutes(90)),
            ..TypePreference::new(route, time)
        };
        User {
            email: Some(Address::new("ada@example.org").unwrap()),
            name: Some("Ada".into()),
            confirmed: true,
            tz: Some(chrono_tz::Pacific::Apia),
            locale: Some("en-GB".into()),
            loc: Some(Point::new(-0.1, 51.5).unwrap()),
            digest: DigestPreference {
                cadence: Some(Cadence::Weekly),
                weekday: Some(Weekday::Wed),
                hour: Some(23),
                since: Some(time),
            },
            types: Route::ALL
                .map(|route| {
                    (
                        EventType::stored(format!("$a.{route:?}")),
                        preference(route),
                    )
                })
                .into(),
            suppressed: Some(time),
            unsubscribed: Some(time),
            ..User::new(UserId::stored("$ne"))
        }
    }

    #[test]
    fn a_person_is_read_as_written() {
        for user in [whole(), User::new(UserId::stored("0"))] {
            assert_eq!(user_of(&record_of(&user)).unwrap(), user);
        }
    }

    #[test]
    fn a_choice_that_cannot_be_read_is_an_error_that_names_it() {
        let broken = [
            doc! {"_id": "a", "digest": {"cadence": "sometimes"}},
            doc! {"_id": "a", "digest": {"hour": 24}},
            doc! {"_id": "a", "digest": {"weekday": "x"}},
            doc! {"_id": "a", "digest": "never"},
            doc! {"_id": "a", "types": [{"t": "T", "route": "maybe"}]},
            doc! {"_id": "a", "types": ["T"]},
            doc! {"_id": "a", "types": {"T": {"route": "batch", "window": "soon"}}},
            doc! {"_id": "a", "types": {"T": {"route": "batch", "window": 3600}}},
            doc! {"_id": "a", "confirmed": "yes"},
        ];
        for record in broken {
            let error = user_of(&record).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{record}: {error}");
        }
    }

    #[test]
    fn records_of_other_hands_are_read() {
        let record = doc! {
            "_id": "a", "email": "nobody", "confirmed": Bson::Null, "suppressed": true, "loc": [1, 2.5], "digest": {"weekday": "mon"}
        };
        let user = user_of(&record).unwrap();
        assert_eq!((user.email, user.confirmed), (None, false));
        assert_eq!(user.suppressed, Some(DateTime::UNIX_EPOCH));
        assert_eq!(user.loc, Some(Point::new(1.0, 2.5).unwrap()));
        assert_eq!(user.digest.weekday, Some(Weekday::Mon));
        let by_name = user_of(&doc! {"_id": "a", "types": {"T": {"route": "never"}}}).unwrap();
        let chosen = by_name.types[&EventType::stored("T")];
        assert_eq!((chosen.route, chosen.window), (Route::Never, None));
        let slow = doc! {"_id": "a", "types": {"T": {"route": "batch", "window": "60m"}}};
        let slow = user_of(&slow).unwrap().types[&EventType::stored("T")];
        assert_eq!(slow.window, Some(TimeDelta::hours(1)));
    }
}
