//! The operators' tools: to inspect an installation and to try out changes.

pub mod doctor;
pub mod dry_run;
pub mod explain;
pub mod lookups;
pub mod machine;
pub mod open;
pub mod preview;
pub mod scrape;
pub mod simulate;
pub mod status;
pub mod transfer;
