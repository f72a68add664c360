//! What the server does for a question: how much it reads, and whether it has to sort.

use bson::{Document, doc};
use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use futures::TryStreamExt;
use tidings::domain::batch::{Accumulator, AccumulatorId, Addition};
use tidings::domain::delivery::{Handover, Settlement};
use tidings::domain::due_choices::Common;
use tidings::domain::user::DigestPreference;
use tidings::domain::{
    Address, Cadence, Delivery, DeliveryState, DueChoices, Schedule, User, UserId,
};
use tidings::store::{Meeting, NewMarker, People, PeopleFilter};

use crate::store_laws::adding::joined_by;
use crate::store_laws::batches::{WINDOW, item};
use crate::support::*;

/// What the server did for what was asked of this collection meanwhile, question by question.
async fn all_profiled(
    store: &Fresh,
    collection: &str,
    asking: impl Future<Output = ()>,
) -> Vec<Document> {
    let client = mongodb::Client::with_uri_str(store.url()).await.unwrap();
    let database = client.default_database().unwrap();
    let asked = database.collection::<Document>("system.profile");
    asked.drop().await.unwrap();
    database.run_command(doc! {"profile": 2}).await.unwrap();
    asking.await;
    database.run_command(doc! {"profile": 0}).await.unwrap();
    let of = doc! {"ns": format!("{}.{collection}", database.name())};
    let found = asked.find(of).sort(doc! {"$natural": 1}).await.unwrap();
    found.try_collect().await.unwrap()
}

/// The same where it is one question.
async fn profiled(store: &Fresh, collection: &str, asking: impl Future<Output = ()>) -> Document {
    let mut all = all_profiled(store, collection, asking).await;
    assert!(!all.is_empty(), "nothing was asked");
    all.swap_remove(0)
}

/// Statements of updates among what was asked.
fn updates(asked: &[Document]) -> usize {
    let is_update = |one: &&Document| one.get_str("op").is_ok_and(|op| op == "update");
    asked.iter().filter(is_update).count()
}

/// After days without a worker, and in an ordinary tick: a page is read from the index, in order.
#[tokio::test(flavor = "multi_thread")]
async fn whose_digests_fall_due_is_read_from_the_index_and_no_further_than_the_page() {
    mongo::run(async |store: Fresh| {
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
        let common = Common {
            schedule: Schedule {
                cadence: Cadence::Daily,
                weekday: Weekday::Mon,
                hour: 9,
                tz: Tz::UTC,
            },
            mandatory: true,
        };
        let until: DateTime<Utc> = "2014-04-22T09:00:00Z".parse().unwrap();
        let spans = [TimeDelta::minutes(30), TimeDelta::days(2)];
        let asked: Vec<DueChoices> = spans
            .into_iter()
            .flat_map(|span| DueChoices::between(None, &common, until - span, until))
            .collect();

        for choices in &asked {
            let told = profiled(&store, "users", async {
                let chose = PeopleFilter::Chose(choices);
                store.find_people(&chose, None, 5).await.unwrap();
            });
            let told = told.await;
            assert_eq!(told.get("hasSortStage"), None, "{told}");
            assert_eq!(told.get_i32("docsExamined").unwrap(), 0, "{told}");
            // Each range is begun with.
            assert!(told.get_i32("keysExamined").unwrap() < 400, "{told}");
        }
    })
    .await;
}

/// The index has the order of addresses, so that counting ends at the limit.
#[tokio::test(flavor = "multi_thread")]
async fn shared_addresses_are_counted_from_the_index_and_up_to_the_limit() {
    mongo::run(async |store: Fresh| {
        let people: Vec<User> = (0..1_000)
            .map(|n| User {
                email: Address::new(format!("a{}@example.org", n / 2)).ok(),
                ..User::new(user(&format!("u{n:04}")))
            })
            .collect();
        store.put_users(&people).await.unwrap();

        let told = profiled(&store, "users", async {
            let shared = store.shared_addresses(100).await.unwrap();
            assert_eq!((shared.read, shared.addresses), (100, 50));
        });
        let told = told.await;

        assert_eq!(told.get("hasSortStage"), None, "{told}");
        assert!(told.get_i32("docsExamined").unwrap() <= 101, "{told}");
        assert!(told.get_i32("keysExamined").unwrap() <= 101, "{told}");
    })
    .await;
}

/// Of many people on a day, those who are asked for are looked up, and nobody else is read.
#[tokio::test(flavor = "multi_thread")]
async fn the_stacks_of_some_of_many_people_are_looked_up() {
    mongo::run(async |store: Fresh| {
        let everybody = people(3_000);
        let pushes = push_to_all(&everybody, events(1, 1));
        store.push(today(), 1_000, &pushes).await.unwrap();
        let asked: Vec<_> = everybody.iter().step_by(100).cloned().collect();
        let mut found = Vec::new();

        let told = profiled(&store, "$cmd.aggregate", async {
            found = store.windows(window(), People::Each(&asked)).await.unwrap();
        });
        let told = told.await;

        assert_eq!(found.iter().filter(|one| one.stacks.len() == 1).count(), 30);
        assert_eq!(told.get_i32("nreturned").unwrap(), 30, "{told}");
        assert!(told.get_i32("docsExamined").unwrap() <= 60, "{told}");
    })
    .await;
}

/// Ids of documents that older writers made are ObjectIds; where nobody has such a one on a day,
/// looking for it is half of the work for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn people_are_looked_for_under_object_ids_only_where_somebody_has_one() {
    mongo::run(async |store: Fresh| {
        let hex = |n: usize| format!("{:024x}", 0x5334_0000 + n);
        let everybody: Vec<UserId> = (0..300).map(|n| user(&hex(n))).collect();
        let pushes = push_to_all(&everybody, events(1, 1));
        store.push(today(), 1_000, &pushes).await.unwrap();
        let asked: Vec<UserId> = everybody.iter().step_by(10).cloned().collect();
        let old = format!(
            r#"{{"_id":{{"$oid":"{}"}},"events":[{{"t":"T","o":"o"}}]}}"#,
            hex(10)
        );

        for (old, looked, stacks) in [(None, 30, 30), (Some(old), 60, 31)] {
            let lines: Vec<String> = old.into_iter().collect();
            let restored = store.restore_day(today(), &lines, Meeting::Same);
            restored.await.unwrap();
            let mut found = Vec::new();
            let told = profiled(&store, "$cmd.aggregate", async {
                found = store.windows(window(), People::Each(&asked)).await.unwrap();
            });
            let told = told.await;

            assert_eq!(
                found.iter().map(|one| one.stacks.len()).sum::<usize>(),
                stacks
            );
            let command = told.get_document("command").unwrap();
            let stages = command.get_array("pipeline").unwrap();
            let stage = stages[0].as_document().unwrap();
            let ids = stage.get_array("$documents").unwrap();
            assert_eq!(ids.len(), looked);
        }
    })
    .await;
}

/// Neighbors who are marked alike are one statement; who stands far from the others has their own,
/// as everybody between them would be read.
#[tokio::test(flavor = "multi_thread")]
async fn only_neighbors_are_marked_by_one_statement() {
    mongo::run(async |store: Fresh| {
        let everybody = people(2_000);
        let pushes = push_to_all(&everybody, events(2, 1));
        store.push(today(), 1_000, &pushes).await.unwrap();

        for (step, statements) in [(2, 1), (20, 50)] {
            let marked = everybody.iter().step_by(step).take(50);
            let markers: Vec<NewMarker> = marked
                .map(|person| new_marker(person, today(), id(step as u32), 2))
                .collect();
            let day = today().collection();
            let asked = all_profiled(&store, &day, async {
                assert_eq!(store.write_markers(&markers).await.unwrap(), []);
            });
            assert_eq!(updates(&asked.await), statements, "one in {step}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_neighbors_who_have_stacks_are_pushed_to_by_one_statement() {
    mongo::run(async |store: Fresh| {
        let everybody = people(2_000);
        let push = async |crowd: &[UserId], n: u32| {
            let pushes = push_to_all(crowd, events(1, n));
            store.push(today(), 1_000, &pushes).await.unwrap();
        };
        for n in 1..=3 {
            push(&everybody, n).await;
        }
        let every = |nth: usize| -> Vec<UserId> {
            let some = everybody.iter().step_by(nth).take(50);
            some.cloned().collect()
        };
        // Some who have none: that is found out, and they are pushed to alone.
        let mut new = every(2);
        new.extend(["p00004b", "p00008b"].map(user));
        new.sort();

        let day = today().collection();
        let crowds = [(every(2), 1), (every(20), 50), (new, 1 + 2), (every(3), 1)];
        for ((crowd, statements), n) in crowds.into_iter().zip(10..) {
            let asked = all_profiled(&store, &day, push(&crowd, n)).await;
            assert_eq!(updates(&asked), statements, "the {n}th");
        }
    })
    .await;
}

/// Who has no room, and who has no stack, is pushed to alone, push by push; nobody else is,
/// however long the list is.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_lacks_a_long_list_is_found_and_pushed_to_alone() {
    mongo::run(async |store: Fresh| {
        let everybody = people(60);
        let filled = push_to_all(&everybody[7..8], events(35, 1));
        store.push(today(), 40, &filled).await.unwrap();
        let stand = people(59);
        for n in 2..=4 {
            let pushes = push_to_all(&stand, events(1, n));
            store.push(today(), 40, &pushes).await.unwrap();
        }

        let day = today().collection();
        // `p00007` has room for two of the first list, and is tried once more: its stack might
        // just have been created. The last has a stack from then on.
        for (n, alone, capped) in [(5, 2 + 1 + 1, 3), (6, 1 + 1, 5)] {
            let asked = all_profiled(&store, &day, async {
                let pushes = push_to_all(&everybody, events(5, n));
                let pushed = store.push(today(), 40, &pushes).await.unwrap();
                assert_eq!(pushed.capped.len(), 1);
                assert_eq!((pushed.capped[0].0, pushed.capped[0].1.len()), (7, capped));
            });
            assert_eq!(updates(&asked.await), 1 + alone, "the {n}th");
        }

        let lengths = async |n: usize| store.entries_of(&everybody[n], today()).await.len();
        assert_eq!((lengths(7).await, lengths(59).await), (40, 10));
        assert_eq!(lengths(8).await, 3 + 10);
    })
    .await;
}

/// Days as older writers made them, where each of many is looked up.
#[tokio::test(flavor = "multi_thread")]
async fn people_far_apart_on_an_ordinary_day_are_pushed_to_by_one_statement() {
    mongo::run(async |store: Fresh| {
        let client = mongodb::Client::with_uri_str(store.url()).await.unwrap();
        let database = client.default_database().unwrap();
        let day = today().collection();
        database.create_collection(&day).await.unwrap();
        let everybody = people(2_000);
        for n in 1..=3 {
            let pushes = push_to_all(&everybody, events(1, n));
            store.push(today(), 1_000, &pushes).await.unwrap();
        }
        let some: Vec<UserId> = everybody.iter().step_by(20).take(50).cloned().collect();

        let asked = all_profiled(&store, &day, async {
            let pushes = push_to_all(&some, events(1, 4));
            store.push(today(), 1_000, &pushes).await.unwrap();
        });

        let asked = asked.await;
        assert_eq!(updates(&asked), 1);
        let looked = |one: &&Document| one.get_i32("docsExamined").is_ok_and(|n| n <= 50);
        assert_eq!(asked.iter().filter(looked).count(), asked.len());
        assert_eq!(store.entries_of(&some[49], today()).await.len(), 4);
        assert_eq!(store.entries_of(&everybody[1], today()).await.len(), 3);
    })
    .await;
}

/// To plan a statement costs more than to add an event.
#[tokio::test(flavor = "multi_thread")]
async fn what_joins_many_open_batches_is_added_by_few_statements() {
    mongo::run(async |store: Fresh| {
        let opened = |n: usize| joined_by(&format!("p{n:03}"), &WINDOW, &[1]);
        let accumulators: Vec<Accumulator> = (0..120).map(opened).collect();
        store.put_accumulators(&accumulators, id(5)).await.unwrap();
        let add = |n: u32| {
            let items = vec![item("b", 50 + n)];
            Addition::new(items, noon() + minutes(1), &WINDOW).unwrap()
        };
        let ids = || accumulators.iter().map(|of| of.id.clone());
        let same: Vec<(AccumulatorId, usize)> = ids().map(|id| (id, 0)).collect();
        let own: Vec<(AccumulatorId, usize)> = ids().zip(0..).collect();
        let each: Vec<Addition> = (0..120).map(add).collect();

        // 200 that are added the same are one statement; of 50 each is looked up in a table.
        for (asked, additions, statements) in [(same, vec![add(200)], 1), (own, each, 3)] {
            let told = all_profiled(&store, "seats", async {
                let added = store.add_to_open(&asked, &additions, id(6)).await;
                assert!(added.unwrap());
            });
            assert_eq!(updates(&told.await), statements);
        }
    })
    .await;
}

/// A mail costs the ledger a row; what becomes of it is written for many rows together.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_changed_alike_are_changed_by_one_statement() {
    mongo::run(async |store: Fresh| {
        let everybody = people(100);
        let row = |person: &UserId| delivery(person.as_str(), "2014-04-22", "one");
        let rows: Vec<Delivery> = everybody.iter().map(row).collect();
        store.open(&rows).await.unwrap();
        let handovers: Vec<Handover> = rows.iter().map(|row| handover(&row.id, "x")).collect();
        let settle = |(n, row): (usize, &Delivery)| Settlement {
            provider_id: Some(format!("<{n}@esp>")),
            ..Settlement::of(row, DeliveryState::Sent, 3, None)
        };
        let ends: Vec<Settlement> = rows.iter().enumerate().map(settle).collect();
        let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();

        let asked = all_profiled(&store, "deliveries", async {
            let until = noon() + TimeDelta::minutes(5);
            store
                .sending("one", noon(), until, &handovers)
                .await
                .unwrap();
            store.settle("one", noon(), &ends).await.unwrap();
            store.close(&ids).await.unwrap();
        });

        assert_eq!(updates(&asked.await), 3);
        let rows = store.deliveries(&ids).await.unwrap();
        assert!(
            rows.iter()
                .flatten()
                .all(|row| !row.open && row.attempts.made == 1)
        );
    })
    .await;
}
