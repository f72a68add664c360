//! What leaves the process as JSON, over HTTP and out of `--json`: one set of types.
//!
//! Each thing has one shape. The engine answers with these types, `http::api` sends them, `cli`
//! prints them. `openapi.json` describes the bodies that go over HTTP, and tests check every answer
//! against it. A value's own JSON (ids, days, states) is the domain's. One file a noun; start with
//! [`event`] and [`feed`].

use serde::Serialize;

use crate::domain::UserId;

pub mod archive;
pub mod batch;
pub mod delivery;
pub(crate) mod demo;
pub mod digest;
pub mod doctor;
pub mod event;
pub mod explanation;
pub mod export;
pub mod feed;
pub mod feedback;
pub mod import;
pub mod key;
pub mod object;
pub(crate) mod preview;
pub mod problem;
pub mod round;
pub mod simulation;
pub mod status;
pub mod suppression;
pub mod transfer;
pub mod trouble;
pub mod unknown;
pub mod user;

/// What the API is, for programs: OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Many records were taken.
#[derive(Debug, Serialize)]
pub struct Taken {
    /// How many: all that were sent.
    pub taken: usize,
}

/// The process is alive, or can work.
#[derive(Debug, Serialize)]
pub struct Health {
    /// `ok`; anything else is a problem.
    pub status: &'static str,
}

/// What a person had pending was marked as dealt with.
#[derive(Debug, Serialize)]
pub struct Flushed<'a> {
    /// Whose events they were.
    pub user: &'a UserId,
    /// How many events no digest tells of any more.
    pub flushed: u64,
}
