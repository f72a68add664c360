//! Whoever is told the same shares one mail, and nobody reads what is somebody else's.

use std::sync::Arc;

use chrono_tz::Tz;
use tempfile::TempDir;
use tidings::domain::Cadence;

use crate::support::Fresh;
use crate::support::town::{Town, monday, on_both_stores, to};

on_both_stores! {
    whoever_is_told_the_same_shares_one_mail
    a_mail_that_names_its_person_is_shared_with_nobody
    days_are_told_in_each_persons_zone
    a_daily_and_a_weekly_digest_are_not_the_same
}

/// A town whose digests have this subject.
async fn with_subject(fresh: &Fresh, subject: &str) -> (Town, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("digest")).unwrap();
    std::fs::write(folder.path().join("digest/subject.txt"), subject).unwrap();
    let templates = folder.path();
    let config = format!("mail.templates = {templates:?}\ndelivery.chunk = 100\n");
    (Town::found(fresh, true, &config).await, folder)
}

/// The subjects of all mails, by person.
fn subjects(town: &Town) -> Vec<(String, String)> {
    let mails = town.mails().into_iter();
    let mut subjects: Vec<_> = mails
        .map(|mail| (mail.to.reveal().to_owned(), mail.filled().subject))
        .collect();
    subjects.sort();
    subjects
}

async fn whoever_is_told_the_same_shares_one_mail(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 100\n").await;
    let crowd = town.crowd(20).await;
    let names: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1", "a2"], to(&names)).await;
    town.happens(&["a3"], to(&names[..5])).await;

    town.digests_at(monday(0)).await;

    let mails = town.mails();
    let contents = |work: &str| {
        let mut of: Vec<_> = mails
            .iter()
            .filter(|mail| mail.filled().text.contains(work))
            .map(|mail| Arc::as_ptr(&mail.content))
            .collect();
        let people = of.len();
        of.dedup();
        (people, of.len())
    };
    assert_eq!(mails.len(), 20);
    assert_eq!(contents("Work a3."), (5, 1));
    let mut all: Vec<_> = mails
        .iter()
        .map(|mail| Arc::as_ptr(&mail.content))
        .collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2);
}

async fn a_mail_that_names_its_person_is_shared_with_nobody(fresh: Fresh) {
    let (town, _folder) = with_subject(&fresh, "News for {{ user.name }}").await;
    for (person, name) in [("ada", "Ada"), ("ben", "Ben"), ("cem", "Cem")] {
        town.change(person, |user| user.name = Some(name.into()))
            .await;
    }
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;

    town.digests_at(monday(0)).await;

    let own = ["Ada", "Ben", "Cem"].map(|name| {
        let address = format!("{}@example.org", name.to_lowercase());
        (address, format!("News for {name}"))
    });
    assert_eq!(subjects(&town), own);
}

async fn days_are_told_in_each_persons_zone(fresh: Fresh) {
    let (town, _folder) = with_subject(&fresh, "News of {{ date }}").await;
    for (person, tz) in [("ben", Tz::Pacific__Kiritimati), ("cem", Tz::UTC)] {
        town.change(person, |user| user.tz = Some(tz)).await;
    }
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;

    // On Monday at half past ten in UTC it is Tuesday in Kiritimati.
    town.digests_at(monday(0) + chrono::TimeDelta::hours(1))
        .await;

    let told = [
        ("ada@example.org", "News of 21 April 2014"),
        ("ben@example.org", "News of 22 April 2014"),
        ("cem@example.org", "News of 21 April 2014"),
    ];
    let told = told.map(|(person, subject)| (person.to_owned(), subject.to_owned()));
    assert_eq!(subjects(&town), told);
}

async fn a_daily_and_a_weekly_digest_are_not_the_same(fresh: Fresh) {
    let (town, _folder) = with_subject(&fresh, "Your {{ cadence }} news").await;
    town.change("ben", |ben| ben.digest.cadence = Some(Cadence::Daily))
        .await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    town.digests_at(monday(0)).await;

    let told = [
        ("ada@example.org", "Your weekly news"),
        ("ben@example.org", "Your daily news"),
    ];
    let told = told.map(|(person, subject)| (person.to_owned(), subject.to_owned()));
    assert_eq!(subjects(&town), told);
}
