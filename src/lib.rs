//! tidings: notification feeds and e-mail digests on MongoDB, one collection a day, or on SQLite.
//!
//! From the top: [`cli`] is the command line, [`http`] the API and the pages for users; [`app`]
//! puts everything together, and [`demo`] is an application to try it with; [`operate`] is for
//! operators; [`engine`] has the use cases, and [`wire`] the JSON they answer with; [`store`]
//! keeps, [`email`] sends, [`render`] writes emails and pages, [`metrics`] counts; [`domain`] has
//! the values and rules that all of them use. Imports point down. Six flows show the way through:
//! writing ([`engine::ingest`], [`engine::fanout`]), reading ([`engine::feed`]), digests
//! ([`engine::digest`], [`engine::delivery`]), batches ([`engine::batches`]), feedback
//! ([`engine::feedback`]) and the archive ([`engine::archive`]). `docs/architecture.md` describes
//! them.

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
pub mod metrics;
pub mod operate;
pub mod private;
pub mod render;
pub mod store;
pub mod wire;
