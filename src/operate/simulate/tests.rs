//! The replay against streams computed by hand, against a plain re-statement, and what it says of
//! streams that are none.

use std::num::NonZeroU64;
use std::path::Path;

use chrono::TimeDelta;
use proptest::prelude::*;

use super::read::{Order, events};
use super::*;
use crate::engine::Silent;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_772_409_600 + seconds, 0).unwrap()
}

fn comment(user: &str, seconds: i64) -> Happening {
    Happening {
        at: at(seconds),
        users: vec![UserId::stored(user)],
        kind: EventType::stored("Comment"),
        object: ObjectId::stored("budget"),
        key: None,
    }
}

fn minutes(window: i64, cooldown: i64, max_wait: Option<i64>) -> BatchPolicy {
    BatchPolicy {
        window: TimeDelta::minutes(window),
        cooldown: TimeDelta::minutes(cooldown),
        max_wait: max_wait.map(TimeDelta::minutes),
        ..BatchPolicy::IMMEDIATE
    }
}

fn run(happenings: Vec<Happening>, policy: BatchPolicy, key: Option<&str>) -> Report {
    let key = key.map(|key| ChosenKey::new(key).unwrap());
    let trials = vec![Trial::new("it", policy, key)];
    let happenings = happenings.into_iter().map(Ok);
    replay(happenings, trials, &Silent)
        .unwrap()
        .policies
        .remove(0)
}

/// Ada at 0:00, 1:00, 4:30 and 12:00, Ben at 2:00.
fn small() -> Vec<Happening> {
    vec![
        comment("ada", 0),
        comment("ada", 60),
        comment("ben", 120),
        comment("ada", 270),
        comment("ada", 720),
    ]
}

#[test]
fn a_small_stream_gives_what_is_computed_by_hand() {
    let (full, leading) = (
        BatchPolicy {
            close_at: NonZeroU64::new(2),
            ..minutes(5, 0, None)
        },
        BatchPolicy {
            leading: true,
            ..minutes(5, 0, None)
        },
    );
    // mails, the largest, most a person, and the delays' p50, p95 and max.
    let cases = [
        (BatchPolicy::IMMEDIATE, [5, 1, 4], [0, 0, 0]),
        // Ada at 5:00 (300, 240, 30 s) and 17:00 (300), Ben at 7:00 (300).
        (minutes(5, 0, None), [3, 3, 2], [300, 300, 300]),
        // Ada at 8:30 (510, 450, 240) and 16:00 (240), Ben at 6:00 (240).
        (minutes(0, 4, Some(15)), [3, 3, 2], [240, 510, 510]),
        // Ada at 7:00 (420, 360, 150) and 16:00, Ben at 6:00.
        (minutes(0, 4, Some(7)), [3, 3, 2], [240, 420, 420]),
        // Ada at 5:30 (330, 270, 60) and 17:00 (300), Ben at 7:00 (300).
        (minutes(5, 1, Some(15)), [3, 3, 2], [300, 330, 330]),
        // Ada at 1:00 (60, 0), 9:30 (300) and 17:00 (300), Ben at 7:00 (300).
        (full, [4, 2, 3], [300, 300, 300]),
        // Ada at 0:00 (0), 5:00 (240, 30) and 12:00 (0), Ben at 2:00 (0).
        (leading, [4, 2, 3], [0, 240, 240]),
    ];

    for (policy, counts, delays) in cases {
        let report = run(small(), policy, None);
        let per_person = report.mails_per_person;
        let delay = report.delay_seconds;
        assert_eq!(
            [report.mails, report.largest, per_person.max],
            counts,
            "{policy:?}"
        );
        assert_eq!([delay.p50, delay.p95, delay.max], delays, "{policy:?}");
        assert_eq!(per_person.mean, report.mails as f64 / 2.0);
        assert_eq!(
            report.delays.iter().map(|reach| reach.events).sum::<u64>(),
            5
        );
        assert_eq!(report.mails_by_hour[0], report.mails);
    }
}

#[test]
fn what_comes_at_the_moment_of_a_closing_goes_to_the_next() {
    let report = run(
        vec![comment("ada", 0), comment("ada", 300)],
        minutes(5, 0, None),
        None,
    );

    assert_eq!((report.mails, report.largest), (2, 1));
}

#[test]
fn keys_and_types_keep_apart_and_a_key_for_all_brings_together() {
    let mut stream = small();
    stream[1].kind = EventType::stored("Like");
    let acme = ChosenKey::new("acme").unwrap();
    let mut keyed = stream.clone();
    keyed[3].key = Some(acme);

    let mails = |stream: &Vec<Happening>, key| run(stream.clone(), minutes(5, 0, None), key).mails;

    assert_eq!((mails(&stream, None), mails(&stream, Some("all"))), (4, 3));
    assert_eq!((mails(&keyed, None), mails(&keyed, Some("all"))), (5, 4));
}

#[test]
fn an_event_for_several_people_is_one_for_each() {
    let mut both = comment("ada", 0);
    both.users.push(UserId::stored("ben"));
    let trials = vec![
        Trial::new("now", BatchPolicy::IMMEDIATE, None),
        Trial::new("later", minutes(5, 0, None), None),
    ];

    let told = replay(
        [both, comment("ben", 1)].into_iter().map(Ok),
        trials,
        &Silent,
    )
    .unwrap();

    assert_eq!((told.events, told.people), (3, 2));
    assert_eq!((told.from, told.to), (Some(at(0)), Some(at(1))));
    let mails: Vec<_> = told
        .policies
        .iter()
        .map(|one| (one.policy.as_str(), one.mails))
        .collect();
    assert_eq!(mails, [("now", 3), ("later", 2)]);
}

#[test]
fn nothing_makes_nothing() {
    let report = run(Vec::new(), minutes(5, 0, None), None);

    assert_eq!(
        (report.mails, report.people, report.mails_per_person.mean),
        (0, 0, 0.0)
    );
}

/// Each person's events on their own, by the formula alone: how many mails, and how long all events
/// waited.
fn restated(stream: &[(u8, i64)], policy: &BatchPolicy) -> (u64, i64) {
    let (mut mails, mut waited) = (0, 0);
    for person in 0..4 {
        let mut left: Vec<i64> = stream
            .iter()
            .filter(|one| one.0 == person)
            .map(|one| one.1)
            .collect();
        while let Some(first) = left.first().copied() {
            let (mut taken, mut closes) = (1, policy.closes_at(at(first), at(first)));
            while taken < left.len() && !policy.is_full(taken as u64) && at(left[taken]) < closes {
                closes = policy.closes_at(at(first), at(left[taken]));
                taken += 1;
            }
            if policy.is_full(taken as u64) {
                closes = closes.min(at(left[taken - 1]));
            }
            mails += 1;
            waited += left
                .drain(..taken)
                .map(|then| (closes - at(then)).num_seconds())
                .sum::<i64>();
        }
    }
    (mails, waited)
}

proptest! {
    #[test]
    fn every_event_is_in_one_mail_and_waits_as_long_as_the_formula_says(
        gaps in prop::collection::vec((0..4u8, 0..400i64), 0..60),
        window in 0..600i64, cooldown in 1..300i64, longest in prop::option::of(1..900i64), full in 0..9u64
    ) {
        let mut now = 0;
        let stream: Vec<(u8, i64)> = gaps.into_iter().map(|(person, gap)| {
            now += gap;
            (person, now)
        }).collect();
        let policy = BatchPolicy {
            window: TimeDelta::seconds(window),
            cooldown: TimeDelta::seconds(cooldown),
            max_wait: longest.map(TimeDelta::seconds),
            close_at: NonZeroU64::new(full),
            ..BatchPolicy::IMMEDIATE
        };
        let happenings = stream.iter().map(|(person, at)| comment(&person.to_string(), *at));

        let mut trial = Trial::new("it", policy, None);
        for (number, happening) in (1..).zip(happenings) {
            let item = Item { i: numbered(number), t: happening.kind.clone(), o: happening.object.clone() };
            trial.close_until(happening.at);
            trial.take(&happening.users[0], &item, &happening);
        }
        trial.close_until(at(now + 10_000));

        prop_assert!(trial.open.is_empty() && trial.due.is_empty());
        let (mails, waited) = restated(&stream, &policy);
        prop_assert_eq!(trial.measure.waited(), (stream.len() as u64, waited as u64));
        prop_assert_eq!(trial.finish(1.0).mails, mails);
    }
}

fn read(text: &[u8], order: Order) -> Result<Vec<Happening>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events");
    std::fs::write(&file, text).unwrap();
    events(&file, order)?.collect()
}

const LINES: &str = r#"{"at": "2026-03-02T09:00:00+01:00", "user": "ada", "type": "Comment", "object": "budget", "batch_key": "0", "ip": 7}

{"at": "2026-03-02T08:00:01Z", "users": ["ben", "ada", "ben"], "type": "Like"}
"#;

#[test]
fn lines_are_read_plain_or_compressed() {
    let plain = read(LINES.as_bytes(), Order::Expected).unwrap();
    let packed = zstd::encode_all(LINES.as_bytes(), 1).unwrap();

    assert_eq!(plain.len(), 2);
    assert_eq!(plain[0].at.to_rfc3339(), "2026-03-02T08:00:00+00:00");
    assert_eq!(plain[0].key.as_ref().unwrap().as_str(), "0");
    let users: Vec<&str> = plain[1].users.iter().map(UserId::as_str).collect();
    assert_eq!(users, ["ada", "ben"]);
    assert_eq!(read(&packed, Order::Expected).unwrap(), plain);
}

#[test]
fn a_line_out_of_order_is_told_with_its_number_and_can_be_sorted() {
    let swapped: Vec<&str> = LINES.lines().rev().collect();
    let swapped = swapped.join("\n");

    let error = read(swapped.as_bytes(), Order::Expected)
        .unwrap_err()
        .to_string();
    let sorted = read(swapped.as_bytes(), Order::Sorted).unwrap();

    assert!(
        error.contains("line 3: 2026-03-02T08:00:00+00:00 is before line 1"),
        "{error}"
    );
    assert!(error.contains("--sort"));
    assert_eq!(sorted, read(LINES.as_bytes(), Order::Expected).unwrap());
}

#[test]
fn a_line_that_cannot_be_read_ends_it_with_its_number_and_the_reason() {
    for (line, why) in [
        (
            "{\"at\": \"today\", \"user\": \"a\", \"type\": \"T\"}",
            "line 2, at: time \"today\" is not a moment such as 2014-04-22T09:00:00Z",
        ),
        (
            "{\"at\": \"2026-03-02T09:00:00Z\", \"type\": \"T\"}",
            "line 2: names neither a user nor users",
        ),
        (
            "{\"at\": \"2026-03-02T09:00:00Z\", \"user\": \"a\"}",
            "line 2: has no field `type`, which is needed",
        ),
        (
            "{\"at\": \"2026-03-02T09:00:00Z\", \"user\": \"a\", \"type\": \"T\", \"batch_key\": \"\"}",
            "batch key \"\" is empty",
        ),
        ("not JSON", "line 2: "),
    ] {
        let error = read(format!("\n{line}\n").as_bytes(), Order::Expected).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    let long = format!("\"{}", "x".repeat(1 << 20));
    assert!(
        read(long.as_bytes(), Order::Sorted)
            .unwrap_err()
            .to_string()
            .contains("longer than 1 MiB")
    );
    assert!(events(Path::new("/nowhere/to/be/found"), Order::Expected).is_err());
}
