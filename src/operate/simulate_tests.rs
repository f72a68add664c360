//! Compares the simulation with manual figures and with the closing formula, and reads recordings.

use std::num::NonZeroU64;
use std::path::Path;

use chrono::TimeDelta;
use proptest::prelude::*;

use super::*;
use crate::engine::NoProgress;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_772_409_600 + seconds, 0).unwrap()
}

fn comment(user: &str, seconds: i64) -> ReplayedEvent {
    ReplayedEvent {
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

fn run(events: &[ReplayedEvent], policy: BatchPolicy, key: Option<&str>) -> PolicyFigures {
    let candidate = CandidatePolicy {
        name: "it".to_owned(),
        policy,
        key: key.map(|key| ChosenKey::new(key).unwrap()),
    };
    simulate(events, &[candidate], &NoProgress).policies.remove(0)
}

/// Ada at 0:00, 1:00, 4:30 and 12:00, Ben at 2:00.
fn small() -> Vec<ReplayedEvent> {
    vec![
        comment("ada", 0),
        comment("ada", 60),
        comment("ben", 120),
        comment("ada", 270),
        comment("ada", 720),
    ]
}

#[test]
fn a_small_recording_gives_the_figures_computed_by_hand() {
    let (full, leading) = (
        BatchPolicy { close_at: NonZeroU64::new(2), ..minutes(5, 0, None) },
        BatchPolicy { leading: true, ..minutes(5, 0, None) },
    );
    // Emails, the largest, the most for one user, and the p50, p95 and max of the delays.
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
        let figures = run(&small(), policy, None);
        let (per_user, delay) = (figures.emails_per_user, figures.delay_seconds);
        assert_eq!([figures.emails, figures.largest, per_user.max], counts, "{policy:?}");
        assert_eq!([delay.p50, delay.p95, delay.max], delays, "{policy:?}");
        assert_eq!(per_user.mean, figures.emails as f64 / 2.0);
    }
}

#[test]
fn an_event_at_the_closing_time_joins_the_next_batch() {
    let events = [comment("ada", 0), comment("ada", 300)];

    let figures = run(&events, minutes(5, 0, None), None);

    assert_eq!((figures.emails, figures.largest), (2, 1));
}

#[test]
fn keys_and_types_separate_batches_and_a_shared_key_merges_types() {
    let mut events = small();
    events[1].kind = EventType::stored("Like");
    let mut keyed = events.clone();
    keyed[3].key = Some(ChosenKey::new("acme").unwrap());

    let emails = |events: &[ReplayedEvent], key| run(events, minutes(5, 0, None), key).emails;

    assert_eq!((emails(&events, None), emails(&events, Some("all"))), (4, 3));
    assert_eq!((emails(&keyed, None), emails(&keyed, Some("all"))), (5, 4));
}

#[test]
fn an_event_for_several_users_counts_once_for_each() {
    let mut both = comment("ada", 0);
    both.users.push(UserId::stored("ben"));
    let candidate =
        |name: &str, policy| CandidatePolicy { name: name.to_owned(), policy, key: None };
    let candidates =
        [candidate("now", BatchPolicy::IMMEDIATE), candidate("later", minutes(5, 0, None))];

    let comparison = simulate(&[both, comment("ben", 1)], &candidates, &NoProgress);

    assert_eq!((comparison.events, comparison.users), (3, 2));
    assert_eq!((comparison.from, comparison.to), (Some(at(0)), Some(at(1))));
    let emails: Vec<_> = comparison
        .policies
        .iter()
        .map(|figures| (figures.policy.as_str(), figures.emails))
        .collect();
    assert_eq!(emails, [("now", 3), ("later", 2)]);
}

#[test]
fn an_empty_recording_sends_nothing() {
    let figures = run(&[], minutes(5, 0, None), None);

    assert_eq!((figures.emails, figures.emails_per_user.mean), (0, 0.0));
    assert_eq!(figures.delay_seconds.max, 0);
}

#[test]
fn a_percentile_is_the_smallest_value_that_covers_that_share() {
    let values = [vec![40, 30], vec![10; 18]].concat();

    let spread = spread(values);

    assert_eq!((spread.p50, spread.p95, spread.max), (10, 30, 40));
    assert_eq!(spread.mean, 12.5);
}

/// Applies the closing formula to each user's events; returns the emails and the sum of delays.
fn expected_figures(stream: &[(u8, i64)], policy: &BatchPolicy) -> (u64, i64) {
    let (mut emails, mut delays) = (0, 0);
    for user in 0..4 {
        let mut times: Vec<i64> =
            stream.iter().filter(|event| event.0 == user).map(|event| event.1).collect();
        while let Some(first) = times.first().copied() {
            let (mut count, mut closes) = (1, policy.closes_at(at(first), at(first)));
            while count < times.len() && !policy.is_full(count as u64) && at(times[count]) < closes
            {
                closes = policy.closes_at(at(first), at(times[count]));
                count += 1;
            }
            if policy.is_full(count as u64) {
                closes = closes.min(at(times[count - 1]));
            }
            emails += 1;
            delays +=
                times.drain(..count).map(|time| (closes - at(time)).num_seconds()).sum::<i64>();
        }
    }
    (emails, delays)
}

proptest! {
    #[test]
    fn every_event_is_in_one_email_and_waits_as_the_formula_says(
        gaps in prop::collection::vec((0..4u8, 0..400i64), 0..60),
        window in 0..600i64, cooldown in 1..300i64, longest in prop::option::of(1..900i64), full in 0..9u64
    ) {
        let mut now = 0;
        let stream: Vec<(u8, i64)> = gaps.into_iter().map(|(user, gap)| {
            now += gap;
            (user, now)
        }).collect();
        let policy = BatchPolicy {
            window: TimeDelta::seconds(window),
            cooldown: TimeDelta::seconds(cooldown),
            max_wait: longest.map(TimeDelta::seconds),
            close_at: NonZeroU64::new(full),
            ..BatchPolicy::IMMEDIATE
        };
        let events: Vec<ReplayedEvent> =
            stream.iter().map(|(user, at)| comment(&user.to_string(), *at)).collect();

        let figures = run(&events, policy, None);

        let (emails, delays) = expected_figures(&stream, &policy);
        let mean = delays as f64 / stream.len().max(1) as f64;
        prop_assert_eq!((figures.emails, figures.delay_seconds.mean), (emails, mean));
    }
}

fn read(text: &[u8]) -> crate::engine::Result<Vec<ReplayedEvent>> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events");
    std::fs::write(&file, text).unwrap();
    read_events(&file)
}

const LINES: &str = r#"{"at": "2026-03-02T09:00:00+01:00", "user": "ada", "type": "Comment", "object": "budget", "batch_key": "0", "ip": 7}

{"at": "2026-03-02T08:00:01Z", "users": ["ben", "ada", "ben"], "type": "Like"}
"#;

#[test]
fn recordings_are_read_plain_or_compressed_and_in_any_order() {
    let plain = read(LINES.as_bytes()).unwrap();
    let compressed = zstd::encode_all(LINES.as_bytes(), 1).unwrap();
    let swapped: Vec<&str> = LINES.lines().rev().collect();

    assert_eq!(plain.len(), 2);
    assert_eq!(plain[0].at.to_rfc3339(), "2026-03-02T08:00:00+00:00");
    assert_eq!(plain[0].key.as_ref().unwrap().as_str(), "0");
    let users: Vec<&str> = plain[1].users.iter().map(UserId::as_str).collect();
    assert_eq!(users, ["ada", "ben"]);
    assert_eq!(read(&compressed).unwrap(), plain);
    assert_eq!(read(swapped.join("\n").as_bytes()).unwrap(), plain);
}

#[test]
fn an_unreadable_line_is_an_error_with_its_number_and_the_reason() {
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
        let error = read(format!("\n{line}\n").as_bytes()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(read_events(Path::new("/nowhere/to/be/found")).is_err());
}
