//! Compatibility with older writers: their documents give the right feeds and digests, and a reader
//! with the original's rule understands our markers.

use serde_json::Value;
use tidings::domain::{Day, User};

use crate::support::town::{Town, monday, on_both_stores, saturday, to};
use crate::support::{Fresh, Shorthand, user};

on_both_stores! {
    documents_of_older_writers_give_the_right_feed
    documents_of_older_writers_give_the_right_digest
    flushed_events_look_flushed_to_the_original_reader
}

/// A user whose old documents have an ObjectId as `_id`.
const MARA: &str = "533998b1c9dc24c371000041";

/// Stores two days in the original's form: bare events, bare markers, ObjectIds in `_id` and `o`.
async fn put_original_documents(town: &Town) {
    let friday = Day::of(saturday()).days_before(1);
    let thursday = friday.days_before(1);
    let days = [
        (
            thursday,
            vec![
                r#"{"_id":"ada","events":[{"t":"ArtworkPublished","o":"a1"},{"flushed":{"$oid":"5334647b139b2165160000d8"}},{"t":"ArtworkPublished","o":"a2"},{"t":"ArtworkPublished","o":"a2"}]}"#.to_owned(),
                format!(r#"{{"_id":{{"$oid":"{MARA}"}},"events":[{{"t":"ArtworkPublished","o":"a1"}}]}}"#),
            ],
        ),
        (
            friday,
            vec![
                r#"{"_id":"ada","events":[{"t":"ArtworkPublished","o":"a2"},{"t":"ArtworkPublished","o":{"$oid":"5334647b139b2165160000d8"}},{"t":"NearbyShow","o":"a9"}]}"#.to_owned(),
                format!(r#"{{"_id":{{"$oid":"{MARA}"}},"events":[{{"t":"ArtworkPublished","o":"a3"}},{{"flushed":{{"$oid":"5334647b139b2165160000d8"}}}}]}}"#),
            ],
        ),
    ];
    for (day, documents) in days {
        town.store.restore_stacks(day, &documents).await;
    }
    let mara = User {
        confirmed: true,
        email: tidings::domain::Address::new("mara@example.org").ok(),
        ..User::new(user(MARA))
    };
    town.store.put_users(&[mara]).await.unwrap();
    // The original's objects have ObjectIds as well. Events about unknown objects are not emailed.
    town.put_works(&["5334647b139b2165160000d8"], |_| true).await;
}

async fn feed(town: &Town, person: &str) -> Vec<(String, String)> {
    let items = town.feed(person).await.items.into_iter();
    items.map(|item| (item.id.to_string(), item.object_id.to_string())).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, object)| ((*id).to_owned(), (*object).to_owned())).collect()
}

async fn documents_of_older_writers_give_the_right_feed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    put_original_documents(&town).await;
    town.happens(&["a4"], to(&["ada", MARA])).await;

    let ada = [
        ("20140419.0", "a4"),
        ("20140418.1", "5334647b139b2165160000d8"),
        ("20140417.2", "a2"),
        ("20140417.0", "a1"),
    ];
    assert_eq!(feed(&town, "ada").await, pairs(&ada));
    let mara = [("20140419.0", "a4"), ("20140418o.0", "a3"), ("20140417o.0", "a1")];
    assert_eq!(feed(&town, MARA).await, pairs(&mara));
}

async fn documents_of_older_writers_give_the_right_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    put_original_documents(&town).await;
    town.happens(&["a4"], to(&["ada", MARA])).await;

    let report = town.digests_at(monday(0)).await;
    let again = town.digests_at(monday(0) + chrono::TimeDelta::days(1)).await;

    assert_eq!((report.emails.sent, report.emails.events, again.emails.sent), (2, 5, 0));
    assert_eq!(town.emailed_to("ada"), ["a2", "a4"]);
    assert!(
        town.emails()[1].fill_links().text.contains("5334647b139b2165160000d8"),
        "an object under an ObjectId is known by its hex text"
    );
    assert_eq!(
        town.emailed_to(MARA),
        ["a1", "a4"],
        "a marker on Friday covers Friday, not Thursday"
    );
    town.digests_at(monday(1)).await;
    assert_eq!(town.emails().len(), 2, "the markers stand in the documents of the older writers");
}

/// Applies the original's rule: returns the distinct events after the last `flushed`.
fn pending_for_the_original(document: &Value) -> Vec<String> {
    let events = document["events"].as_array().unwrap();
    let from =
        events.iter().rposition(|entry| entry.get("flushed").is_some()).map_or(0, |last| last + 1);
    let mut kept: Vec<String> = Vec::new();
    for entry in &events[from..] {
        let name = format!("{}/{}", entry["t"].as_str().unwrap(), entry["o"].as_str().unwrap());
        if !kept.contains(&name) {
            kept.push(name);
        }
    }
    kept
}

async fn flushed_events_look_flushed_to_the_original_reader(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let read = async |day: Day| -> Vec<String> {
        let documents = fresh.exported(day).await;
        let ada = documents
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .find(|d| d["_id"] == "ada");
        ada.map_or(Vec::new(), |ada| pending_for_the_original(&ada))
    };
    let (first, second) = (Day::of(saturday()), Day::of(monday(0)));
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    assert_eq!(read(first).await, ["ArtworkPublished/a1", "ArtworkPublished/a2"]);

    town.digests_at(monday(0)).await;
    assert_eq!(read(first).await, Vec::<String>::new());
    town.happens(&["a3"], to(&["ada"])).await;
    assert_eq!(
        (read(first).await, read(second).await),
        (vec![], vec!["ArtworkPublished/a3".to_owned()])
    );
    town.digests_at(monday(1)).await;
    assert_eq!(read(second).await, Vec::<String>::new());
}
