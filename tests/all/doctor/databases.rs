//! Checks of the database: missing indexes, paused sending, and an unreachable database.

use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use futures::FutureExt;
use tidings::clock::{Clock, ManualClock, SystemClock};
use tidings::config::Config;
use tidings::domain::delivery::Settlement;
use tidings::domain::{Day, DeliveryState, User};
use tidings::operate::doctor::{DoctorOptions, doctor};
use tidings::wire::diagnosis::{Finding, Severity};

use super::{HEALTHY, found};
use crate::services::unreadable::{write, zone};
use crate::support::town::{on_both_stores, only_on_mongo, only_on_sqlite};
use crate::support::{FailingStore, Fresh, Shorthand, delivery, event, noon, push_to, user};

on_both_stores! {
    emails_that_wait_for_an_unknown_brand_are_an_error
    a_working_store_passes_and_the_checks_leave_no_data
    a_note_left_by_an_earlier_run_is_deleted
    a_note_overwritten_during_the_check_is_unchecked
    paused_sending_is_an_error_that_says_how_to_resume
    days_older_than_archive_keep_are_a_warning_with_the_command
    headings_and_phrases_without_a_translation_are_a_warning
    unreadable_fields_are_named_in_a_warning
}

const LOOK: DoctorOptions =
    DoctorOptions { timeout: Duration::from_secs(10), offline: true, nameserver: None };

only_on_mongo! {
    a_missing_or_wrong_mongodb_index_is_named_but_not_created
    the_version_and_replication_of_mongodb_are_reported
    a_wrong_clock_is_an_error
    an_unreadable_schema_note_does_not_prevent_other_checks
}

only_on_sqlite! {
    emails_with_an_unknown_outcome_are_a_warning
    a_missing_sqlite_index_is_named
}

async fn findings(store: &str) -> Vec<Finding> {
    super::findings(&format!("{HEALTHY}store = \"{store}\""), LOOK).await
}

async fn a_working_store_passes_and_the_checks_leave_no_data(fresh: Fresh) {
    let seen = findings(fresh.url()).await;

    for check in ["database", "indexes", "writing", "sending", "unknown emails"] {
        found(&seen, check, Severity::Ok, "");
    }
    assert_eq!(fresh.note("doctor").await.unwrap(), None);
    assert_eq!(fresh.note("link_secret").await.unwrap(), None);
}

async fn a_note_left_by_an_earlier_run_is_deleted(fresh: Fresh) {
    fresh.put_note("doctor", "left behind").await;

    let seen = findings(fresh.url()).await;

    found(&seen, "writing", Severity::Ok, "written and deleted");
    assert_eq!(fresh.note("doctor").await.unwrap(), None);
}

async fn a_note_overwritten_during_the_check_is_unchecked(fresh: Fresh) {
    let config = Config::parse(&format!("{HEALTHY}store = \"{}\"", fresh.url())).unwrap();
    let mut doctor = doctor(&config, LOOK, Arc::new(SystemClock)).await;
    let other = fresh.clone();
    let others = async move { other.put_note("doctor", "another's").await };
    doctor.store = Ok(FailingStore::before(fresh.handle(), "swap_note", others.boxed()));

    let seen = doctor.run().await;

    found(&seen, "writing", Severity::Unchecked, "another process");
    let left = fresh.note("doctor").await.unwrap();
    assert_eq!(left.as_deref(), Some("another's"));
}

async fn emails_that_wait_for_an_unknown_brand_are_an_error(fresh: Fresh) {
    let waits = |who: &str| {
        let mut row = delivery(who, "2014-04-21", "w1");
        row.outcome.reason = Some("the brand gone is not configured".into());
        row
    };
    fresh.open(&[waits("ada"), waits("ben")]).await.unwrap();

    let seen = findings(fresh.url()).await;

    let expected =
        "not configured, so emails wait: the brand gone (pending emails: 2, open batches: 0)";
    found(&seen, "brands", Severity::Error, expected);
}

async fn paused_sending_is_an_error_that_says_how_to_resume(fresh: Fresh) {
    let pause = r#"{"at":"2014-04-21T09:30:00Z","reason":"the key is wrong","by":"w1"}"#;
    fresh.put_note("pause", pause).await;

    let seen = findings(fresh.url()).await;

    found(&seen, "sending", Severity::Error, "paused since 2014-04-21 09:30 UTC: the key is wrong");
    found(&seen, "sending", Severity::Error, "tidings digest --resume");
}

async fn headings_and_phrases_without_a_translation_are_a_warning(fresh: Fresh) {
    for (id, locale) in [("p1", "de-AT"), ("p2", "en-GB")] {
        let record = User { locale: Some(locale.to_owned()), ..User::new(user(id)) };
        assert_eq!(fresh.put_users(&[record]).await.unwrap(), [true]);
    }
    let types = "[types.ArtworkPublished]\nheading = \"New works\"\n\
        [types.Comment]\nroute = \"batch\"\nphrase = \"commented on\"\n";
    let config = format!("{HEALTHY}store = \"{}\"\n{types}", fresh.url());

    let seen = super::findings(&config, LOOK).await;

    let expected = "emails in de: type-ArtworkPublished, type-Comment, type-Comment.phrase have no";
    found(&seen, "languages", Severity::Warning, expected);
}

async fn unreadable_fields_are_named_in_a_warning(fresh: Fresh) {
    let put = fresh.put_users(&[User::new(user("ada"))]).await;
    assert_eq!(put.unwrap(), [true]);
    let readable = findings(fresh.url()).await;

    write(&fresh, "ada", &zone()).await;
    let seen = findings(fresh.url()).await;

    assert!(readable.iter().all(|finding| finding.check != "users"));
    found(&seen, "users", Severity::Warning, "ada (tz)");
    found(&seen, "users", Severity::Warning, "tidings explain USER");
}

async fn days_older_than_archive_keep_are_a_warning_with_the_command(fresh: Fresh) {
    let today = Day::of(SystemClock.now());
    let push = async |day| {
        let pushed = push_to(&user("ada"), vec![event("a1", 1)]);
        fresh.push(day, 10, &pushed).await.unwrap();
    };
    push(today).await;
    push(today.days_before(30)).await;
    let young = findings(fresh.url()).await;

    push(today.days_before(31)).await;
    push(today.days_before(400)).await;
    let old = findings(fresh.url()).await;

    assert!(young.iter().all(|finding| finding.check != "days"));
    let oldest = today.days_before(400).start().date_naive();
    let expected = format!("2 days are older than archive.keep (30d), the oldest {oldest}");
    found(&old, "days", Severity::Warning, &expected);
    found(&old, "days", Severity::Warning, "tidings archive --export FOLDER");
}

async fn emails_with_an_unknown_outcome_are_a_warning(fresh: Fresh) {
    let row = delivery("ada", "2014-04-21", "w1");
    let unknown = Settlement {
        id: row.id.clone(),
        from: DeliveryState::Sending,
        state: DeliveryState::Unknown,
        items: 1,
        provider_id: None,
        reason: None,
        cause: None,
    };
    fresh.open(&[row]).await.unwrap();
    let settled = fresh.settle("w1", noon(), &[unknown]).await;
    assert_eq!(settled, [true]);

    let seen = findings(fresh.url()).await;

    found(&seen, "unknown emails", Severity::Warning, "1 email has an unknown outcome");
}

async fn a_missing_sqlite_index_is_named(fresh: Fresh) {
    let file = fresh.url().strip_prefix("sqlite:").unwrap().to_owned();
    let connection = rusqlite::Connection::open(file).unwrap();
    connection.execute_batch("DROP INDEX deliveries_by_tag").unwrap();

    let seen = findings(fresh.url()).await;

    let named = "deliveries(deliveries_by_tag)";
    found(&seen, "indexes", Severity::Warning, named);
}

async fn a_missing_or_wrong_mongodb_index_is_named_but_not_created(fresh: Fresh) {
    let client = mongodb::Client::with_uri_str(fresh.url()).await.unwrap();
    let database = client.default_database().unwrap();
    let deliveries = database.collection::<bson::Document>("deliveries");
    deliveries.drop_index("tidings_tag_1").await.unwrap();
    let fanouts = database.collection::<bson::Document>("fanouts");
    fanouts.drop_index("tidings_key_1").await.unwrap();
    let plain = mongodb::IndexModel::builder().keys(doc! {"key": 1.0});
    fanouts.create_index(plain.build()).await.unwrap();

    for _ in 0..2 {
        let seen = findings(fresh.url()).await;

        let named = "missing: fanouts(key); deliveries(tag)";
        found(&seen, "indexes", Severity::Warning, named);
    }
}

async fn the_version_and_replication_of_mongodb_are_reported(fresh: Fresh) {
    let seen = findings(fresh.url()).await;

    found(&seen, "database", Severity::Ok, "MongoDB ");
    found(&seen, "clock", Severity::Ok, "agree");
    assert!(super::of(&seen, "replication").result.starts_with("a replica set of"));
}

async fn a_wrong_clock_is_an_error(fresh: Fresh) {
    let config = Config::parse(&format!("store = \"{}\"", fresh.url())).unwrap();
    let wrong = Arc::new(ManualClock::at(noon()));

    let seen = doctor(&config, LOOK, wrong).await.run().await;

    found(&seen, "clock", Severity::Error, "NTP");
}

async fn an_unreadable_schema_note_does_not_prevent_other_checks(fresh: Fresh) {
    let config = Config::parse(&format!("{HEALTHY}store = \"{}\"", fresh.url())).unwrap();
    let doctor = doctor(&config, LOOK, Arc::new(SystemClock)).await;
    fresh.put_note("schema", "not a schema").await;

    let seen = doctor.run().await;

    found(&seen, "schema", Severity::Error, "schema");
    for check in ["database", "indexes", "writing"] {
        found(&seen, check, Severity::Ok, "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_database_is_an_error_and_other_checks_still_run() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mongodb://{}/tidings", free.local_addr().unwrap());
    drop(free);
    let config = Config::parse(&format!("{HEALTHY}store = \"{url}\"")).unwrap();
    let look = DoctorOptions { timeout: Duration::from_secs(1), ..LOOK };

    let doctor = doctor(&config, look, Arc::new(SystemClock)).await;
    let seen = doctor.run().await;

    found(&seen, "database", Severity::Error, "Connection refused");
    for check in ["schema", "indexes", "writing", "sending", "unknown emails"] {
        found(&seen, check, Severity::Unchecked, "not opened");
    }
    found(&seen, "templates", Severity::Ok, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_sqlite_file_is_not_created() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.db");

    let seen = findings(&format!("sqlite:{}", file.display())).await;

    found(&seen, "database", Severity::Error, "new.db (no configuration file was read");
    assert!(!file.exists());
}
