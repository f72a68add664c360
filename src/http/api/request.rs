//! A request to a route of a table: its path, its parameters and its JSON body.
//!
//! Values are decoded once and strictly, and are never more than values (P8): `limit[$ne]=1` is an
//! unknown parameter, not a condition. Unknown, repeated and malformed parameters and fields are
//! rejected by name. A list is accepted completely or not at all (P10). Start with [`ApiRequest`].

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
use super::route::{decode, matched_route, segment};
use crate::app::App;
use crate::domain::{InvalidKind, InvalidValue};
use crate::engine::ingest::MAX_REQUESTS;
use crate::engine::json_fields::ObjectVisitor;

/// The maximum number of records in one request.
const MAX_RECORDS: usize = MAX_REQUESTS;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest body that is parsed on the thread that serves requests, in bytes.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// A request, as handlers get it. Its parameters are those of its route.
pub(super) struct ApiRequest {
    pub app: Data<App>,
    pub http: HttpRequest,
    parameters: Vec<(String, String)>,
    body: Option<Payload>,
    body_limit: usize,
}

impl FromRequest for ApiRequest {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(req: &HttpRequest, payload: &mut dev::Payload) -> Self::Future {
        let app = req.app_data::<Data<App>>().cloned();
        let (Some(app), Some(route)) = (app, matched_route(req)) else {
            let detail = "something went wrong inside: the route is in no table";
            return ready(Err(Problem::new(Code::Internal, detail)));
        };
        ready(parse_query(req, route.parameters).map(|parameters| Self {
            app,
            http: req.clone(),
            parameters,
            body: Payload::from_request(req, payload).into_inner().ok(),
            body_limit: route.body_limit,
        }))
    }
}

/// Parses the query. Each parameter must be in `known` and occur at most once.
fn parse_query(req: &HttpRequest, known: &[&str]) -> Result<Vec<(String, String)>, Problem> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    for pair in req.query_string().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decode(name, true), decode(value, true)) else {
            return Err(Problem::parameter("query", "is not percent-encoded UTF-8"));
        };
        let location = format!("query parameter {name}");
        if !known.contains(&name.as_str()) {
            let why = match known {
                [] => "is not known; there are none here".to_owned(),
                known => format!("is not known; there are {}", known.join(", ")),
            };
            let invalid = InvalidValue::new("parameter", name, why);
            return Err(Problem::parameter(location, invalid.to_string()));
        }
        if parameters.iter().any(|(earlier, _)| *earlier == name) {
            let why = format!("parameter {name:?} is given twice; give it once");
            return Err(Problem::parameter(location, why));
        }
        parameters.push((name, value));
    }
    Ok(parameters)
}

/// Creates the problem for an invalid parameter value.
pub(super) fn invalid_parameter(name: &str, invalid: &InvalidValue) -> Problem {
    Problem::parameter(format!("query parameter {name}"), invalid.to_string())
}

impl ApiRequest {
    /// Parses the path segment that the route calls `{name}`.
    pub(super) fn segment<T: FromStr<Err = InvalidValue>>(&self, name: &str) -> Result<T, Problem> {
        segment(&self.http, name)
    }

    /// Returns the value of a query parameter as text; `None` if it is absent.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        parameters.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Parses the value of a query parameter; `None` if it is absent.
    pub(super) fn parameter<T: FromStr<Err = InvalidValue>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let parse = |text: &str| text.parse().map_err(|invalid| invalid_parameter(name, &invalid));
        self.text(name).map(parse).transpose()
    }

    /// Parses a number in decimal digits; `None` if the parameter is absent.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u32>, Problem> {
        let parse = |text: &str| match text.parse() {
            Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
            _ => Err(invalid_parameter(
                name,
                &InvalidValue::new(name, text, "is not a whole number"),
            )),
        };
        self.text(name).map(parse).transpose()
    }

    /// Returns the number of records per page from the parameter `limit`.
    pub(super) fn page_limit(&self, default: u32, max: u32) -> Result<usize, Problem> {
        let limit = self.number("limit")?.unwrap_or(default);
        if !(1..=max).contains(&limit) {
            let why = format!("is not from 1 to {max}");
            return Err(invalid_parameter("limit", &InvalidValue::new("limit", limit, why)));
        }
        Ok(limit as usize)
    }

    /// Returns whether the declared content type is this one, in any case.
    pub(super) fn has_content_type(&self, name: &str) -> bool {
        self.http.content_type().eq_ignore_ascii_case(name)
    }

    /// Reads a body of any content type. Rejects encoded bodies.
    pub(super) async fn read_bytes(&mut self) -> Result<Bytes, Problem> {
        match self.body.take() {
            Some(body) => read_body(&self.http, body, self.body_limit).await,
            None => Ok(Bytes::new()),
        }
    }

    /// Reads a JSON body. Rejects other content types.
    pub(super) async fn read_json(&mut self) -> Result<Bytes, Problem> {
        let kind = self.http.content_type().to_ascii_lowercase();
        if !(kind.is_empty() || kind == "application/json" || kind.ends_with("+json")) {
            let detail = format!("Content-Type {kind:?} is not JSON; send application/json");
            return Err(unsupported(detail).at("header Content-Type"));
        }
        self.read_bytes().await
    }

    /// Reads and parses one record.
    pub(super) async fn parse_one<T>(&mut self) -> Result<T, Problem>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.read_and_parse(parse_record).await
    }

    /// Reads and parses one record. An empty body means the default.
    pub(super) async fn parse_one_or_default<T>(&mut self) -> Result<T, Problem>
    where
        T: DeserializeOwned + Default + Send + 'static,
    {
        self.read_and_parse(|body| match body.trim_ascii() {
            [] => Ok(T::default()),
            body => parse_record(body),
        })
        .await
    }

    /// Reads and parses many records.
    pub(super) async fn parse_many<T>(&mut self, field: &'static str) -> Result<Vec<T>, Problem>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.read_and_parse(move |body| parse_records(body, field)).await
    }

    /// Reads and parses one record or many. Returns whether they have the form for many.
    pub(super) async fn parse_one_or_many<T>(
        &mut self,
        field: &'static str,
    ) -> Result<(Vec<T>, bool), Problem>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.read_and_parse(move |body| {
            if has_many(body, field) {
                Ok((parse_records(body, field)?, true))
            } else {
                Ok((vec![parse_record(body)?], false))
            }
        })
        .await
    }

    /// Reads and parses a JSON body. A long one is parsed on another thread, so that it does not
    /// delay the other requests of this thread.
    async fn read_and_parse<T: Send + 'static>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let body = self.read_json().await?;
        if body.len() <= MAX_INLINE_BYTES {
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
        let max = match limit >> 20 {
            0 => format!("{} KiB", limit >> 10),
            mib => format!("{mib} MiB"),
        };
        let detail = format!("the body is larger than {max}; send less at once");
        Problem::new(Code::BodyTooLarge, detail)
    };
    let content_length = headers.get(header::CONTENT_LENGTH);
    if content_length
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok())
        .is_some_and(|length| length > limit)
    {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIMEOUT, body.to_bytes_limited(limit)).await {
        Ok(Ok(Ok(bytes))) => Ok(bytes),
        Ok(Ok(Err(error))) => Err(Problem::body(format!("the body broke off: {error}"))),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => {
            let detail = format!("the body did not arrive within {BODY_TIMEOUT:?}; send it again");
            Err(Problem::new(Code::BodyTimeout, detail))
        }
    }
}

fn unsupported(detail: String) -> Problem {
    Problem::new(Code::UnsupportedMediaType, detail)
}

/// Parses one record.
fn parse_record<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    parse(body, "", PhantomData::<JsonRecord<T>>).map(|JsonRecord(record)| record)
}

/// Parses many records, as a list or under `field`: `[…]` or `{"events": […]}`. At least one, at
/// most [`MAX_RECORDS`].
fn parse_records<T: DeserializeOwned>(body: &[u8], field: &'static str) -> Result<Vec<T>, Problem> {
    let records = parse(body, field, RecordList(field, PhantomData))?;
    if records.is_empty() {
        return Err(Problem::body(format!("{field} is empty; send at least one")));
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
            json_problem(&path, &error)
        })?;
    json.end().map_err(|error| json_problem("", &error))?;
    Ok(value)
}

/// Returns whether the body has the form for many records. Text after it is ignored. An unreadable
/// body counts as one record, whose parser reports the error.
fn has_many(body: &[u8], field: &str) -> bool {
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut fields = || HashMap::<String, IgnoredAny>::deserialize(&mut json);
    body.trim_ascii_start().starts_with(b"[")
        || fields().is_ok_and(|fields| fields.contains_key(field))
}

/// Creates the problem for the record at this index of a list.
pub(super) fn record_problem(field: &str, index: usize, invalid: InvalidValue) -> Problem {
    let subfield = match invalid.kind {
        InvalidKind::Type => ".type",
        InvalidKind::Value | InvalidKind::Limit | InvalidKind::Time => "",
    };
    Problem::from(invalid).at(format!("{field}[{index}]{subfield}"))
}

/// Creates the problem for a body that cannot be parsed. `path` is that of the invalid field.
fn json_problem(path: &str, error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let why = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
    let position = format!("line {line}, column {column}");
    match (error.is_data(), path) {
        (true, "") => Problem::body(why).at(position),
        (true, path) => Problem::body(why).at(format!("{path} ({position})")),
        (false, _) => Problem::body(format!("the body is not JSON: {why}")).at(position),
    }
}

/// A record that must be a JSON object. serde's derived code would also accept an array.
struct JsonRecord<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonRecord<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

/// Deserializes records from a list, or from an object whose only field, of this name, is a list.
struct RecordList<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for RecordList<T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for RecordList<T> {
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
            records = Some(map.next_value_seed(RecordList(field, PhantomData))?);
        }
        records.ok_or_else(|| A::Error::missing_field(field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_after_many_records_is_reported() {
        for body in ["{\"events\": [1]} x", "[1] x"] {
            assert!(has_many(body.as_bytes(), "events"), "{body}");
            let parsed = parse(body.as_bytes(), "events", PhantomData::<IgnoredAny>);
            let problem = format!("{:?}", parsed.unwrap_err());
            assert!(problem.contains("not JSON: trailing characters"), "{problem}");
        }
        assert!(!has_many(b"{\"type\": \"events\"} x", "events"));
    }
}
