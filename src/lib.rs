//! tidings: notification feeds and e-mail digests on MongoDB, one collection a day, or on SQLite.
//!
//! From the top: [`cli`] is the command line, [`api`] the HTTP face, [`web`] the pages for people;
//! [`app`] puts everything together, and [`demo`] is an application to try it with; [`services`]
//! are the use cases, and [`wire`] the JSON they answer with; [`store`] keeps, [`mail`] sends,
//! [`render`] makes mails, [`probe`] sees us as the world does, [`metrics`] counts; [`domain`] is
//! what all of them speak of. Imports point down. Six walks show the way through: writing
//! ([`services::notify`], [`services::fanout`]), reading ([`services::feed`]), digests
//! ([`services::digest`], [`services::mailing`]), batches ([`services::batches`]), feedback
//! ([`services::feedback`]) and the archive ([`services::archive`]). `docs/architecture.md` has the
//! floors and the walks.

#![warn(missing_docs)]

pub mod api;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod domain;
pub mod mail;
pub mod metrics;
pub mod private;
pub mod probe;
pub mod render;
pub mod services;
pub mod store;
pub mod web;
pub mod wire;
