//! The types of all JSON that leaves the process: over HTTP, and as `--json` output.
//!
//! Each thing has one shape. The engine returns these types, `http::api` sends them, and `cli`
//! prints them. `openapi.json` describes the HTTP bodies, and tests check every answer against it.
//! The domain defines the JSON of values such as ids, days and states. Start with [`event`] and
//! [`feed`].

use serde::Serialize;

use crate::domain::UserId;

pub mod archive;
pub mod batch;
pub mod delivery;
pub mod diagnosis;
pub mod event;
pub mod explanation;
pub mod feed;
pub mod key;
pub(crate) mod local_pages;
pub mod run_report;
pub mod status;
pub mod suppression;
pub mod transfer;
pub mod user;

/// The description of the API in OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Returns the JSON of an answer.
pub(crate) fn to_json(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).expect("the types of this module always serialize to JSON")
}

/// Formats a count with its noun, such as `1 event` or `2 events`.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// The answer to an accepted list of records.
#[derive(Debug, Serialize)]
pub struct AcceptedCount {
    /// The number of records: all that the request contained.
    #[serde(rename = "taken")]
    pub accepted: usize,
}

/// The answer of a health check that succeeded.
#[derive(Debug, Serialize)]
pub struct Health {
    /// Always `ok`. A failure is a problem instead.
    pub status: &'static str,
}

/// The result of flushing a user's pending events.
#[derive(Debug, Serialize)]
pub struct Flushed<'a> {
    /// The user.
    pub user: &'a UserId,
    /// The number of events that were flushed. No digest includes them any more.
    pub flushed: u64,
}

/// Why a request failed.
#[derive(Debug, Serialize)]
pub(crate) struct ProblemDetails<'a> {
    pub(crate) r#type: &'static str,
    pub(crate) title: &'a str,
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) location: Option<&'a str>,
}
