//! tidings: notification feeds and email digests on SQLite or MongoDB.
//!
//! At the top are the interfaces ([`cli`], [`http`]), then [`app`], which assembles the parts, and
//! the tools [`demo`] and [`operate`]. Below are the use cases ([`engine`]), their JSON ([`wire`]),
//! and I/O ([`store`], [`email`], [`render`], [`metrics`]). At the bottom are values and rules
//! ([`domain`]). Start with `docs/architecture.md`. P1 to P10 are promises in `CONTRIBUTING.md`.

#![warn(missing_docs)]

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod context;
pub mod demo;
pub mod domain;
pub mod email;
pub mod engine;
pub mod http;
pub mod ids;
pub mod metrics;
mod mutex;
pub mod operate;
pub mod private;
pub mod render;
pub mod store;
pub mod wire;
