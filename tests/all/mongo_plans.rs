//! The cost of MongoDB statements: how many there are, how much each reads, and whether it sorts.

use bson::{Document, doc};
use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use futures::TryStreamExt;
use tidings::domain::batch::{Accumulator, AccumulatorId, BatchAppend};
use tidings::domain::delivery::{Handover, Settlement};
use tidings::domain::schedule::DigestDefaults;
use tidings::domain::user::DigestPreference;
use tidings::domain::{Cadence, Delivery, DeliveryState, DueUserFilter, Schedule, User, UserId};
use tidings::store::{NewMarker, UserFilter};

use crate::store_laws::adding::joined_by;
use crate::store_laws::batches::{WINDOW, item};
use crate::support::town::only_on_mongo;
use crate::support::*;

only_on_mongo! {
    due_users_are_read_from_the_index_and_only_up_to_the_page
    the_stacks_of_a_few_users_are_looked_up_by_id
    object_ids_are_looked_up_only_on_days_that_contain_some
    equal_markers_of_adjacent_users_share_statements
    an_addition_to_many_open_batches_needs_one_statement
    different_additions_to_many_open_batches_share_statements
    equal_changes_of_deliveries_share_a_statement
}

/// Returns the profiler's entries for this collection while the future runs, in order.
async fn all_profiled(
    store: &Fresh,
    collection: &str,
    work: impl Future<Output = ()>,
) -> Vec<Document> {
    let client = mongodb::Client::with_uri_str(store.url()).await.unwrap();
    let database = client.default_database().unwrap();
    let profile = database.collection::<Document>("system.profile");
    profile.drop().await.unwrap();
    database.run_command(doc! {"profile": 2}).await.unwrap();
    work.await;
    database.run_command(doc! {"profile": 0}).await.unwrap();
    let of = doc! {"ns": format!("{}.{collection}", database.name())};
    let found = profile.find(of).sort(doc! {"$natural": 1}).await.unwrap();
    found.try_collect().await.unwrap()
}

/// Returns the first entry of the profiler. Fails if there is none.
async fn profiled(store: &Fresh, collection: &str, work: impl Future<Output = ()>) -> Document {
    let mut all = all_profiled(store, collection, work).await;
    assert!(!all.is_empty(), "nothing was asked");
    all.swap_remove(0)
}

/// Returns the profiler's entry for the lookups of today's stacks.
async fn profiled_today(store: &Fresh, work: impl Future<Output = ()>) -> Document {
    let name = today().collection_name();
    let all = all_profiled(store, "$cmd.aggregate", work).await;
    let of_today = all.into_iter().find(|one| {
        let command = one.get_document("command").unwrap();
        let stages = command.get_array("pipeline").unwrap();
        format!("{stages:?}").contains(&name)
    });
    of_today.expect("today's stacks were looked up")
}

/// Counts the update statements among these entries.
fn updates(profile: &[Document]) -> usize {
    let is_update = |one: &&Document| one.get_str("op").is_ok_and(|op| op == "update");
    profile.iter().filter(is_update).count()
}

/// Covers both an ordinary scan and one after two days without a worker.
async fn due_users_are_read_from_the_index_and_only_up_to_the_page(store: Fresh) {
    let people: Vec<User> = (0..3_000)
        .map(|n| User {
            digest: DigestPreference {
                cadence: [None, Some(Cadence::Daily)][n % 2],
                weekday: [None, Some(Weekday::Tue)][n / 2 % 2],
                hour: Some((n / 4 % 24) as u8),
                since: None,
            },
            ..User::new(user(&format!("u{n:04}")))
        })
        .collect();
    store.put_users(&people).await.unwrap();
    let common = DigestDefaults {
        schedule: Schedule { cadence: Cadence::Daily, weekday: Weekday::Mon, hour: 9, tz: Tz::UTC },
        sends_mandatory: true,
    };
    let until: DateTime<Utc> = "2014-04-22T09:00:00Z".parse().unwrap();
    let spans = [TimeDelta::minutes(30), TimeDelta::days(2)];
    let requested: Vec<DueUserFilter> = spans
        .into_iter()
        .flat_map(|span| DueUserFilter::due_between(None, &common, until - span, until))
        .collect();

    for choices in &requested {
        let profile = profiled(&store, "users", async {
            let chose = UserFilter::Choices(choices);
            store.find_users(&chose, None, 5).await.unwrap();
        });
        let profile = profile.await;
        assert_eq!(profile.get("hasSortStage"), None, "{profile}");
        assert_eq!(profile.get_i32("docsExamined").unwrap(), 0, "{profile}");
        // Each combination of choices starts a new range of the index, which costs a few keys.
        assert!(profile.get_i32("keysExamined").unwrap() < 400, "{profile}");
    }
}

/// Reading a few of many users must not read the others.
async fn the_stacks_of_a_few_users_are_looked_up_by_id(store: Fresh) {
    let all_users = people(3_000);
    store.push_list_to_all(&all_users, events(1, 1)).await;
    let requested: Vec<_> = all_users.iter().step_by(100).cloned().collect();
    let mut found = Vec::new();

    let profile = profiled_today(&store, async {
        found = store.windows(window(), &requested).await.unwrap();
    });
    let profile = profile.await;

    assert_eq!(found.iter().filter(|one| one.stacks.len() == 1).count(), 30);
    assert_eq!(profile.get_i32("nreturned").unwrap(), 30, "{profile}");
    assert!(profile.get_i32("docsExamined").unwrap() <= 60, "{profile}");
}

/// Documents of older writers may have an ObjectId as `_id`. Looking for them doubles the work, so
/// it is skipped on days without any.
async fn object_ids_are_looked_up_only_on_days_that_contain_some(store: Fresh) {
    let hex = |n: usize| format!("{:024x}", 0x5334_0000 + n);
    let all_users: Vec<UserId> = (0..300).map(|n| user(&hex(n))).collect();
    store.push_list_to_all(&all_users, events(1, 1)).await;
    let requested: Vec<UserId> = all_users.iter().step_by(10).cloned().collect();
    let old = format!(r#"{{"_id":{{"$oid":"{}"}},"events":[{{"t":"T","o":"o"}}]}}"#, hex(10));

    for (old, lookups, stacks) in [(None, 30, 30), (Some(old), 60, 31)] {
        let lines: Vec<String> = old.into_iter().collect();
        store.restore_stacks(today(), &lines).await;
        let mut found = Vec::new();
        let profile = profiled_today(&store, async {
            found = store.windows(window(), &requested).await.unwrap();
        });
        let profile = profile.await;

        assert_eq!(found.iter().map(|one| one.stacks.len()).sum::<usize>(), stacks);
        let command = profile.get_document("command").unwrap();
        let stages = command.get_array("pipeline").unwrap();
        let stage = stages[0].as_document().unwrap();
        let ids = stage.get_array("$documents").unwrap();
        assert_eq!(ids.len(), lookups);
    }
}

/// The digests of a run give thousands of users the same marker.
async fn equal_markers_of_adjacent_users_share_statements(store: Fresh) {
    let all_users = people(600);
    store.push_list_to_all(&all_users, events(2, 1)).await;
    let marked: Vec<UserId> = all_users.iter().step_by(2).cloned().collect();
    let marker = |person: &UserId| new_marker(person, today(), id(9), 2);
    let markers: Vec<NewMarker> = marked.iter().map(marker).collect();

    let day = today().collection_name();
    let profile = all_profiled(&store, &day, async {
        let bad = store.write_markers(&markers).await.unwrap();
        assert!(bad.is_empty(), "{bad:?}");
    });
    let statements = updates(&profile.await);

    assert!((1..=3).contains(&statements), "{statements} for 300 users");
    for person in store.windows(window(), &all_users).await.unwrap() {
        let is_marked = person.stacks[0].markers().count() == 1;
        assert_eq!(is_marked, marked.contains(&person.user), "{}", person.user);
    }
}

/// Planning a statement costs more than adding an event.
async fn an_addition_to_many_open_batches_needs_one_statement(store: Fresh) {
    let opened = |n: usize| joined_by(&format!("p{n:03}"), &WINDOW, &[1]);
    let accumulators: Vec<Accumulator> = (0..120).map(opened).collect();
    store.put_accumulators(&accumulators, id(5)).await.unwrap();
    let addition = BatchAppend::new(vec![item("b", 50)], noon() + minutes(1), &WINDOW).unwrap();
    let requested = accumulators.iter().map(|of| (of.id.clone(), 0));
    let requested: Vec<(AccumulatorId, usize)> = requested.collect();

    let profile = all_profiled(&store, "accumulators", async {
        let added = store.add_to_open(&requested, &[addition], id(6)).await;
        assert!(added.unwrap());
    });
    assert_eq!(updates(&profile.await), 1);
}

/// Events of different fan-outs reach many users at the same time.
async fn different_additions_to_many_open_batches_share_statements(store: Fresh) {
    let opened = |n: usize| joined_by(&format!("p{n:03}"), &WINDOW, &[1]);
    let accumulators: Vec<Accumulator> = (0..120).map(opened).collect();
    store.put_accumulators(&accumulators, id(5)).await.unwrap();
    let addition = |n: u32| {
        let items = vec![item(&format!("b{n}"), 100 + n)];
        BatchAppend::new(items, noon() + minutes(1), &WINDOW).unwrap()
    };
    let additions: Vec<BatchAppend> = (0..120).map(addition).collect();
    let requested = accumulators.iter().map(|of| of.id.clone());
    let requested: Vec<(AccumulatorId, usize)> = requested.zip(0..).collect();

    let profile = all_profiled(&store, "accumulators", async {
        let added = store.add_to_open(&requested, &additions, id(6)).await;
        assert!(added.unwrap());
    });
    let statements = updates(&profile.await);

    assert!((1..=6).contains(&statements), "{statements} for 120 users");
}

/// An email has one row, and each change is written for many rows together.
async fn equal_changes_of_deliveries_share_a_statement(store: Fresh) {
    let all_users = people(100);
    let row = |person: &UserId| delivery(person.as_str(), "2014-04-22", "one");
    let rows: Vec<Delivery> = all_users.iter().map(row).collect();
    store.open(&rows).await.unwrap();
    let handovers: Vec<Handover> = rows.iter().map(|row| handover(&row.id, "x")).collect();
    let settle = |(n, row): (usize, &Delivery)| Settlement {
        from: DeliveryState::Sending,
        provider_id: Some(format!("<{n}@esp>")),
        ..Settlement::for_row(row, DeliveryState::Sent, 3, None)
    };
    let ends: Vec<Settlement> = rows.iter().enumerate().map(settle).collect();
    let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();

    let profile = all_profiled(&store, "deliveries", async {
        let until = noon() + TimeDelta::minutes(5);
        store.sending("one", noon(), until, &handovers).await;
        store.settle("one", noon(), &ends).await;
        store.close(&ids).await.unwrap();
    });

    assert_eq!(updates(&profile.await), 3);
    let rows = store.deliveries(&ids).await.unwrap();
    assert!(rows.iter().flatten().all(|row| !row.open && row.attempts.made == 1));
}
