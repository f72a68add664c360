//! Reads and parses JSON bodies, and reports the location of each error.
//!
//! Unknown fields are errors. A list is accepted completely or not at all (P10).

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{self, Bytes, Payload};
use actix_web::{HttpMessage, HttpRequest};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_path_to_error::{Deserializer as PathDeserializer, Track};

use super::problem::{Code, Problem};
use crate::domain::{Invalid, Kind};
use crate::engine::ingest::notify::MAX_REQUESTS;

/// The largest body of one record, in bytes.
pub(super) const LIMIT: usize = 1 << 20;
/// The largest body of many records, in bytes.
pub(super) const BULK_LIMIT: usize = 16 << 20;
/// The maximum number of records in one request.
pub(super) const MAX_RECORDS: usize = MAX_REQUESTS;
/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads a JSON body of at most `limit` bytes. Rejects other content types.
pub(super) async fn read(
    req: &HttpRequest,
    payload: Payload,
    limit: usize,
) -> Result<Bytes, Problem> {
    let kind = req.content_type().to_ascii_lowercase();
    let json = kind.is_empty() || kind == "application/json" || kind.ends_with("+json");
    if !json {
        let detail = format!("Content-Type {kind:?} is not JSON; send application/json");
        return Err(Problem::new(Code::UnsupportedMediaType, detail).at("header Content-Type"));
    }
    bytes(req, payload, limit).await
}

/// Reads a body of any content type, of at most `limit` bytes. Rejects encoded bodies.
pub(super) async fn bytes(
    req: &HttpRequest,
    payload: Payload,
    limit: usize,
) -> Result<Bytes, Problem> {
    if let Some(encoding) = req.headers().get(header::CONTENT_ENCODING) {
        let detail = format!("Content-Encoding {encoding:?} is not read; send the body as it is");
        return Err(Problem::new(Code::UnsupportedMediaType, detail).at("header Content-Encoding"));
    }
    let too_large = || {
        let detail = format!(
            "the body is larger than {} MiB; send less at once",
            limit >> 20
        );
        Problem::new(Code::BodyTooLarge, detail)
    };
    let announced = req.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    match tokio::time::timeout(PATIENCE, payload.to_bytes_limited(limit)).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(error))) => Err(Problem::body(format!("the body broke off: {error}"))),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            let detail = format!("the body did not come within {PATIENCE:?}; send it again");
            Err(Problem::new(Code::BodyTimeout, detail))
        }
    }
}

/// The size from which a body is parsed on a blocking thread, in bytes.
const LONG: usize = 64 << 10;

/// Runs the parser of a body. A long body is parsed on a blocking thread, because parsing it would
/// delay other requests.
pub(super) async fn aside<T: Send + 'static>(
    body: Bytes,
    reading: impl FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    if body.len() < LONG {
        return reading(&body);
    }
    match web::block(move || reading(&body)).await {
        Ok(read) => read,
        Err(stopped) => Err(Problem::stopped(&stopped)),
    }
}

/// Parses one record.
pub(super) fn one<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    parse(body, "", PhantomData::<Record<T>>).map(|Record(record)| record)
}

/// Parses many records, as a list or under `field`: `[…]` or `{"events": […]}`. At least one, at
/// most [`MAX_RECORDS`].
pub(super) fn many<T: DeserializeOwned>(
    body: &[u8],
    field: &'static str,
) -> Result<Vec<T>, Problem> {
    let records = parse(body, field, Many(field, PhantomData))?;
    if records.is_empty() {
        return Err(Problem::body(format!(
            "{field} is empty; send at least one"
        )));
    }
    Ok(records)
}

/// Parses the whole body. Errors in a bare list are located under `field`.
fn parse<'de, S: DeserializeSeed<'de>>(
    body: &'de [u8],
    field: &str,
    seed: S,
) -> Result<S::Value, Problem> {
    if body.trim_ascii().is_empty() {
        return Err(Problem::body("the body is empty; send JSON"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut track = Track::new();
    let value = seed
        .deserialize(PathDeserializer::new(&mut json, &mut track))
        .map_err(|error| {
            let path = match track.path().to_string() {
                root if root == "." => String::new(),
                path if path.starts_with('[') => format!("{field}{path}"),
                path => path,
            };
            problem(&path, &error)
        })?;
    json.end().map_err(|error| problem("", &error))?;
    Ok(value)
}

/// Returns whether the body has the form for many records.
pub(super) fn is_many(body: &[u8], field: &str) -> bool {
    struct Holds<'a>(&'a str);
    impl<'de> Visitor<'de> for Holds<'_> {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
            let mut holds = false;
            while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
                holds |= name == self.0;
            }
            Ok(holds)
        }
    }
    match body.trim_ascii_start().first() {
        Some(b'[') => true,
        // An unreadable body counts as one record, whose parser reports the error.
        _ => serde_json::Deserializer::from_slice(body)
            .deserialize_map(Holds(field))
            .unwrap_or(false),
    }
}

/// Creates the problem for the record at this index of a list.
pub(super) fn of_record(field: &str, index: usize, why: Invalid) -> Problem {
    let part = match why.kind {
        Kind::Type => ".type",
        Kind::Value | Kind::Limit | Kind::Time => "",
    };
    Problem::from(why).at(format!("{field}[{index}]{part}"))
}

fn problem(path: &str, error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let why = text
        .strip_suffix(&format!(" at line {line} column {column}"))
        .unwrap_or(&text);
    let (detail, place) = match error.is_data() {
        true => (why.to_owned(), path),
        false => (format!("the body is not JSON: {why}"), ""),
    };
    let place = match place {
        "" => format!("line {line}, column {column}"),
        path => format!("{path} (line {line}, column {column})"),
    };
    Problem::body(detail).at(place)
}

/// A record that must be a JSON object. serde's derived code would also accept an array.
struct Record<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Record<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Record<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Record<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Record)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

struct Many<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for Many<T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Many<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list, or an object with the field `{}`", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let field = self.0;
        let mut records = Vec::new();
        while let Some(Record(record)) = list.next_element()? {
            if records.len() == MAX_RECORDS {
                let why = format!("{field} are more than {MAX_RECORDS}; send fewer at once");
                return Err(A::Error::custom(why));
            }
            records.push(record);
        }
        Ok(records)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<T>, A::Error> {
        let field = self.0;
        let mut records = None;
        while let Some(name) = map.next_key::<String>()? {
            if name != field {
                let why = format!("unknown field `{name}`, expected `{field}`");
                return Err(A::Error::custom(why));
            }
            if records.is_some() {
                return Err(A::Error::duplicate_field(field));
            }
            records = Some(map.next_value_seed(Many(field, PhantomData))?);
        }
        records.ok_or_else(|| A::Error::missing_field(field))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{self, ThreadId};

    use super::*;

    /// Returns the thread that parses a body of this many bytes.
    async fn read_on(bytes: usize) -> ThreadId {
        let body = Bytes::from(vec![b' '; bytes]);
        aside(body, |_| Ok(thread::current().id())).await.unwrap()
    }

    #[actix_web::test]
    async fn a_long_body_is_parsed_on_another_thread() {
        let here = thread::current().id();

        assert_eq!(read_on(LONG - 1).await, here);
        assert_ne!(read_on(LONG).await, here);
    }
}
