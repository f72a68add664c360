//! Emails with the same content share one rendered message. A message with personal content is not
//! shared (P8).

use std::sync::Arc;

use chrono_tz::Tz;
use tempfile::TempDir;
use tidings::domain::Cadence;

use crate::support::Fresh;
use crate::support::town::{Town, monday, mostly_on_sqlite, to};

mostly_on_sqlite! {
    recipients_of_the_same_events_share_one_message
    a_message_with_the_name_of_its_user_is_not_shared
    dates_are_in_the_time_zone_of_each_user
    daily_and_weekly_digests_do_not_share_a_message
}

/// Returns a town whose digests have this subject.
async fn with_subject(fresh: &Fresh, subject: &str) -> (Town, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("digest")).unwrap();
    std::fs::write(folder.path().join("digest/subject.txt"), subject).unwrap();
    let templates = folder.path();
    let config = format!("mail.templates = {templates:?}\ndelivery.chunk = 100\n");
    (Town::found(fresh, true, &config).await, folder)
}

/// Returns the address and the subject of each email.
fn subjects(town: &Town) -> Vec<(String, String)> {
    let emails = town.emails().into_iter();
    let mut subjects: Vec<_> =
        emails.map(|email| (email.to.reveal().to_owned(), email.fill_links().subject)).collect();
    subjects.sort();
    subjects
}

async fn recipients_of_the_same_events_share_one_message(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 100\n").await;
    let crowd = town.crowd(20).await;
    let names: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1", "a2"], to(&names)).await;
    town.happens(&["a3"], to(&names[..5])).await;

    town.digests_at(monday(0)).await;

    let emails = town.emails();
    let contents = |work: &str| {
        let mut of: Vec<_> = emails
            .iter()
            .filter(|email| email.fill_links().text.contains(work))
            .map(|email| Arc::as_ptr(&email.content))
            .collect();
        let people = of.len();
        of.dedup();
        (people, of.len())
    };
    assert_eq!(emails.len(), 20);
    assert_eq!(contents("Work a3."), (5, 1));
    let mut all: Vec<_> = emails.iter().map(|email| Arc::as_ptr(&email.content)).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2);
}

async fn a_message_with_the_name_of_its_user_is_not_shared(fresh: Fresh) {
    let (town, _folder) = with_subject(&fresh, "News for {{ user.name }}").await;
    for (person, name) in [("ada", "Ada"), ("ben", "Ben"), ("cem", "Cem")] {
        town.change(person, |user| user.name = Some(name.into())).await;
    }
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;

    town.digests_at(monday(0)).await;

    let own = ["Ada", "Ben", "Cem"].map(|name| {
        let address = format!("{}@example.org", name.to_lowercase());
        (address, format!("News for {name}"))
    });
    assert_eq!(subjects(&town), own);
}

async fn dates_are_in_the_time_zone_of_each_user(fresh: Fresh) {
    let (town, _folder) = with_subject(&fresh, "News of {{ date }}").await;
    for (person, tz) in [("ben", Tz::Pacific__Kiritimati), ("cem", Tz::UTC)] {
        town.change(person, |user| user.tz = Some(tz)).await;
    }
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;

    // On Monday at half past ten in UTC it is Tuesday in Kiritimati.
    town.digests_at(monday(0) + chrono::TimeDelta::hours(1)).await;

    let expected = [
        ("ada@example.org", "News of 21 April 2014"),
        ("ben@example.org", "News of 22 April 2014"),
        ("cem@example.org", "News of 21 April 2014"),
    ];
    let expected = expected.map(|(person, subject)| (person.to_owned(), subject.to_owned()));
    assert_eq!(subjects(&town), expected);
}

async fn daily_and_weekly_digests_do_not_share_a_message(fresh: Fresh) {
    let (town, _folder) = with_subject(&fresh, "Your {{ cadence }} news").await;
    town.change("ben", |ben| ben.digest.cadence = Some(Cadence::Daily)).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    town.digests_at(monday(0)).await;

    let expected =
        [("ada@example.org", "Your weekly news"), ("ben@example.org", "Your daily news")];
    let expected = expected.map(|(person, subject)| (person.to_owned(), subject.to_owned()));
    assert_eq!(subjects(&town), expected);
}
