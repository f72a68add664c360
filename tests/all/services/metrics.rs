//! What processes count is what the ledger and the journal hold.

use chrono::TimeDelta;
use tidings::domain::DeliveryState;
use tidings::email::Outcome;
use tidings::engine::Silent;

use crate::support::town::{Town, busy, followers_of, lost, monday, on_both_stores, request, to};
use crate::support::{Fresh, Shorthand};

on_both_stores! {
    counts_equal_the_journal_and_the_ledger
}

/// Of each state, how many deliveries the ledger holds and how many ended so.
async fn by_state(town: &Town) -> Vec<(DeliveryState, u64, u64)> {
    let states = [
        DeliveryState::Sent,
        DeliveryState::Failed,
        DeliveryState::Canceled,
        DeliveryState::Unknown,
    ];
    let held = town.store.delivery_counts(&states).await.unwrap();
    let both = held.into_iter().map(|(state, held)| {
        let label = format!("state=\"{}\"", state.as_str());
        let counted = town.counted("tidings_deliveries_settled_total", &label);
        (state, held, counted)
    });
    both.collect()
}

async fn counts_equal_the_journal_and_the_ledger(fresh: Fresh) {
    let town = Town::found(&fresh, false, "[types.ArtworkPublished]\n").await;
    town.happens(&["a1", "a2"], followers_of("artist:1")).await;
    town.happens(&["a3"], to(&["ada", "ben", "cem"])).await;
    town.happens(&["a9"], to(&["ghost"])).await;
    let app = town.process();
    let twice = || vec![request(&["a4"], to(&["ada"]), Some("twice"))];
    app.notify().accept(twice()).await.unwrap();
    app.notify().accept(twice()).await.unwrap();
    app.fanouts().drain(&Silent).await.unwrap();
    let reason = "no such mailbox: ada@example.org".to_owned();
    town.answer([Outcome::Refused { reason }, lost(), busy()]);

    town.digests_at(monday(0)).await;
    // What the provider put off leaves by now.
    town.digests_at(monday(0) + TimeDelta::minutes(15)).await;

    let journal = town.store.backlog().await.unwrap();
    let of_type = "type=\"ArtworkPublished\"";
    let accepted = town.counted("tidings_events_accepted_total", of_type);
    assert_eq!((accepted, journal.pending), (4, 0));
    assert_eq!(town.counted("tidings_events_repeated_total", ""), 1);
    assert_eq!(town.counted("tidings_fanouts_done_total", ""), journal.done);
    assert_eq!(town.counted("tidings_fanout_lag_seconds_count", ""), 4);
    // Two for each of three followers, one for each of three who are named, and two alone.
    assert_eq!(town.counted("tidings_fanout_people_total", ""), 8);
    assert_eq!(town.counted("tidings_fanout_pushed_total", ""), 11);
    let by_state = by_state(&town).await;
    for (state, held, counted) in &by_state {
        assert_eq!(held, counted, "{state:?}: {by_state:?}");
    }
    let [sent, failed, _, unknown] = by_state[..] else {
        panic!("{by_state:?}");
    };
    assert_eq!((failed.1, unknown.1), (1, 1), "{by_state:?}");
    assert_eq!(sent.1, 1, "{by_state:?}");
    let opened = town.counted("tidings_deliveries_opened_total", "occasion=\"digest\"");
    assert_eq!(opened, 3);
    let calls = town.counted("tidings_provider_call_duration_seconds_count", "postbox");
    assert_eq!(calls, town.calls().len() as u64);
    let outcome = |name: &str| {
        let label = format!("provider=\"postbox\",outcome=\"{name}\"");
        town.counted("tidings_provider_mails_total", &label)
    };
    let outcomes = ["accepted", "refused", "unknown", "try_later"].map(outcome);
    assert_eq!(outcomes, [1, 1, 1, 1]);
}
