//! What the server does for a question: how much it reads, and whether it has to sort.

use bson::{Document, doc};
use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use tidings::domain::due_choices::Common;
use tidings::domain::user::DigestPreference;
use tidings::domain::{Cadence, DueChoices, Schedule, User};
use tidings::store::{People, PeopleFilter};

use crate::support::*;

/// What the server did for what was asked of this collection meanwhile: one question.
async fn profiled(store: &Fresh, collection: &str, asking: impl Future<Output = ()>) -> Document {
    let client = mongodb::Client::with_uri_str(store.url()).await.unwrap();
    let database = client.default_database().unwrap();
    let asked = database.collection::<Document>("system.profile");
    asked.drop().await.unwrap();
    database.run_command(doc! {"profile": 2}).await.unwrap();
    asking.await;
    database.run_command(doc! {"profile": 0}).await.unwrap();
    let of = doc! {"ns": format!("{}.{collection}", database.name())};
    let mut found = asked.find(of).await.unwrap();
    assert!(found.advance().await.unwrap(), "nothing was asked");
    found.deserialize_current().unwrap()
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
