//! Shared code of the tests: empty stores, simulated users and servers, and short builders of
//! values.
//!
//! It contains no code for a particular test. All builders use the same time, noon on
//! 22 April 2014, so that tests differ only in their subject. Start with [`Fresh`] and
//! [`town::Town`].

mod build;
mod counted;
mod dice;
mod failing;
mod fresh;
pub mod mongo;
pub mod poison;
pub mod replica_set;
mod shorthand;
pub mod sns;
pub mod sqlite;
pub mod town;

pub use build::*;
pub use counted::sum;
pub use dice::{Dice, number};
pub use failing::{Before, FailingStore, Fault, Then};
pub use fresh::Fresh;
pub use shorthand::{Backlog, BatchCounts, Shorthand};

/// A client for the servers that tests start on loopback.
///
/// Installs a crypto provider first, because reqwest requires one even for plain HTTP.
pub fn client() -> reqwest::Client {
    // It fails if another test has installed it before, which does no harm.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// Fails unless the text contains this part. The message shows the whole text.
macro_rules! assert_contains {
    ($text:expr, $part:expr $(,)?) => {
        assert!($text.contains($part), "{:?} is not in: {}", $part, $text)
    };
}

/// Fails unless the text starts with this part. The message shows the whole text.
macro_rules! assert_starts_with {
    ($text:expr, $part:expr $(,)?) => {
        assert!($text.starts_with($part), "{:?} does not start: {}", $part, $text)
    };
}

pub(crate) use {assert_contains, assert_starts_with};

/// Runs a test, and fails it if it hangs. `scripts/chaos`, whose tests take hours, sets no limit.
pub async fn limited<T>(test: impl Future<Output = T>) -> T {
    let limit = match std::env::var_os("TIDINGS_TEST_UNLIMITED") {
        Some(_) => std::time::Duration::MAX,
        None => std::time::Duration::from_secs(15 * 60),
    };
    let ended = tokio::time::timeout(limit, test).await;
    ended.expect("the test ends within 15 minutes")
}
