//! All tests that need more than one module, in one binary: it links once and its support code is
//! compiled once.
//!
//! The rule: a test is a sentence, makes everything it needs, and leaves nothing behind. Begin with
//! [`support`] for what tests are built from, and [`store_laws`] for what every store must keep.

// Nothing of a program is used from outside.
#![allow(unreachable_pub)]

mod api;
mod archive_faults;
mod circles;
mod cli;
mod crash;
mod cycle;
mod doctor;
mod failover;
mod fresh_reads;
mod house;
mod joins;
mod mail;
mod mongo_alike;
mod mongo_faults;
mod mongo_leftovers;
mod mongo_plans;
mod services;
mod sqlite_processes;
mod stale;
mod store_laws;
mod support;
mod transfer;
mod upgrades;
