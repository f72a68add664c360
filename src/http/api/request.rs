//! A request to a route of a table: its path, its parameters and its JSON body.
//!
//! Values are decoded once and strictly, and are never more than values (P8): `limit[$ne]=1` is an
//! unknown parameter, not a condition. Unknown, repeated and malformed parameters and fields are
//! rejected by name. A list is accepted completely or not at all (P10). Start with [`Call`].

use std::collections::HashMap;
use std::fmt;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use actix_web::dev;
use actix_web::http::header;
use actix_web::web::{self, Bytes, Data, Payload};
use actix_web::{FromRequest, HttpMessage, HttpRequest};
use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess,
    Visitor,
};
use serde_path_to_error::{Deserializer as PathDeserializer, Track};

use super::problem::{Code, Problem};
use super::route::{decode, matched, segment};
use crate::app::App;
use crate::domain::{Invalid, NameErrorKind};
use crate::engine::ingest::MAX_REQUESTS;
use crate::engine::users::json_fields::Fields;

/// The maximum number of records in one request.
const MAX_RECORDS: usize = MAX_REQUESTS;
/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest body that is parsed on the thread that serves requests, in bytes.
const PARSED_HERE: usize = 64 << 10;

/// A request, as handlers get it. Its parameters are those of its route.
pub(super) struct Call {
    pub app: Data<App>,
    pub req: HttpRequest,
    parameters: Vec<(String, String)>,
    body: Option<Payload>,
    body_limit: usize,
}

impl FromRequest for Call {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(req: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let (app, route) = (req.app_data::<Data<App>>(), matched(req));
        let (Some(app), Some(route)) = (app.cloned(), route) else {
            let detail = "something went wrong inside: the route is in no table";
            return ready(Err(Problem::new(Code::Internal, detail)));
        };
        ready(parameters(req, route.parameters).map(|parameters| Self {
            app,
            req: req.clone(),
            parameters,
            body: Payload::from_request(req, payload).into_inner().ok(),
            body_limit: route.body_limit,
        }))
    }
}

/// Parses the query. Each parameter must be in `known` and occur at most once.
fn parameters(req: &HttpRequest, known: &[&str]) -> Result<Vec<(String, String)>, Problem> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    let pairs = req.query_string().split('&');
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let garbled = || Problem::parameter("query", "is not percent-encoded UTF-8");
        let name = decode(name, true).ok_or_else(garbled)?;
        let value = decode(value, true).ok_or_else(garbled)?;
        let location = format!("query parameter {name}");
        if !known.contains(&name.as_str()) {
            let known = match known {
                [] => "there are none here".to_owned(),
                known => format!("there are {}", known.join(", ")),
            };
            let name = Invalid::new("parameter", name, format!("is not known; {known}"));
            return Err(Problem::parameter(location, name.to_string()));
        }
        if parameters.iter().any(|(earlier, _)| *earlier == name) {
            let twice = format!("parameter {name:?} is given twice; give it once");
            return Err(Problem::parameter(location, twice));
        }
        parameters.push((name, value));
    }
    Ok(parameters)
}

/// Creates the problem for an invalid parameter value.
pub(super) fn refuse(name: &str, invalid: &Invalid) -> Problem {
    Problem::parameter(format!("query parameter {name}"), invalid.to_string())
}

impl Call {
    /// Parses the path segment that the route calls `{name}`.
    pub(super) fn segment<T: FromStr<Err = Invalid>>(&self, name: &str) -> Result<T, Problem> {
        segment(&self.req, name)
    }

    /// Returns the value of a query parameter as text; `None` if it is absent.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Parses the value of a query parameter; `None` if it is absent.
    pub(super) fn parameter<T: FromStr<Err = Invalid>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let parse = |text: &str| text.parse().map_err(|invalid| refuse(name, &invalid));
        self.text(name).map(parse).transpose()
    }

    /// Parses a number in decimal digits; `None` if the parameter is absent.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u32>, Problem> {
        let parse = |text: &str| match text.parse() {
            Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
            _ => {
                let invalid = Invalid::new(name, text, "is not a whole number");
                Err(refuse(name, &invalid))
            }
        };
        self.text(name).map(parse).transpose()
    }

    /// Returns the number of records per page from the parameter `limit`.
    pub(super) fn page_limit(&self, default: u32, max: u32) -> Result<usize, Problem> {
        let limit = self.number("limit")?.unwrap_or(default);
        if !(1..=max).contains(&limit) {
            let why = format!("is not from 1 to {max}");
            return Err(refuse("limit", &Invalid::new("limit", limit, why)));
        }
        Ok(limit as usize)
    }

    /// Returns whether the declared content type is this one, in any case.
    pub(super) fn has_content_type(&self, name: &str) -> bool {
        self.req.content_type().eq_ignore_ascii_case(name)
    }

    /// Reads a body of any content type. Rejects encoded bodies.
    pub(super) async fn bytes(&mut self) -> Result<Bytes, Problem> {
        match self.body.take() {
            Some(body) => read_body(&self.req, body, self.body_limit).await,
            None => Ok(Bytes::new()),
        }
    }

    /// Reads a JSON body. Rejects other content types.
    pub(super) async fn json(&mut self) -> Result<Bytes, Problem> {
        let kind = self.req.content_type().to_ascii_lowercase();
        if !(kind.is_empty() || kind == "application/json" || kind.ends_with("+json")) {
            let detail = format!("Content-Type {kind:?} is not JSON; send application/json");
            return Err(unsupported(detail).at("header Content-Type"));
        }
        self.bytes().await
    }

    /// Reads one record.
    pub(super) async fn one<T: DeserializeOwned + Send + 'static>(&mut self) -> Result<T, Problem> {
        self.parsed(one).await
    }

    /// Reads one record. An empty body means the default.
    pub(super) async fn one_if_any<T>(&mut self) -> Result<T, Problem>
    where
        T: DeserializeOwned + Default + Send + 'static,
    {
        self.parsed(|body| match body.trim_ascii() {
            [] => Ok(T::default()),
            body => one(body),
        })
        .await
    }

    /// Reads many records.
    pub(super) async fn many<T>(&mut self, field: &'static str) -> Result<Vec<T>, Problem>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.parsed(move |body| many(body, field)).await
    }

    /// Reads one record or many. Returns whether they have the form for many.
    pub(super) async fn one_or_many<T>(
        &mut self,
        field: &'static str,
    ) -> Result<(Vec<T>, bool), Problem>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.parsed(move |body| match is_many(body, field) {
            true => Ok((many(body, field)?, true)),
            false => Ok((vec![one(body)?], false)),
        })
        .await
    }

    /// Reads and parses a JSON body. A long one is parsed on another thread, so that it does not
    /// delay the other requests of this thread.
    async fn parsed<T: Send + 'static>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let body = self.json().await?;
        if body.len() <= PARSED_HERE {
            return parse(&body);
        }
        let parsed = web::block(move || parse(&body)).await;
        parsed.unwrap_or_else(|stopped| Err(Problem::internal(&stopped)))
    }
}

/// Reads a body of at most `limit` bytes. Rejects encoded bodies.
pub(in crate::http) async fn read_body(
    req: &HttpRequest,
    body: Payload,
    limit: usize,
) -> Result<Bytes, Problem> {
    let headers = req.headers();
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING) {
        let detail = format!("Content-Encoding {encoding:?} is not read; send the body as it is");
        return Err(unsupported(detail).at("header Content-Encoding"));
    }
    let too_large = || {
        let most = match limit >> 20 {
            0 => format!("{} KiB", limit >> 10),
            mib => format!("{mib} MiB"),
        };
        let detail = format!("the body is larger than {most}; send less at once");
        Problem::new(Code::BodyTooLarge, detail)
    };
    let announced = headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    match tokio::time::timeout(PATIENCE, body.to_bytes_limited(limit)).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(error))) => Err(Problem::body(format!("the body broke off: {error}"))),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            let detail = format!("the body did not come within {PATIENCE:?}; send it again");
            Err(Problem::new(Code::BodyTimeout, detail))
        }
    }
}

fn unsupported(detail: String) -> Problem {
    Problem::new(Code::UnsupportedMediaType, detail)
}

/// Parses one record.
fn one<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    parse(body, "", PhantomData::<JsonRecord<T>>).map(|JsonRecord(record)| record)
}

/// Parses many records, as a list or under `field`: `[…]` or `{"events": […]}`. At least one, at
/// most [`MAX_RECORDS`].
fn many<T: DeserializeOwned>(body: &[u8], field: &'static str) -> Result<Vec<T>, Problem> {
    let records = parse(body, field, Many(field, PhantomData))?;
    if records.is_empty() {
        let why = format!("{field} is empty; send at least one");
        return Err(Problem::body(why));
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
    let value =
        seed.deserialize(PathDeserializer::new(&mut json, &mut track)).map_err(|error| {
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

/// Returns whether the body has the form for many records. Text after it is ignored. An unreadable
/// body counts as one record, whose parser reports the error.
fn is_many(body: &[u8], field: &str) -> bool {
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut fields = || HashMap::<String, IgnoredAny>::deserialize(&mut json);
    body.trim_ascii_start().starts_with(b"[")
        || fields().is_ok_and(|fields| fields.contains_key(field))
}

/// Creates the problem for the record at this index of a list.
pub(super) fn of_record(field: &str, index: usize, why: Invalid) -> Problem {
    let part = match why.kind {
        NameErrorKind::Type => ".type",
        NameErrorKind::Value | NameErrorKind::Limit | NameErrorKind::Time => "",
    };
    Problem::from(why).at(format!("{field}[{index}]{part}"))
}

fn problem(path: &str, error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let why = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
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
struct JsonRecord<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonRecord<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
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
        while let Some(JsonRecord(record)) = list.next_element()? {
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
    use super::*;

    #[test]
    fn text_behind_many_records_is_reported_as_such() {
        for body in ["{\"events\": [1]} x", "[1] x"] {
            assert!(is_many(body.as_bytes(), "events"), "{body}");
            let problem = parse(body.as_bytes(), "events", PhantomData::<IgnoredAny>);
            let problem = format!("{:?}", problem.err().unwrap());
            assert!(problem.contains("not JSON: trailing characters"), "{problem}");
        }
        assert!(!is_many(b"{\"type\": \"events\"} x", "events"));
    }
}
