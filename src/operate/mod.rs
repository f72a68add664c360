//! The operators' tools: to inspect an installation and to try out changes.

pub mod dns_and_web;
pub mod doctor;
pub mod dry_run;
pub mod explain;
pub mod machine;
pub mod metrics_text;
pub mod open;
pub mod preview;
pub mod send_test;
pub mod simulate;
pub mod status;
pub mod transfer;
