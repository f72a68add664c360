//! Waits while the database is unavailable: which failures are transient, and how long to retry.
//!
//! A failed attempt may have been applied, so only repeatable steps go through here. A permanent
//! failure is returned at once. A transient one is retried with growing, jittered pauses until the
//! time is up. Start with [`retry`].

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use mongodb::error::{Error as DriverError, ErrorKind, WriteFailure};

use crate::store::{Error, Result};

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub(super) struct AttemptFailure {
    /// The server's error code, if it replied.
    pub code: Option<i32>,
    pub why: String,
    /// Whether a retry may help.
    pub is_transient: bool,
}

impl AttemptFailure {
    /// Returns the failure of a command, a statement or a write concern.
    pub(super) fn from_code(code: i32, why: &str) -> Self {
        Self {
            code: Some(code),
            why: format!("code {code}: {}", mask_addresses(why)),
            is_transient: TRANSIENT_CODES.contains(&code),
        }
    }

    /// Returns the failure of an attempt without a reply.
    pub(super) fn timeout(limit: Duration) -> Self {
        Self { code: None, why: format!("no answer within {limit:?}"), is_transient: true }
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
    let failure = cause.downcast_ref::<AttemptFailure>();
    failure.is_some_and(|failure| failure.code == Some(TOO_SLOW))
}

/// Returns the server's time limit for an attempt. It is shorter than the client's, so that the
/// server has stopped before the attempt is repeated.
pub(super) fn server_time_limit(attempt: Duration) -> Duration {
    (attempt - attempt / 10).max(Duration::from_millis(1))
}

/// The server returns most of these codes while it shuts down, steps down, elects a primary or
/// cannot reach other members (the driver's retryable codes). Others mean that a majority did not
/// acknowledge in time, or that a slow reader or a change of server has lost a cursor.
const TRANSIENT_CODES: [i32; 22] = [
    TOO_SLOW, 6,     // HostUnreachable
    7,     // HostNotFound
    43,    // CursorNotFound
    64,    // WriteConcernFailed: not acknowledged in time
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

impl From<DriverError> for AttemptFailure {
    fn from(error: DriverError) -> Self {
        let labels = ["RetryableWriteError", "RetryableError"];
        let is_labeled = labels.iter().any(|label| error.contains_label(label));
        let failure = match &*error.kind {
            ErrorKind::Command(command) => Self::from_code(command.code, &command.message),
            ErrorKind::Write(WriteFailure::WriteError(write)) => {
                Self::from_code(write.code, &write.message)
            }
            ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => {
                Self::from_code(concern.code, &concern.message)
            }
            kind => Self {
                code: None,
                why: match kind {
                    ErrorKind::ServerSelection { message, .. } => shorten_topology(message),
                    kind => mask_addresses(&kind.to_string()),
                },
                is_transient: matches!(
                    kind,
                    ErrorKind::Io(_)
                        | ErrorKind::ConnectionPoolCleared { .. }
                        | ErrorKind::ServerSelection { .. }
                ),
            },
        };
        Self { is_transient: failure.is_transient || is_labeled, ..failure }
    }
}

/// Shortens the driver's long description of the topology to one sentence.
fn shorten_topology(message: &str) -> String {
    let shorten_server = |server: &str| {
        let address = server.split([',', ' ', '}']).next().unwrap_or_default();
        let error = match server.split_once("Error: ") {
            Some((_, error)) => error.split(", labels").next().unwrap_or(error),
            None if server.contains("Type: RsSecondary") => "a secondary",
            None => "no answer",
        };
        let cause = error.trim_start_matches("Kind: ").trim_start_matches("I/O error: ");
        let why: String = cause.trim_end_matches([' ', '}', ']']).chars().take(80).collect();
        format!("{address} ({why})")
    };
    let servers: Vec<String> = message.split("Address: ").skip(1).map(shorten_server).collect();
    if servers.is_empty() {
        return mask_addresses(message);
    }
    format!("no MongoDB server can be written to: {}", servers.join(", "))
}

/// Masks email addresses: some server messages quote documents.
fn mask_addresses(text: &str) -> String {
    text.split_inclusive([' ', '"', '\'', ','])
        .map(|word| match word.find('@') {
            Some(at) => format!("…{}", &word[at..]),
            None => word.to_owned(),
        })
        .collect()
}

/// Repeats a step until it succeeds, fails permanently, or `patience` is over. Each attempt may
/// take at most `attempt`.
pub(super) async fn retry<T, F>(
    patience: Duration,
    attempt: Duration,
    doing: &str,
    mut step: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = std::result::Result<T, AttemptFailure>>,
{
    let mut last_failure = None;
    let attempts = async {
        let mut failed = 0;
        loop {
            let failure = match tokio::time::timeout(attempt, step()).await {
                Ok(Ok(result)) => return Ok(result),
                Ok(Err(failure)) if !failure.is_transient => return Err(failure),
                Ok(Err(failure)) => failure,
                Err(_) => AttemptFailure::timeout(attempt),
            };
            tracing::warn!(doing, why = %failure, "the database is unavailable, trying again");
            last_failure = Some(failure);
            tokio::time::sleep(pause(failed)).await;
            failed += 1;
        }
    };
    let outcome = tokio::time::timeout(patience, attempts).await;
    outcome
        .unwrap_or_else(|_| Err(last_failure.unwrap_or_else(|| AttemptFailure::timeout(patience))))
        .map_err(|failure| Error::database(doing, failure))
}

/// Returns the pause after this number of failed attempts: 25 ms, doubling up to 2 s, jittered down
/// to at least half.
fn pause(failed: u32) -> Duration {
    let max = Duration::from_millis(25 << failed.min(7)).min(Duration::from_secs(2));
    // A hasher's random keys are random enough for jitter.
    let share = RandomState::new().hash_one(failed) % 512;
    max.mul_f64(0.5 + share as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn temporary_failures_are_retried_and_permanent_ones_are_not() {
        let mut attempts = 0;
        let transient = retry(LONG, LONG, "testing", || {
            attempts += 1;
            let outcome = match attempts {
                3 => Ok(attempts),
                _ => Err(AttemptFailure::from_code(10107, "not primary")),
            };
            std::future::ready(outcome)
        });
        assert_eq!(transient.await.unwrap(), 3);

        let mut attempts = 0;
        let permanent = retry(LONG, LONG, "testing", || {
            attempts += 1;
            std::future::ready(Err::<(), _>(AttemptFailure::from_code(13, "not authorized")))
        });
        let error = permanent.await.unwrap_err();
        assert_eq!(error.to_string(), "testing");
        assert_eq!(attempts, 1);
    }

    #[tokio::test]
    async fn retries_end_with_the_last_error() {
        let brief = Duration::from_millis(120);
        let failing = retry(brief, LONG, "testing", || {
            std::future::ready(Err::<(), _>(AttemptFailure::from_code(91, "going down")))
        });
        let Error::Database { cause, .. } = failing.await.unwrap_err() else {
            panic!("another error");
        };
        assert_eq!(cause.to_string(), "code 91: going down");
    }

    #[tokio::test]
    async fn an_attempt_without_an_answer_is_repeated() {
        let mut attempts = 0;
        let outcome = retry(LONG, Duration::from_millis(5), "testing", || {
            attempts += 1;
            let is_first = attempts == 1;
            async move {
                if is_first {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        });
        outcome.await.unwrap();
        assert_eq!(attempts, 2);
    }

    #[test]
    fn an_unreachable_cluster_is_one_sentence_with_each_host_and_reason() {
        let message = "Server selection timeout: No available servers. Topology: { Type: Unknown, Set Name: rs0, Servers: [ \
            { Address: 127.0.0.1:1, Type: Unknown, Error: Kind: I/O error: Connection refused (os error 111), labels: {} }, \
            { Address: db2.example:27017, Type: RsSecondary, Average RTT: 1ms }, { Address: db3.example:27017, Type: Unknown } ] }";

        assert_eq!(
            shorten_topology(message),
            "no MongoDB server can be written to: 127.0.0.1:1 (Connection refused (os error 111)), \
             db2.example:27017 (a secondary), db3.example:27017 (no answer)"
        );
        assert_eq!(shorten_topology("something else"), "something else");
    }

    #[test]
    fn pauses_grow_up_to_two_seconds() {
        assert!(pause(0) <= Duration::from_millis(25));
        let last = pause(40);
        assert!(last >= Duration::from_secs(1) && last <= Duration::from_secs(2));
    }

    #[test]
    fn an_error_masks_addresses() {
        let failure = AttemptFailure::from_code(
            16755,
            "bad geo keys: { email: \"ada.lovelace@example.org\" }",
        );
        assert!(!failure.why.contains("lovelace"), "{failure}");
        assert!(failure.why.contains("…@example.org"), "{failure}");
    }
}
