//! Checks the database: whether it is reachable, writable and configured as it should be, and
//! whether stored data prevents emails.
//!
//! Nothing is changed, except that a note is written and removed as a test.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

use super::reports::REPORTS;
use super::templates::LANGUAGES;
use super::{Doctor, Finding, chain};
use crate::domain::{BatchState, BrandName, Day, DeliveryState, Pause, time};
use crate::engine::directory::find_unreadable;
use crate::store::{BatchFilter, Counted, DeliveryFilter, Engine, Error, Schema, Store, Topology};

/// The advice for a database that cannot be reached.
pub(super) const UNREACHED: &str = "see that the server runs, that the option `store` names it, and that this machine may reach it";

pub(super) const DATABASE: &str = "database";
const REPLICATION: &str = "replication";
const SCHEMA: &str = "schema";
const INDEXES: &str = "indexes";
const CLOCK: &str = "clock";
const WRITING: &str = "writing";
const SENDING: &str = "sending";
const UNKNOWN: &str = "unknown mails";
const BRANDS: &str = "brands";
const DAYS: &str = "days";
const USERS: &str = "users";
const ADDRESSES: &str = "addresses";

/// The oldest supported version of MongoDB.
const OLDEST: u32 = 6;
/// With fewer members, the loss of one stops all writes.
const ENOUGH: usize = 3;
/// If clocks differ by more, at least one is not synchronized.
const ODD: TimeDelta = TimeDelta::seconds(2);
/// If clocks differ by more, a lease of one machine looks expired to another.
const HARMFUL: TimeDelta = TimeDelta::seconds(30);
/// The finding if the clocks cannot be compared.
const UNTOLD: &str = "the database does not say what time it has";
/// The most pending emails that are read, newest first.
const LOOKED_AT: usize = 10_000;
/// The most users that are read for unreadable fields and for shared addresses.
const RECORDS: usize = 100_000;
/// The most open batches that are read, newest first.
const BATCHES: usize = 1_000;
/// The note that is written and removed.
const NOTE: &str = "doctor";

impl Doctor {
    pub(super) async fn database(&self) -> Vec<Finding> {
        let store = match &self.store {
            Ok(store) => store,
            Err(finding) => return unreached(finding.clone()),
        };
        let before = self.clock.now();
        let server = self.within(
            async { store.server().await.map_err(|error| chain(&error)) },
            Err,
        );
        let server = match server.await {
            Ok(server) => server,
            Err(why) => {
                return unreached(Finding::error(DATABASE, why, UNREACHED));
            }
        };
        let after = self.clock.now();
        let mut findings = judge_engine(&server.engine);
        let clock = match (server.time, &server.engine) {
            (Some(told), _) => Some(judge_clock(before, told, after)),
            (None, Engine::Mongo { .. }) => Some(Finding::unchecked(CLOCK, UNTOLD)),
            (None, Engine::Sqlite { .. }) => None,
        };
        let (
            schema,
            indexes,
            writing,
            sending,
            reports,
            unknown,
            brands,
            languages,
            days,
            users,
            addresses,
        ) = futures::join!(
            self.asked(SCHEMA, schema(store)),
            self.asked(INDEXES, indexes(store)),
            self.asked(WRITING, writing(store)),
            self.asked(SENDING, sending(store)),
            self.asked(REPORTS, self.reports(store)),
            self.asked(UNKNOWN, unknown(store)),
            self.asked(BRANDS, self.brands_missed(store)),
            self.asked(LANGUAGES, self.untranslated(store)),
            self.asked(DAYS, self.days_to_archive(store)),
            self.asked(USERS, users(store)),
            self.asked(ADDRESSES, addresses(store)),
        );
        let found = [
            schema, indexes, clock, writing, sending, reports, unknown, brands, languages, days,
            users, addresses,
        ];
        findings.extend(found.into_iter().flatten());
        findings
    }

    /// Reports emails and batches that wait for brands that are not configured. Users with such a
    /// brand are only found by their pending emails, because there is no index by brand.
    async fn brands_missed(&self, store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
        let open = BatchFilter {
            state: Some(BatchState::Open),
            ..BatchFilter::default()
        };
        let waits = awaited(store).await?;
        let mut gather: BTreeMap<BrandName, u64> = BTreeMap::new();
        for batch in store.find_batches(&open, None, BATCHES).await? {
            let missed = |brand: &&BrandName| self.brands.iter().all(|(name, _)| name != *brand);
            if let Some(brand) = batch.key.brand().filter(missed) {
                *gather.entry(brand.clone()).or_default() += 1;
            }
        }
        let waits = waits.iter().map(|(brand, mails)| match mails {
            1 => format!("1 mail waits for the brand {brand}"),
            _ => format!("{mails} mails wait for the brand {brand}"),
        });
        let gather = gather.iter().map(|(brand, batches)| match batches {
            1 => format!("1 open batch is of the brand {brand}"),
            _ => format!("{batches} open batches are of the brand {brand}"),
        });
        let told: Vec<String> = waits.chain(gather).collect();
        Ok((!told.is_empty()).then(|| {
            Finding::error(
                BRANDS,
                format!("{}, which is not configured", told.join(", ")),
                "put [brands.NAME] back; digests also leave once their people are of another brand",
            )
        }))
    }

    /// Reports days older than `archive.keep`, which `archive` would drop.
    async fn days_to_archive(&self, store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
        let oldest_kept = Day::of(self.clock.now() - self.config.archive_keep);
        let mut days = store.days().await?;
        days.retain(|day| *day < oldest_kept);
        let Some(oldest) = days.first() else {
            return Ok(None);
        };
        let days = match days.len() {
            1 => "1 day is".to_owned(),
            days => format!("{days} days are"),
        };
        let (keep, oldest) = (
            time::show_duration(self.config.archive_keep),
            oldest.start().date_naive(),
        );
        Ok(Some(Finding::warning(
            DAYS,
            format!("{days} older than archive.keep ({keep}), the oldest {oldest}"),
            "tidings archive --export FOLDER, which exports and drops them; run it once a day",
        )))
    }

    /// Runs a check on the store, with a time limit. A failed read is an error finding.
    async fn asked(
        &self,
        check: &'static str,
        question: impl Future<Output = Result<Option<Finding>, Error>>,
    ) -> Option<Finding> {
        let failed = |why: String| {
            let advice = "see that the user of the option `store` may read and write that database, and that it is not overloaded";
            Some(Finding::error(check, why, advice))
        };
        let asking = async { question.await.unwrap_or_else(|error| failed(chain(&error))) };
        self.within(asking, failed).await
    }
}

/// Without a database, its other checks are `unchecked`.
fn unreached(finding: Finding) -> Vec<Finding> {
    let others = [SCHEMA, INDEXES, WRITING, SENDING, UNKNOWN];
    let others = others.into_iter().filter(|check| *check != finding.check);
    let others = others.map(|check| {
        Finding::unchecked(check, "the database was not opened, or holds nothing yet")
    });
    let others: Vec<Finding> = others.collect();
    [vec![finding], others].concat()
}

async fn schema(store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
    let schema = store.schema().await?;
    Ok(Some(match schema.steps.as_slice() {
        [] => Finding::ok(SCHEMA, format!("number {}", schema.version)),
        _ => Finding::upgrade(&schema),
    }))
}

impl Finding {
    /// The finding for a store that must be upgraded.
    pub fn upgrade(schema: &Schema) -> Self {
        let Schema {
            version,
            known,
            steps,
        } = schema;
        let steps = steps.join("; ");
        Self::warning(
            SCHEMA,
            format!("number {version}, which this version upgrades to {known}: {steps}"),
            "make a copy if you may want to go back; the next command that works with the store upgrades it",
        )
    }
}

async fn indexes(store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
    let missing = store.missing_indexes().await?;
    Ok(Some(match missing.as_slice() {
        [] => Finding::ok(INDEXES, "all there"),
        missing => Finding::warning(
            INDEXES,
            format!("missing: {}", missing.join("; ")),
            "start `tidings serve` or `tidings worker`: they make them",
        ),
    }))
}

async fn writing(store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
    // Also removes the note of a check that was interrupted.
    let left = store.note(NOTE).await?;
    let text = Some("may be forgotten");
    let written = store.swap_note(NOTE, left.as_deref(), text).await?;
    let taken = store.swap_note(NOTE, text, None).await?;
    Ok(Some(match written && taken {
        true => Finding::ok(WRITING, "a note was written, and taken away again"),
        false => {
            let why = "somebody else wrote the same note meanwhile, such as another doctor";
            Finding::unchecked(WRITING, why)
        }
    }))
}

async fn sending(store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
    let pause = match Pause::current(store.as_ref()).await {
        Ok(pause) => pause,
        Err(crate::engine::Error::Store(error)) => return Err(error),
        Err(error) => return Ok(Some(Finding::unchecked(SENDING, chain(&error)))),
    };
    Ok(Some(match pause {
        None => Finding::ok(SENDING, "not paused"),
        Some(pause) => Finding::error(
            SENDING,
            format!(
                "paused since {} UTC: {}",
                pause.at.format("%Y-%m-%d %H:%M"),
                pause.reason
            ),
            "fix that, then `tidings digest --resume`",
        ),
    }))
}

async fn unknown(store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
    let unknown = Counted::Deliveries(DeliveryState::Unknown);
    Ok(Some(
        match store.count(&[unknown]).await?.iter().sum::<u64>() {
            0 => Finding::ok(UNKNOWN, "none"),
            count => Finding::warning(
                UNKNOWN,
                match count {
                    1 => "1 of which nobody knows whether it was mailed".to_owned(),
                    _ => format!("{count} of which nobody knows whether they were mailed"),
                },
                "look at `tidings deliveries --state unknown`, then settle what is there",
            ),
        },
    ))
}

/// Reports records with fields that this version cannot read.
async fn users(store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
    let found = find_unreadable(store.as_ref(), RECORDS).await?;
    Ok((!found.is_empty()).then(|| {
        Finding::warning(
            USERS,
            found.sentence(),
            "install the version that wrote them, or set these fields again; `tidings explain USER` has the reasons",
        )
    }))
}

/// Reports addresses that several records share.
async fn addresses(store: &Arc<dyn Store>) -> Result<Option<Finding>, Error> {
    let shared = store.shared_addresses(RECORDS).await?;
    let bound = match shared.read < RECORDS as u64 {
        true => "",
        false => "at least ",
    };
    let addresses = match shared.addresses {
        0 => return Ok(None),
        1 => "1 address is".to_owned(),
        several => format!("{several} addresses are"),
    };
    let such_as = shared.first.map(|first| format!(", such as {first}"));
    Ok(Some(Finding::warning(
        ADDRESSES,
        format!(
            "{bound}{addresses} used by {} user records{}",
            shared.users,
            such_as.unwrap_or_default()
        ),
        "merge the records of one person: an unsubscribe stops one record, and only its confirmation page offers the others; `tidings users show ADDRESS` names up to 10 records",
    )))
}

/// Counts the emails that wait for each brand that is not configured.
async fn awaited(store: &Arc<dyn Store>) -> Result<BTreeMap<BrandName, u64>, Error> {
    let pending = DeliveryFilter::State(DeliveryState::Pending);
    let rows = store.find_deliveries(&pending, LOOKED_AT).await?;
    let mut waits: BTreeMap<BrandName, u64> = BTreeMap::new();
    for brand in rows
        .iter()
        .filter_map(|row| BrandName::awaited(row.outcome.reason.as_deref()?))
    {
        *waits.entry(brand).or_default() += 1;
    }
    Ok(waits)
}

fn judge_engine(engine: &Engine) -> Vec<Finding> {
    match engine {
        Engine::Sqlite { version, journal } if journal == "wal" => vec![Finding::ok(
            DATABASE,
            format!("SQLite {version} with a write-ahead log, for one machine"),
        )],
        Engine::Sqlite { version, journal } => vec![Finding::error(
            DATABASE,
            format!(
                "SQLite {version} keeps its journal as {journal:?}, so readers and writers stop each other"
            ),
            "put the file onto a disk of this machine: network file systems cannot have a write-ahead log",
        )],
        Engine::Mongo { version, topology } => {
            vec![judge_version(version), judge_topology(*topology)]
        }
    }
}

fn judge_version(version: &str) -> Finding {
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major) if major >= OLDEST => Finding::ok(DATABASE, format!("MongoDB {version}")),
        Some(_) => Finding::error(
            DATABASE,
            format!("MongoDB {version} is too old"),
            format!("upgrade it to {OLDEST}.0 or newer"),
        ),
        None => Finding::unchecked(DATABASE, format!("MongoDB says its version is {version:?}")),
    }
}

fn judge_topology(topology: Topology) -> Finding {
    match topology {
        Topology::Standalone => Finding::warning(
            REPLICATION,
            "one server without a replica set: what is accepted is lost with its disk, and nothing works while it is away",
            "make it a replica set of three",
        ),
        Topology::ReplicaSet { members } if members < ENOUGH => Finding::warning(
            REPLICATION,
            format!("a replica set of {members}: nothing can be written once one is lost"),
            "make it a replica set of three",
        ),
        Topology::ReplicaSet { members } => {
            Finding::ok(REPLICATION, format!("a replica set of {members}"))
        }
        Topology::Sharded => Finding::ok(REPLICATION, "a sharded cluster"),
    }
}

/// The database answered between `before` and `after`, so only times outside them differ.
fn judge_clock(before: DateTime<Utc>, told: DateTime<Utc>, after: DateTime<Utc>) -> Finding {
    // The server's time has whole milliseconds.
    let before = before.trunc_subsecs(3);
    let (by, which) = match () {
        () if told < before => (before - told, "behind"),
        () if told > after => (told - after, "ahead of"),
        () => (TimeDelta::zero(), "with"),
    };
    let seconds = by.as_seconds_f64();
    let found = format!("the database's clock is {seconds:.1} s {which} this machine's");
    let advice = "let both keep time (NTP): leases between machines go by it";
    match by {
        by if by > HARMFUL => Finding::error(CLOCK, found, advice),
        by if by > ODD => Finding::warning(CLOCK, found, advice),
        _ => Finding::ok(CLOCK, "the database's and this machine's agree"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn old_mongodb_versions_are_errors() {
        for (version, expected) in [
            ("5.0.31", Verdict::Error),
            ("6.0.5", Verdict::Ok),
            ("8.2.0-rc1", Verdict::Ok),
            ("10.0.0", Verdict::Ok),
            ("unknown", Verdict::Unchecked),
        ] {
            assert_eq!(judge_version(version).verdict, expected, "{version}");
        }
    }

    #[test]
    fn fewer_than_three_members_cause_a_warning() {
        for (topology, expected) in [
            (Topology::Standalone, Verdict::Warning),
            (Topology::ReplicaSet { members: 1 }, Verdict::Warning),
            (Topology::ReplicaSet { members: 2 }, Verdict::Warning),
            (Topology::ReplicaSet { members: 3 }, Verdict::Ok),
            (Topology::Sharded, Verdict::Ok),
        ] {
            assert_eq!(judge_topology(topology).verdict, expected, "{topology:?}");
        }
    }

    #[test]
    fn the_clock_check_allows_for_the_response_time() {
        let at = |seconds| {
            DateTime::from_timestamp(1_398_153_600, 0).unwrap() + TimeDelta::seconds(seconds)
        };
        for (server, expected) in [
            (-31, Verdict::Error),
            (-30, Verdict::Warning),
            (-3, Verdict::Warning),
            (-2, Verdict::Ok),
            (0, Verdict::Ok),
            (9, Verdict::Ok),
            (12, Verdict::Ok),
            (13, Verdict::Warning),
            (41, Verdict::Error),
        ] {
            // The reply took ten seconds.
            assert_eq!(
                judge_clock(at(0), at(server), at(10)).verdict,
                expected,
                "{server}"
            );
        }
    }

    #[test]
    fn a_sqlite_file_without_wal_is_an_error() {
        let of = |journal: &str| Engine::Sqlite {
            version: "3.50.0".into(),
            journal: journal.into(),
        };

        assert_eq!(judge_engine(&of("wal"))[0].verdict, Verdict::Ok);
        assert_eq!(judge_engine(&of("delete"))[0].verdict, Verdict::Error);
    }
}
