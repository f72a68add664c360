//! End-to-end tests of common batch designs, with a worker that runs every minute.
//!
//! The unit tests of `domain::batch` have a worked example of each design.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::ObjectId;
use tidings::engine::NoProgress;

use crate::support::town::{Town, mostly_on_sqlite, request, saturday, to};
use crate::support::{Fresh, kind};

mostly_on_sqlite! {
    a_steady_stream_is_emailed_after_max_wait_or_not_until_it_stops
    close_at_ends_a_window_early_and_the_email_has_the_exact_total
}

fn clock(minute: i64, second: i64) -> DateTime<Utc> {
    saturday() + TimeDelta::seconds(minute * 60 + second)
}

/// Runs a worker at the start of each of these minutes. Each event is a minute, a type and a user,
/// and happens in the middle of its minute. Returns the minute and recipient of each email.
async fn run_each_minute(
    town: &Town,
    minutes: std::ops::RangeInclusive<i64>,
    happens: &[(i64, &str, &str)],
) -> Vec<(i64, String)> {
    let (app, mut sent) = (town.process(), Vec::new());
    let (worker, mut scanned) = (app.worker(), None);
    let works: Vec<String> = happens.iter().map(|(at, _, _)| format!("x{at}")).collect();
    let works: Vec<&str> = works.iter().map(String::as_str).collect();
    town.put_works(&works, |_| true).await;
    for minute in minutes {
        for (at, name, person) in happens {
            if *at == minute - 1 {
                town.clock.set(clock(*at, 30));
                let mut event = request(&[&format!("x{at}")], to(&[person]), None);
                event.kind = kind(name);
                app.notify().accept(vec![event]).await.unwrap();
                app.fanouts().drain(&NoProgress).await.unwrap();
            }
        }
        town.clock.set(clock(minute, 0));
        let before = town.emails().len();
        worker.round(&mut scanned, &NoProgress).await.unwrap();
        let emails = town.emails().split_off(before);
        sent.extend(emails.iter().map(|email| (minute, email.to.reveal().to_owned())));
    }
    sent
}

async fn a_steady_stream_is_emailed_after_max_wait_or_not_until_it_stops(fresh: Fresh) {
    let config = r#"
        types.Patient = { route = "batch", cooldown = "4m", max_wait = "15m" }
        types.Starving = { route = "batch", cooldown = "4m" }
    "#;
    let town = Town::found(&fresh, true, config).await;
    let steady: Vec<_> =
        (0..7).flat_map(|n| [(n * 3, "Patient", "ada"), (n * 3, "Starving", "ben")]).collect();

    let sent = run_each_minute(&town, 1..=25, &steady).await;

    // Ada's batch opens at 0:30 and closes at 15:30 with six events. The seventh event opens
    // another at 18:30. Ben's batch closes at 22:30, four minutes after the last event.
    let (ada, ben) = ("ada@example.org".to_owned(), "ben@example.org".to_owned());
    assert_eq!(sent, [(16, ada.clone()), (23, ada), (23, ben)]);
    let mut items = Vec::new();
    for person in ["ada", "ben"] {
        let rows = town.deliveries_of(person).await;
        items.extend(rows.iter().map(|row| row.outcome.items));
    }
    items.sort_unstable();
    assert_eq!(items, [1, 6, 7]);
}

async fn close_at_ends_a_window_early_and_the_email_has_the_exact_total(fresh: Fresh) {
    let config = r#"
        types.ArtworkPublished = { route = "batch", window = "5m", close_at = 3, keep = "last 2" }
    "#;
    let town = Town::found(&fresh, true, config).await;
    let (app, mut emailed_at) = (town.process(), Vec::new());
    let (worker, mut scanned) = (app.worker(), None);
    for (minute, work) in ["a1", "a2", "a3", "a4"].into_iter().enumerate() {
        town.clock.set(clock(minute as i64, 0));
        town.happens(&[work], to(&["ada"])).await;
        worker.round(&mut scanned, &NoProgress).await.unwrap();
        if work == "a2" {
            let removed = [ObjectId::stored("a2")];
            let kind = kind("ArtworkPublished");
            app.batches().remove_events(&kind, &removed, None).await.unwrap();
        }
        emailed_at.push(town.emails().len());
    }

    assert_eq!(emailed_at, [0, 0, 0, 1], "the one taken out is not counted");
    let text = town.emails()[0].fill_links().text;
    let shown = ["a1", "a2", "a3", "a4"].map(|work| text.contains(&format!("Work {work}.")));
    assert_eq!(shown, [false, false, true, true], "{text}");
    assert!(text.contains("\n  1 more\n"), "{text}");
    assert_eq!(town.deliveries_of("ada").await[0].outcome.items, 3);
}
