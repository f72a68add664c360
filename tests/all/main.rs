//! All integration tests in one binary, so that it links once and compiles its support code once.
//!
//! A test has a sentence as its name, creates all data that it needs, and leaves nothing behind.
//! Start with [`support`] for the fixtures, and [`store_laws`] for the contract of both stores.

// No other crate uses this binary.
#![allow(unreachable_pub)]

mod api;
mod archive_faults;
mod circles;
mod cli;
mod crash;
mod cycle;
mod deploy;
mod doctor;
mod failover;
mod fresh_reads;
mod house;
mod joins;
mod mail;
mod mongo_alike;
mod mongo_faults;
mod mongo_plans;
mod prose;
mod services;
mod sqlite_processes;
mod stale;
mod store_laws;
mod support;
mod transfer;
mod upgrades;
