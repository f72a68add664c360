//! Tests of the scope, start and end of mutes.

use chrono::TimeDelta;
use serde_json::json;

use super::*;

fn at(minutes: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800, 0).unwrap() + TimeDelta::minutes(minutes)
}

fn subject(name: &str) -> Subject {
    Subject::new(name).unwrap()
}

fn thread() -> Subject {
    subject("Thread:9")
}

/// Returns whether an event about the thread is muted if it happened at that time.
fn covers(mutes: &Mutes, minutes: i64) -> bool {
    let key = ObjectKey::stored("Thread:9");
    mutes.cover(at(minutes), &key, None, None, None).is_some()
}

#[test]
fn events_from_during_a_mute_stay_muted_after_it_ends() {
    let mut mutes = Mutes::default();
    mutes.mute(thread(), None, None, at(10));
    assert!(covers(&mutes, 0) && covers(&mutes, 10_000));

    mutes.unmute(&thread(), at(20));
    mutes.unmute(&thread(), at(30));

    assert!(covers(&mutes, 19) && !covers(&mutes, 20) && !covers(&mutes, 25));
    assert_eq!(mutes.standing(at(20)).count(), 0);
    assert!(mutes.may_cover(at(19)) && !mutes.may_cover(at(20)));
}

#[test]
fn a_mute_with_an_end_time_expires() {
    let mut mutes = Mutes::default();
    mutes.mute(thread(), Some(at(60)), None, at(0));

    assert!(covers(&mutes, 59) && !covers(&mutes, 60));
    assert_eq!(mutes.standing(at(59)).count(), 1);
    assert_eq!(mutes.standing(at(60)).count(), 0);
    assert!(!mutes.for_good(&thread()));
}

#[test]
fn muting_again_changes_the_end_and_not_the_start() {
    let mut mutes = Mutes::default();
    mutes.mute(thread(), Some(at(60)), Title::cut("Budget"), at(0));
    mutes.mute(thread(), None, None, at(5));
    let (_, mute) = mutes.all().next().unwrap();
    assert_eq!((mute.at, mute.until), (at(0), None));
    assert_eq!(mute.title, Title::cut("Budget"));

    // An end in the past ends the mute of a muted subject, and mutes no other subject.
    mutes.mute(thread(), Some(at(1)), None, at(7));
    mutes.mute(subject("Thread:10"), Some(at(7)), None, at(7));
    assert!(covers(&mutes, 6) && !covers(&mutes, 7));
    assert_eq!(mutes.len(), 1);

    // A mute that has ended starts again.
    mutes.mute(thread(), None, None, at(9));
    assert_eq!(mutes.all().next().unwrap().1.at, at(9));
}

#[test]
fn mutes_as_of_a_time_exclude_later_ones() {
    let mut mutes = Mutes::default();
    mutes.mute(thread(), None, None, at(10));
    mutes.mute(subject("artist:7"), None, None, at(20));
    let details = Details {
        reason: Some("follows artist:7".into()),
        ..Details::default()
    };
    let since = |mutes: &Mutes, key: &str| {
        let key = ObjectKey::stored(key);
        mutes.cover(at(0), &key, None, None, Some(&details))
    };
    assert_eq!(since(&mutes, "Thread:9"), Some(at(10)));
    assert_eq!(since(&mutes, "Thread:8"), Some(at(20)));

    mutes.as_of(at(15));

    assert_eq!(since(&mutes, "Thread:9"), Some(at(10)));
    assert_eq!(since(&mutes, "Thread:8"), None);
}

#[test]
fn expired_mutes_are_deleted_and_current_ones_are_not() {
    let mut mutes = Mutes::default();
    for (name, until) in [("a", Some(10)), ("b", Some(20)), ("c", None)] {
        mutes.mute(subject(name), until.map(at), None, at(0));
    }

    mutes.forget(at(10));

    let left: Vec<&str> = mutes.all().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(left, ["b", "c"]);
}

#[test]
fn a_user_has_at_most_1000_mutes() {
    let mut mutes = Mutes::default();
    for n in 0..Mutes::MOST {
        mutes.mute(subject(&format!("Thread:{n}")), None, None, at(0));
    }
    assert!(mutes.check().is_ok());

    mutes.mute(subject("one more"), None, None, at(0));

    let error = mutes.check().unwrap_err().to_string();
    assert!(error.contains("1001") && error.contains("1000"), "{error}");
}

#[test]
fn a_subject_is_an_object_its_topic_or_a_follow_key() {
    let phrase: Phrase = "commented on".parse().unwrap();
    let key = ObjectKey::stored("Comment:c1");
    let object = |title: &str, url: &str, data: serde_json::Value| Object {
        title: Some(title.into()),
        url: Some(url.into()),
        by: Some("Ada".into()),
        data: data.into(),
        ..Object::bare(key.clone())
    };
    let said = object(
        "Re: Budget",
        "https://a.example/1#c1",
        json!({"about": "Budget"}),
    );
    let linked = json!({"about": {"title": "Budget", "url": "https://a.example/1"}});
    let linked = object("Re: Budget", "https://a.example/1#c1", linked);
    let plain = object("Budget", "https://a.example/1#c1", json!(null));
    let follows = |reason: &str| Details {
        reason: Some(reason.into()),
        ..Details::default()
    };
    let is_muted = |name: &str, object: Option<&Object>, phrased: bool, reason: &str| {
        let mut mutes = Mutes::default();
        mutes.mute(subject(name), None, None, at(0));
        let phrase = Some(&phrase).filter(|_| phrased);
        let details = follows(reason);
        mutes
            .cover(at(0), &key, object, phrase, Some(&details))
            .is_some()
    };

    assert!(is_muted("Comment:c1", None, false, "named"));
    assert!(is_muted("Comment:c1", Some(&said), true, "named"));
    assert!(is_muted("Budget", Some(&said), false, "named"));
    assert!(is_muted(
        "https://a.example/1",
        Some(&linked),
        false,
        "named"
    ));
    assert!(is_muted("https://a.example/1", Some(&plain), true, "named"));
    assert!(is_muted(
        "artist:7",
        Some(&plain),
        false,
        "follows artist:7"
    ));
    // A topic with a URL is muted by that URL. Without a phrase, an object is its own topic.
    assert!(!is_muted("Budget", Some(&linked), false, "named"));
    assert!(!is_muted(
        "https://a.example/1",
        Some(&plain),
        false,
        "named"
    ));
    // With several follow keys it is unknown which one applies. An author is not a subject.
    assert!(!is_muted("artist:7", Some(&plain), false, "follows"));
    assert!(!is_muted(
        "artist:7",
        Some(&plain),
        false,
        "follows artist:70"
    ));
    assert!(!is_muted("Ada", Some(&plain), true, "named"));
}

#[test]
fn a_title_is_one_line_that_fits_into_a_link() {
    let cut = |text: &str| Title::cut(text).map(|title| title.as_str().to_owned());
    assert_eq!(cut(" Budget\n 2014\t"), Some("Budget 2014".into()));
    assert_eq!(cut(" \n"), None);
    let long = cut(&"ä".repeat(100)).unwrap();
    assert!(
        long.len() <= Title::MAX_BYTES && long.ends_with('…'),
        "{long}"
    );

    for refused in ["", " ", "a\nb"] {
        assert!(refused.parse::<Title>().is_err(), "{refused:?}");
    }
    let error = "x".repeat(121).parse::<Title>().unwrap_err().to_string();
    assert!(error.contains("121") && error.contains("120"), "{error}");
    assert_eq!(" Budget ".parse::<Title>().unwrap().as_str(), "Budget");
}
