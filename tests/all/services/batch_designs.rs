//! Known designs of batches, end to end by a worker that is polled; `domain::batch` has a worked
//! case of each.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::ObjectId;
use tidings::engine::Silent;

use crate::support::town::{Town, on_both_stores, request, saturday, to};
use crate::support::{Fresh, kind};

on_both_stores! {
    a_four_minute_cool_down_polled_each_minute_mails_after_the_longest_wait_and_starves_without_one
    a_fixed_window_that_closes_early_at_three_mails_its_total_beside_what_is_kept
}

fn clock(minute: i64, second: i64) -> DateTime<Utc> {
    saturday() + TimeDelta::seconds(minute * 60 + second)
}

/// A worker comes by each minute from the first up to the last, after what happens in the middle of
/// the one before; answers the minutes in which mails left, and to whom.
async fn polled(
    town: &Town,
    minutes: std::ops::RangeInclusive<i64>,
    happens: &[(i64, &str, &str)],
) -> Vec<(i64, String)> {
    let (app, mut left) = (town.process(), Vec::new());
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
                app.fanouts().drain(&Silent).await.unwrap();
            }
        }
        town.clock.set(clock(minute, 0));
        let before = town.mails().len();
        worker.round(&mut scanned, &Silent).await.unwrap();
        let mails = town.mails().split_off(before);
        left.extend(
            mails
                .iter()
                .map(|mail| (minute, mail.to.reveal().to_owned())),
        );
    }
    left
}

async fn a_four_minute_cool_down_polled_each_minute_mails_after_the_longest_wait_and_starves_without_one(
    fresh: Fresh,
) {
    let config = r#"
        types.Patient = { route = "batch", cooldown = "4m", max_wait = "15m" }
        types.Starving = { route = "batch", cooldown = "4m" }
    "#;
    let town = Town::found(&fresh, true, config).await;
    let steady: Vec<_> = (0..7)
        .flat_map(|n| [(n * 3, "Patient", "ada"), (n * 3, "Starving", "ben")])
        .collect();

    let left = polled(&town, 1..=25, &steady).await;

    // Opened at 0:30. Six are in Ada's first mail, and the seventh opens the next at 18:30; Ben's
    // ends four minutes after all have come.
    let (ada, ben) = ("ada@example.org".to_owned(), "ben@example.org".to_owned());
    assert_eq!(left, [(16, ada.clone()), (23, ada), (23, ben)]);
    let mut items = Vec::new();
    for person in ["ada", "ben"] {
        let rows = town.deliveries_of(person).await;
        items.extend(rows.iter().map(|row| row.outcome.items));
    }
    items.sort_unstable();
    assert_eq!(items, [1, 6, 7]);
}

async fn a_fixed_window_that_closes_early_at_three_mails_its_total_beside_what_is_kept(
    fresh: Fresh,
) {
    let config = r#"
        types.ArtworkPublished = { route = "batch", window = "5m", close_at = 3, keep = "last 2" }
    "#;
    let town = Town::found(&fresh, true, config).await;
    let (app, mut mailed_at) = (town.process(), Vec::new());
    let (worker, mut scanned) = (app.worker(), None);
    for (minute, work) in ["a1", "a2", "a3", "a4"].into_iter().enumerate() {
        town.clock.set(clock(minute as i64, 0));
        town.happens(&[work], to(&["ada"])).await;
        worker.round(&mut scanned, &Silent).await.unwrap();
        if work == "a2" {
            let withdrawn = [ObjectId::stored("a2")];
            let kind = kind("ArtworkPublished");
            app.batches()
                .take_out(&kind, &withdrawn, None)
                .await
                .unwrap();
        }
        mailed_at.push(town.mails().len());
    }

    assert_eq!(mailed_at, [0, 0, 0, 1], "the one taken out is not counted");
    let text = town.mails()[0].filled().text;
    let told = ["a1", "a2", "a3", "a4"].map(|work| text.contains(&format!("Work {work}.")));
    assert_eq!(told, [false, false, true, true], "{text}");
    assert!(text.contains("\n  1 more\n"), "{text}");
    assert_eq!(town.deliveries_of("ada").await[0].outcome.items, 3);
}
