//! What operators use to look at a running installation and to try out changes.

pub mod doctor;
pub mod explain;
pub mod health;
pub mod preview;
pub mod probe;
pub mod rehearsal;
pub mod scrape;
pub mod send_test;
pub mod simulate;
pub mod status;
pub mod transfer;
