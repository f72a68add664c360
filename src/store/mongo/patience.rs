//! Waits while the database is unavailable: which failures are transient, and how long to retry.
//!
//! A failed attempt may have been applied, so only repeatable steps go through here. A permanent
//! failure is returned at once. A transient one is retried with growing, jittered pauses until the
//! time is up. Start with [`patiently`].

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use mongodb::error::{Error as DriverError, ErrorKind, WriteFailure};

use crate::store::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct LastFailure {
    /// The server's error code, if it replied.
    pub code: Option<i32>,
    pub why: String,
    /// Whether the failure is transient, so that a retry may help.
    pub passing: bool,
}

impl LastFailure {
    /// Returns the failure of a command, a statement or a write concern.
    pub(super) fn answered(code: i32, why: &str) -> Self {
        Self {
            code: Some(code),
            why: format!("code {code}: {}", discreet(why)),
            passing: PASSING.contains(&code),
        }
    }

    pub(super) fn silent(limit: Duration) -> Self {
        Self { code: None, why: format!("no answer within {limit:?}"), passing: true }
    }
}

/// Server error code: the collection does not exist.
pub(super) const NAMESPACE_NOT_FOUND: i32 = 26;
/// Server error code: the collection already exists.
pub(super) const NAMESPACE_EXISTS: i32 = 48;
/// Server error code: the server stopped the operation at its time limit.
pub(super) const TOO_SLOW: i32 = 50;
/// Server error code: a unique key already exists.
pub(super) const DUPLICATE: i32 = 11000;

/// Returns whether the server stopped the last attempt at its time limit.
pub(super) fn is_too_slow(error: &Error) -> bool {
    let Error::Database { cause, .. } = error else {
        return false;
    };
    let failure = cause.downcast_ref::<LastFailure>();
    failure.is_some_and(|failure| failure.code == Some(TOO_SLOW))
}

/// Returns the server's time limit for an attempt. It is shorter than the client's, so that the
/// server has stopped before the attempt is repeated.
pub(super) fn limit(attempt: Duration) -> Duration {
    (attempt - attempt / 10).max(Duration::from_millis(1))
}

/// Transient error codes. The server returns most of them while it shuts down, steps down, elects a
/// primary or cannot reach other members (the driver's retryable codes). Others mean that a
/// majority did not acknowledge in time, or that a slow reader or a change of server has lost a
/// cursor.
const PASSING: [i32; 22] = [
    6,  // HostUnreachable
    7,  // HostNotFound
    43, // CursorNotFound
    TOO_SLOW, 64,    // WriteConcernFailed: not acknowledged in time
    89,    // NetworkTimeout
    91,    // ShutdownInProgress
    112,   // WriteConflict
    133,   // FailedToSatisfyReadPreference: a router sees no primary
    134,   // ReadConcernMajorityNotAvailableYet
    175,   // QueryPlanKilled
    189,   // PrimarySteppedDown
    237,   // CursorKilled
    246,   // SnapshotUnavailable: a collection is newer than the read
    262,   // ExceededTimeLimit
    9001,  // SocketException
    10107, // NotWritablePrimary
    11600, // InterruptedAtShutdown
    11602, // InterruptedDueToReplStateChange
    13388, // StaleConfig
    13435, // NotPrimaryNoSecondaryOk
    13436, // NotPrimaryOrSecondary
];

impl From<DriverError> for LastFailure {
    fn from(error: DriverError) -> Self {
        let labels = ["RetryableWriteError", "RetryableError"];
        let is_labeled = labels.iter().any(|label| error.contains_label(label));
        let failure = match &*error.kind {
            ErrorKind::Command(command) => Self::answered(command.code, &command.message),
            ErrorKind::Write(WriteFailure::WriteError(write)) => {
                Self::answered(write.code, &write.message)
            }
            ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => {
                Self::answered(concern.code, &concern.message)
            }
            kind => Self {
                code: None,
                why: match kind {
                    ErrorKind::ServerSelection { message, .. } => away(message),
                    kind => discreet(&kind.to_string()),
                },
                passing: matches!(
                    kind,
                    ErrorKind::Io(_)
                        | ErrorKind::ConnectionPoolCleared { .. }
                        | ErrorKind::ServerSelection { .. }
                ),
            },
        };
        Self { passing: failure.passing || is_labeled, ..failure }
    }
}

/// Shortens the driver's long description of the topology to one sentence.
fn away(message: &str) -> String {
    let server = |server: &str| {
        let address = server.split([',', ' ', '}']).next().unwrap_or_default();
        let why = match server.split_once("Error: ") {
            Some((_, why)) => why.split(", labels").next().unwrap_or(why),
            None if server.contains("Type: RsSecondary") => "a secondary",
            None => "no answer",
        };
        let why = why.trim_start_matches("Kind: ");
        let why = why.trim_start_matches("I/O error: ");
        let why = why.trim_end_matches([' ', '}', ']']);
        let why: String = why.chars().take(80).collect();
        format!("{address} ({why})")
    };
    let servers: Vec<String> = message.split("Address: ").skip(1).map(server).collect();
    if servers.is_empty() {
        return discreet(message);
    }
    let servers = servers.join(", ");
    format!("no MongoDB server can be written to: {servers}")
}

/// Masks email addresses: some server messages quote documents.
fn discreet(text: &str) -> String {
    text.split_inclusive([' ', '"', '\'', ','])
        .map(|word| match word.find('@') {
            Some(at) => format!("…{}", &word[at..]),
            None => word.to_owned(),
        })
        .collect()
}

/// Repeats a step until it succeeds, fails permanently, or `patience` is over. Each attempt may
/// take at most `attempt`.
pub(super) async fn patiently<T, F>(
    patience: Duration,
    attempt: Duration,
    doing: &str,
    mut step: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = std::result::Result<T, LastFailure>>,
{
    let mut last = None;
    let trying = async {
        let mut failed = 0;
        loop {
            let failure = match tokio::time::timeout(attempt, step()).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(failure)) if !failure.passing => return Err(failure),
                Ok(Err(failure)) => failure,
                Err(_) => LastFailure::silent(attempt),
            };
            tracing::warn!(doing, why = %failure, "the database is away, trying again");
            last = Some(failure);
            tokio::time::sleep(pause(failed)).await;
            failed += 1;
        }
    };
    let outcome = tokio::time::timeout(patience, trying).await;
    outcome
        .unwrap_or_else(|_| Err(last.unwrap_or_else(|| LastFailure::silent(patience))))
        .map_err(|failure| Error::database(doing, failure))
}

/// Returns the pause after this number of failed attempts: 25 ms, doubling up to 2 s, jittered down
/// to at least half.
fn pause(failed: u32) -> Duration {
    let longest = Duration::from_millis(25 << failed.min(7)).min(Duration::from_secs(2));
    // A hasher's random keys are random enough for jitter.
    let share = RandomState::new().hash_one(failed) % 512;
    longest.mul_f64(0.5 + share as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn temporary_failures_are_retried_and_permanent_ones_are_not() {
        let mut attempts = 0;
        let passing = patiently(LONG, LONG, "testing", || {
            attempts += 1;
            let outcome = match attempts {
                3 => Ok(attempts),
                _ => Err(LastFailure::answered(10107, "not primary")),
            };
            std::future::ready(outcome)
        });
        assert_eq!(passing.await.unwrap(), 3);

        let mut attempts = 0;
        let lasting = patiently(LONG, LONG, "testing", || {
            attempts += 1;
            std::future::ready(Err::<(), _>(LastFailure::answered(13, "not authorized")))
        });
        let error = lasting.await.unwrap_err();
        assert_eq!(error.to_string(), "testing");
        assert_eq!(attempts, 1);
    }

    #[tokio::test]
    async fn retries_end_with_the_last_error() {
        let brief = Duration::from_millis(120);
        let failing = patiently(brief, LONG, "testing", || {
            std::future::ready(Err::<(), _>(LastFailure::answered(91, "going down")))
        });
        let Error::Database { cause, .. } = failing.await.unwrap_err() else {
            panic!("another error");
        };
        assert_eq!(cause.to_string(), "code 91: going down");
    }

    #[tokio::test]
    async fn an_attempt_without_an_answer_is_repeated() {
        let mut attempts = 0;
        let answer = patiently(LONG, Duration::from_millis(5), "testing", || {
            attempts += 1;
            let hangs = attempts == 1;
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        });
        answer.await.unwrap();
        assert_eq!(attempts, 2);
    }

    #[test]
    fn an_unreachable_cluster_is_one_sentence_with_each_host_and_reason() {
        let message = "Server selection timeout: No available servers. Topology: { Type: Unknown, Set Name: rs0, Servers: [ \
            { Address: 127.0.0.1:1, Type: Unknown, Error: Kind: I/O error: Connection refused (os error 111), labels: {} }, \
            { Address: db2.example:27017, Type: RsSecondary, Average RTT: 1ms }, { Address: db3.example:27017, Type: Unknown } ] }";

        assert_eq!(
            away(message),
            "no MongoDB server can be written to: 127.0.0.1:1 (Connection refused (os error 111)), \
             db2.example:27017 (a secondary), db3.example:27017 (no answer)"
        );
        assert_eq!(away("something else"), "something else");
    }

    #[test]
    fn pauses_grow_up_to_two_seconds() {
        assert!(pause(0) <= Duration::from_millis(25));
        let last = pause(40);
        assert!(last >= Duration::from_secs(1) && last <= Duration::from_secs(2));
    }

    #[test]
    fn an_error_masks_addresses() {
        let failure =
            LastFailure::answered(16755, "bad geo keys: { email: \"ada.lovelace@example.org\" }");
        assert!(!failure.why.contains("lovelace"), "{failure}");
        assert!(failure.why.contains("…@example.org"), "{failure}");
    }
}
