//! tidings: notification feeds and e-mail digests on MongoDB, one collection a day.
//!
//! Floors, from the top: [`api`] is the HTTP face, [`web`] the pages for people; [`app`] puts
//! everything together; [`services`] are the program's sentences, and [`wire`] the JSON they answer
//! with; [`store`] keeps, [`mail`] sends, [`render`] makes mails, [`probe`] sees us as the world
//! does; [`domain`] is what all of them speak of. Imports point down. Four walks show the way
//! through: writing ([`services::notify`], [`services::fanout`]), reading ([`services::feed`]),
//! mailing ([`services::digest`], [`services::mailing`]) and forgetting ([`services::archive`]).

#![warn(missing_docs)]

pub mod api;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod mail;
pub mod private;
pub mod probe;
pub mod render;
pub mod services;
pub mod store;
pub mod web;
pub mod wire;
