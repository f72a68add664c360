//! The HTTP API: its routes, their permissions and the server.
//!
//! A handler parses its [`request`], calls one use case, and returns a type of [`crate::wire`].
//! Every error becomes a [`problem`]. Each file lists its routes in a table beside its handlers.
//! [`crate::wire::OPENAPI`] describes them except those of the demo, and a test compares the two.
//! Start with `events` and `feed`.

mod batches;
mod caching;
mod callers;
mod demo;
mod events;
mod feed;
mod hooks;
mod listener;
mod local_only;
mod monitoring;
mod objects;
mod preview_server;
pub mod problem;
mod rate_limit;
pub(in crate::http) mod request;
pub(in crate::http) mod route;
mod server;
mod stream;
mod suppressions;
mod users;

pub use listener::{ListeningSocket, listen};
pub use monitoring::MetricsServer;
pub use route::{Route, RouteTable};
pub use server::{BoundServer, bind};

/// The routes under `/v1`. They are matched in this order, so the most frequent come first.
pub const V1_ROUTES: &[RouteTable] = &[
    feed::ROUTES,
    stream::ROUTES,
    events::ROUTES,
    users::ROUTES,
    objects::ROUTES,
    batches::ROUTES,
    suppressions::ROUTES,
];

/// The routes that need no key.
pub const OPEN_ROUTES: &[RouteTable] = &[monitoring::HEALTH, caching::ROUTES, hooks::ROUTES];

/// The routes for Prometheus.
pub const METRICS_ROUTES: &[RouteTable] = &[monitoring::METRICS];

/// The routes that exist only while a demo is served.
pub const DEMO_ROUTES: &[RouteTable] = &[demo::ROUTES];
