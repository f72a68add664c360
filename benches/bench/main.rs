//! Measures the performance claims of the documentation. Run it with `scripts/bench`, which starts
//! the servers.
//!
//! Each argument names a part: `fanout`, `fanout-standalone`, `merge`, `standing`, `accept`, `day`,
//! `digest`, `mailing`, `ticks`, `cache-large`, `cache-small`, `archive`, `feeds`, `ingest`,
//! `batches` or `postgres`. `joins` and `burst` each run one part of `batches`.

// Items of a binary are never reachable from outside.
#![allow(unreachable_pub)]

mod archive;
mod batches;
mod day;
mod digest;
mod fanout;
mod feeds;
mod ingest;
mod mailing;
mod measure;
mod postgres;
mod rivals;
mod standing;
mod ticks;
mod world;

#[tokio::main]
async fn main() {
    let parts: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    assert!(!parts.is_empty(), "name the parts to run; scripts/bench does");
    for part in &parts {
        match part.as_str() {
            "fanout" => fanout::fan_out(false).await,
            "fanout-standalone" => fanout::fan_out(true).await,
            "merge" => fanout::merge().await,
            "standing" => standing::standing_days().await,
            "accept" => fanout::accept().await,
            "digest" => digest::assembly_and_flush().await,
            "cache-large" => digest::cache("the window in the server's cache").await,
            "cache-small" => digest::cache("the server's cache far too small for the window").await,
            "batches" => {
                batches::joins().await;
                batches::due().await;
                batches::burst().await;
            }
            "mailing" => mailing::end_to_end().await,
            "ticks" => ticks::ticks().await,
            "joins" => batches::joins().await,
            "burst" => batches::burst().await,
            "day" => day::day().await,
            "ingest" => ingest::ingest().await,
            "feeds" => feeds::feeds().await,
            "archive" => archive::archive().await,
            "postgres" => postgres::rows().await,
            other => panic!("there is no part {other:?}"),
        }
    }
}
