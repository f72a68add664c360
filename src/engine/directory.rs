//! Users: their records, their import and export, and their erasure.

pub mod erasure;
pub mod export;
pub(crate) mod fields;
pub mod import;
pub mod people;
pub mod starts;
pub mod unknown;
pub mod unreadable;
