//! The program's sentences, told on both stores.

mod archive;
mod archive_beside;
mod archive_shapes;
mod batch_designs;
mod batch_machine;
mod batch_races;
mod batches;
mod braking;
mod digest;
mod doubt;
mod explain;
mod fanout;
mod import;
mod lateness;
mod links;
mod old_writers;
mod people;
mod poison;
mod rehearsal;
mod sending;
mod simulation;
mod stolen_links;
mod suppressed;
mod unknown;
mod worker;
mod years;
