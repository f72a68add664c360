//! tidings: notification feeds and e-mail digests on MongoDB, one collection a day.

pub mod clock;
pub mod config;
pub mod domain;
pub mod mail;
pub mod render;
pub mod store;
