//! Parses the path segments and the query parameters of requests.
//!
//! A value is decoded once and strictly, and is never more than a value (P8): `limit[$ne]=1` is an
//! unknown parameter, not a condition. Unknown, repeated and malformed parameters are rejected by
//! name (P10).

use std::future::{Ready, ready};
use std::str::FromStr;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};

use super::asked::Asked;
use super::problem::Problem;
use crate::domain::Invalid;

/// Parses the path segment that the route calls `{name}`. It may contain any percent-encoded
/// character, including slashes.
pub(super) fn segment<T: FromStr<Err = Invalid>>(
    req: &HttpRequest,
    name: &str,
) -> Result<T, Problem> {
    let location = || format!("path segment {name}");
    let text = raw_segment(req, name)
        .and_then(|raw| decode(raw, false))
        .ok_or_else(|| Problem::parameter(location(), "is not percent-encoded UTF-8"))?;
    text.parse()
        .map_err(|invalid: Invalid| Problem::parameter(location(), invalid.to_string()))
}

/// Returns the segment undecoded, because the router's decoder changes invalid UTF-8.
fn raw_segment<'a>(req: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let pattern = Asked::path_of(req)?;
    let is_it = |part: &str| {
        part.strip_prefix('{')
            .and_then(|part| part.strip_suffix('}'))
            == Some(name)
    };
    let index = pattern.split('/').position(is_it)?;
    req.uri().path().split('/').nth(index)
}

/// Decodes percent-encoded UTF-8; `None` if it is malformed.
fn decode(raw: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                (high * 16 + low) as u8
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The parameters of a query. The route supports all of them.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query. Each parameter must be in `known` and occur at most once.
    pub(super) fn of(req: &HttpRequest, known: &[&str]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in req
            .query_string()
            .split('&')
            .filter(|pair| !pair.is_empty())
        {
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
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                let twice = format!("parameter {name:?} is given twice; give it once");
                return Err(Problem::parameter(location, twice));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    /// Parses the value of a parameter; `None` if it is absent.
    pub(super) fn get<T: FromStr<Err = Invalid>>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, Problem> {
        self.text(name)
            .map(|text| text.parse().map_err(|invalid| refuse(name, &invalid)))
            .transpose()
    }

    /// Parses a number in decimal digits; `None` if the parameter is absent.
    pub(super) fn number(&self, name: &'static str) -> Result<Option<u32>, Problem> {
        let read = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            match text.parse() {
                Ok(number) if digits => Ok(number),
                _ => Err(refuse(
                    name,
                    &Invalid::new(name, text, "is not a whole number"),
                )),
            }
        };
        self.text(name).map(read).transpose()
    }

    /// Returns the number of records per page from the parameter `limit`: 1 to 1,000, by default
    /// 100.
    pub(super) fn page_limit(&self) -> Result<usize, Problem> {
        let limit = self.number("limit")?.unwrap_or(100);
        if !(1..=1_000).contains(&limit) {
            let why = "is not from 1 to 1000";
            return Err(refuse("limit", &Invalid::new("limit", limit, why)));
        }
        Ok(limit as usize)
    }

    /// Returns the value of a parameter as text; `None` if it is absent.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Creates the problem for an invalid parameter value.
pub(super) fn refuse(name: &str, invalid: &Invalid) -> Problem {
    Problem::parameter(format!("query parameter {name}"), invalid.to_string())
}

/// An extractor for routes without parameters. Rejects every parameter.
pub(super) struct NoQuery;

impl FromRequest for NoQuery {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(req: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Query::of(req, &[]).map(|_| Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_once() {
        assert_eq!(decode("a%2Fb%2541+", false).unwrap(), "a/b%41+");
        assert_eq!(decode("%C3%A9+%2B", true).unwrap(), "é +");
        for garbled in ["%", "%4", "%zz", "%+1", "%FF", "100%"] {
            assert_eq!(decode(garbled, true), None, "{garbled}");
        }
    }
}
