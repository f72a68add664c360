//! Checks the database: whether it is reachable, writable and configured as it should be, and
//! whether stored data prevents emails.
//!
//! Nothing is changed, except that a note is written and removed as a test.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};

use super::{Doctor, Finding, LANGUAGES};
use crate::domain::error_chain::error_chain;
use crate::domain::name::join_names;
use crate::domain::{
    BatchState, BrandName, Day, DeliveryState, Pause, ReportCounts, durations_and_times,
};
use crate::engine::feedback::suppressions::count_unreported;
use crate::engine::users::find_unreadable;
use crate::store::{
    BatchFilter, CountedRecords, DeliveryFilter, Engine, Error, Schema, Store, TimeRange, Topology,
};
use crate::wire::count;

/// The advice for a database that cannot be reached.
pub(super) const UNREACHED: &str = "see that the server runs, that the option `store` names it, and that this machine may reach it";

pub(super) const DATABASE: &str = "database";
const SCHEMA: &str = "schema";
const INDEXES: &str = "indexes";
const WRITING: &str = "writing";
const SENDING: &str = "sending";
const UNKNOWN: &str = "unknown emails";

/// The oldest supported major version of MongoDB.
const MIN_MONGODB: u32 = 6;
/// With fewer members, the loss of one stops all writes.
const MIN_MEMBERS: usize = 3;
/// If clocks differ by more, at least one is not synchronized.
const MAX_CLOCK_DIFFERENCE: TimeDelta = TimeDelta::seconds(2);
/// If clocks differ by more, a lease of one machine looks expired to another.
const HARMFUL_CLOCK_DIFFERENCE: TimeDelta = TimeDelta::seconds(30);
/// The most pending emails that are read, newest first.
const MAX_DELIVERIES: usize = 10_000;
/// The most users that are read for unreadable fields.
const MAX_USERS: usize = 100_000;
/// The most open batches that are read, newest first.
const MAX_BATCHES: usize = 1_000;
const NO_TIME: &str = "the database does not report its time";
/// The note that is written and removed.
const NOTE: &str = "doctor";

impl Doctor {
    pub(super) async fn database(&self) -> Vec<Finding> {
        let store = match &self.store {
            Ok(store) => store,
            Err(finding) => return unreached(finding),
        };
        let before = self.clock.now();
        let condition = async { store.condition().await.map_err(|error| error_chain(&error)) };
        let condition = match self.within(condition, Err).await {
            Ok(condition) => condition,
            Err(why) => return unreached(&Finding::error(why, UNREACHED).for_check(DATABASE)),
        };
        let after = before.max(self.clock.now() - condition.time_since_read);
        let clock = match (condition.server_time, &condition.engine) {
            (Some(time), _) => Some(judge_clock(before, time, after)),
            (None, Engine::Mongo(..)) => Some(Finding::unchecked(NO_TIME)),
            // SQLite has no clock of its own.
            (None, Engine::Sqlite { .. }) => None,
        };
        let indexes = condition.missing_indexes.map(judge_indexes);
        let schema = condition.schema.map(|schema| Some(judge_schema(&schema)));
        let checks: [(&'static str, BoxFuture<'_, MaybeFinding>); 11] = [
            (SCHEMA, ready(schema).boxed()),
            (INDEXES, ready(indexes).boxed()),
            ("clock", ready(Ok(clock)).boxed()),
            (WRITING, check_writing(store).boxed()),
            (SENDING, check_sending(store).boxed()),
            ("reports", self.reports(store).boxed()),
            (UNKNOWN, check_unknown(store).boxed()),
            ("brands", self.missing_brands(store).boxed()),
            (LANGUAGES, self.untranslated(store).boxed()),
            ("days", self.days_to_archive(store).boxed()),
            ("users", check_users(store).boxed()),
        ];
        let checks = checks.map(async |(name, check)| {
            let finding = check
                .map(|result| result.unwrap_or_else(|error| failed_check(error_chain(&error))));
            Some(self.within(finding, failed_check).await?.for_check(name))
        });
        let findings = join_all(checks).await.into_iter().flatten();
        judge_engine(&condition.engine).into_iter().chain(findings).collect()
    }

    /// Reports emails and batches that wait for brands that are not configured. Users with such a
    /// brand are only found by their pending emails, because there is no index by brand.
    async fn missing_brands(&self, store: &Arc<dyn Store>) -> MaybeFinding {
        let mut missing: BTreeMap<BrandName, (u64, u64)> = BTreeMap::new();
        let pending = DeliveryFilter::State(DeliveryState::Pending, TimeRange::default(), None);
        for row in store.find_deliveries(&pending, MAX_DELIVERIES).await? {
            let reason = row.outcome.reason.as_deref();
            if let Some(brand) = reason.and_then(BrandName::from_unconfigured_reason) {
                missing.entry(brand).or_default().0 += 1;
            }
        }
        let open = BatchFilter { state: Some(BatchState::Open), ..BatchFilter::default() };
        for batch in store.find_batches(&open, MAX_BATCHES).await? {
            let is_missing = |brand: &&BrandName| !self.config.brands.contains_key(*brand);
            if let Some(brand) = batch.key.brand().filter(is_missing) {
                missing.entry(brand.clone()).or_default().1 += 1;
            }
        }
        let brands = missing.iter().map(|(brand, (emails, batches))| {
            format!("the brand {brand} (pending emails: {emails}, open batches: {batches})")
        });
        let found = format!("not configured, so emails wait: {}", join_names(brands, usize::MAX));
        let advice =
            "put [brands.NAME] back; digests are also sent once their users have another brand";
        Ok((!missing.is_empty()).then(|| Finding::error(found, advice)))
    }

    /// Reports days older than `archive.keep`, which `archive` would drop.
    async fn days_to_archive(&self, store: &Arc<dyn Store>) -> MaybeFinding {
        let oldest_kept = Day::of(self.clock.now() - self.config.archive_keep);
        let mut days = store.days().await?;
        days.retain(|day| *day < oldest_kept);
        let keep = durations_and_times::format_duration(self.config.archive_keep);
        let warning = |oldest: &Day| {
            let date = oldest.start().date_naive();
            let days_are = count(days.len() as u64, "day is", "days are");
            Finding::warning(
                format!("{days_are} older than archive.keep ({keep}), the oldest {date}"),
                "tidings archive --export FOLDER, which exports and drops them; run it once a day",
            )
        };
        Ok(days.first().map(warning))
    }

    /// Warns if emails have no reports, or if any were refused in the last day. Only if a key is
    /// configured to verify the reports.
    async fn reports(&self, store: &Arc<dyn Store>) -> MaybeFinding {
        let Some(provider) = self.config.reporting_provider() else {
            return Ok(None);
        };
        let now = self.clock.now();
        let unreported = count_unreported(store.as_ref(), now).await?;
        let counts = store.report_counts(now - TimeDelta::days(1)).await?;
        Ok(judge_reports(provider.title, unreported, &counts))
    }
}

/// The finding of a check of the store, if there is one.
type MaybeFinding = Result<Option<Finding>, Error>;

/// Returns the finding for a failed read.
fn failed_check(why: String) -> Option<Finding> {
    let advice = "see that the user of the option `store` may read and write that database, and that it is not overloaded";
    Some(Finding::error(why, advice))
}

/// Returns the finding about an unreachable database. The checks that always report are
/// `unchecked`; the others report only problems.
fn unreached(finding: &Finding) -> Vec<Finding> {
    let why = "the database was not opened, or holds nothing yet";
    let checks = [SCHEMA, INDEXES, WRITING, SENDING, UNKNOWN].into_iter();
    let others = checks.filter(|check| *check != finding.check);
    let unchecked = others.map(|check| Finding::unchecked(why).for_check(check));
    std::iter::once(finding.clone()).chain(unchecked).collect()
}

/// Warns about a store that must be upgraded.
pub(super) fn judge_schema(schema: &Schema) -> Finding {
    let Schema { version, known } = schema;
    let finding = if schema.is_old() {
        Finding::warning(
            format!("number {version}, which this version upgrades to {known}"),
            "stop the processes of older versions, and make a copy if you may want to go back; the next \
            command that works with the store upgrades it",
        )
    } else {
        Finding::ok(format!("number {version}"))
    };
    finding.for_check(SCHEMA)
}

fn judge_indexes(missing: Vec<String>) -> Option<Finding> {
    if missing.is_empty() {
        return Some(Finding::ok("all there"));
    }
    let found = format!("missing: {}", missing.join("; "));
    Some(Finding::warning(found, "start `tidings serve` or `tidings worker`: they make them"))
}

async fn check_writing(store: &Arc<dyn Store>) -> MaybeFinding {
    // An interrupted check may have left a note.
    let existing = store.note(NOTE).await?;
    let text = Some("may be deleted");
    let was_written = store.swap_note(NOTE, existing.as_deref(), text).await?;
    let was_deleted = store.swap_note(NOTE, text, None).await?;
    Ok(Some(if was_written && was_deleted {
        Finding::ok("a note was written and deleted")
    } else {
        let why = "another process wrote the same note meanwhile, such as another doctor";
        Finding::unchecked(why)
    }))
}

async fn check_sending(store: &Arc<dyn Store>) -> MaybeFinding {
    let pause = match Pause::current(store.as_ref()).await {
        Ok(pause) => pause,
        Err(crate::engine::Error::Store(error)) => return Err(error),
        Err(error) => return Ok(Some(Finding::unchecked(error_chain(&error)))),
    };
    Ok(Some(match pause {
        None => Finding::ok("not paused"),
        Some(Pause { at, reason, .. }) => Finding::error(
            format!("paused since {} UTC: {reason}", at.format("%Y-%m-%d %H:%M")),
            "fix that, then `tidings digest --resume`",
        ),
    }))
}

async fn check_unknown(store: &Arc<dyn Store>) -> MaybeFinding {
    let filter = CountedRecords::Deliveries(DeliveryState::Unknown);
    let unknown: u64 = store.count(&[filter]).await?.iter().sum();
    if unknown == 0 {
        return Ok(Some(Finding::ok("none")));
    }
    let emails_have = count(unknown, "email has", "emails have");
    let advice = "look at `tidings deliveries --state unknown`, then settle what is there";
    Ok(Some(Finding::warning(format!("{emails_have} an unknown outcome"), advice)))
}

/// Reports records with fields that this version cannot read.
async fn check_users(store: &Arc<dyn Store>) -> MaybeFinding {
    let unreadable = find_unreadable(store.as_ref(), MAX_USERS).await?;
    let advice = "install the version that wrote them, or set these fields again; `tidings explain USER` has the reasons";
    Ok((!unreadable.is_empty()).then(|| Finding::warning(unreadable.sentence(), advice)))
}

fn judge_engine(engine: &Engine) -> Vec<Finding> {
    match engine {
        Engine::Sqlite { version, journal } if journal == "wal" => {
            let found = format!("SQLite {version} with a write-ahead log, for one machine");
            vec![Finding::ok(found).for_check(DATABASE)]
        }
        Engine::Sqlite { version, journal } => {
            let found = format!(
                "SQLite {version} keeps its journal as {journal:?}, so readers and writers block each other"
            );
            let advice = "put the file onto a disk of this machine: network file systems cannot have a write-ahead log";
            vec![Finding::error(found, advice).for_check(DATABASE)]
        }
        Engine::Mongo(version, topology) => {
            vec![
                judge_version(version).for_check(DATABASE),
                judge_topology(*topology).for_check("replication"),
            ]
        }
    }
}

fn judge_version(version: &str) -> Finding {
    let upgrade = format!("upgrade it to {MIN_MONGODB}.0 or newer");
    match version.split('.').next().map(str::parse::<u32>) {
        Some(Ok(major)) if major >= MIN_MONGODB => Finding::ok(format!("MongoDB {version}")),
        Some(Ok(_)) => Finding::error(format!("MongoDB {version} is too old"), upgrade),
        _ => Finding::unchecked(format!("MongoDB reports the version {version:?}")),
    }
}

fn judge_topology(topology: Topology) -> Finding {
    let advice = "make it a replica set of three";
    match topology {
        Topology::Standalone => Finding::warning(
            "one server without a replica set: all accepted data is lost with its disk, and nothing works while it is down",
            advice,
        ),
        Topology::ReplicaSet(members) if members < MIN_MEMBERS => Finding::warning(
            format!("a replica set of {members}: nothing can be written once one is lost"),
            advice,
        ),
        Topology::ReplicaSet(members) => Finding::ok(format!("a replica set of {members}")),
        Topology::Sharded => Finding::ok("a sharded cluster"),
    }
}

/// Compares the clocks. The database read its `time` between `before` and `after`.
fn judge_clock(before: DateTime<Utc>, time: DateTime<Utc>, after: DateTime<Utc>) -> Finding {
    // The server's time has whole milliseconds.
    let before = before.trunc_subsecs(3);
    let (difference, which) = match time {
        _ if time < before => (before - time, "behind"),
        _ if time > after => (time - after, "ahead of"),
        _ => (TimeDelta::zero(), "with"),
    };
    let seconds = difference.as_seconds_f64();
    let found = format!("the database's clock is {seconds:.1} s {which} this machine's");
    let advice = "let NTP set both clocks: leases between machines depend on them";
    if difference > HARMFUL_CLOCK_DIFFERENCE {
        Finding::error(found, advice)
    } else if difference > MAX_CLOCK_DIFFERENCE {
        Finding::warning(found, advice)
    } else {
        Finding::ok("the database's and this machine's agree")
    }
}

fn judge_reports(provider: &str, unreported: u64, counts: &ReportCounts) -> Option<Finding> {
    let sent = count(counts.sent, "email", "emails");
    match (unreported, counts.refused) {
        (0, 0) => None,
        (0, refused) => Some(Finding::warning(
            format!(
                "receivers refused the sender or the content of {refused} of {sent} of the last day"
            ),
            "look at the status in the log; check SPF, DKIM, DMARC and the domain's reputation",
        )),
        _ => Some(Finding::warning(
            format!(
                "{provider} has reported nothing on {} sent more than a day ago",
                count(unreported, "email", "emails")
            ),
            "let the provider post to /hooks, also when it delivers (docs/guides/providers.md, \"Bounces and complaints\")",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::diagnosis::Severity;

    #[test]
    fn old_mongodb_versions_are_errors() {
        for (version, expected) in [
            ("5.0.31", Severity::Error),
            ("6.0.5", Severity::Ok),
            ("8.2.0-rc1", Severity::Ok),
            ("10.0.0", Severity::Ok),
            ("unknown", Severity::Unchecked),
        ] {
            assert_eq!(judge_version(version).severity, expected, "{version}");
        }
    }

    #[test]
    fn fewer_than_three_members_cause_a_warning() {
        for (topology, expected) in [
            (Topology::Standalone, Severity::Warning),
            (Topology::ReplicaSet(1), Severity::Warning),
            (Topology::ReplicaSet(2), Severity::Warning),
            (Topology::ReplicaSet(3), Severity::Ok),
            (Topology::Sharded, Severity::Ok),
        ] {
            assert_eq!(judge_topology(topology).severity, expected, "{topology:?}");
        }
    }

    #[test]
    fn the_clock_check_allows_for_the_response_time() {
        let at = |seconds| {
            DateTime::from_timestamp(1_398_153_600, 0).unwrap() + TimeDelta::seconds(seconds)
        };
        for (server, expected) in [
            (-31, Severity::Error),
            (-30, Severity::Warning),
            (-3, Severity::Warning),
            (-2, Severity::Ok),
            (0, Severity::Ok),
            (9, Severity::Ok),
            (12, Severity::Ok),
            (13, Severity::Warning),
            (41, Severity::Error),
        ] {
            // The reply took ten seconds.
            assert_eq!(judge_clock(at(0), at(server), at(10)).severity, expected, "{server}");
        }
    }

    #[test]
    fn a_sqlite_file_without_wal_is_an_error() {
        let sqlite =
            |journal: &str| Engine::Sqlite { version: "3.50.0".into(), journal: journal.into() };

        assert_eq!(judge_engine(&sqlite("wal"))[0].severity, Severity::Ok);
        assert_eq!(judge_engine(&sqlite("delete"))[0].severity, Severity::Error);
    }

    #[test]
    fn missing_webhook_reports_and_refusals_cause_warnings_but_bounces_do_not() {
        let counts =
            |refused| ReportCounts { sent: 40, bounced: 3, refused, ..ReportCounts::default() };
        let judge = |unreported, refused| judge_reports("Mailgun", unreported, &counts(refused));

        assert_eq!(judge(0, 0), None);
        let unreported = judge(1, 2).unwrap().result;
        assert!(unreported.contains("nothing on 1 email sent"), "{unreported}");
        let refused = judge(0, 2).unwrap().result;
        assert!(refused.ends_with("2 of 40 emails of the last day"), "{refused}");
    }
}
