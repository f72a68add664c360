//! Accepts events, objects and retractions.

pub mod notify;
pub mod objects;
pub mod retract;
