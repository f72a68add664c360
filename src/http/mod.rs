//! The HTTP API, and the public pages for users.

pub mod api;
pub mod pages;
