//! The HTTP API and the pages for users.

pub mod api;
pub mod pages;
