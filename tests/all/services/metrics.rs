//! The counters of processes equal the contents of the ledger and the journal.

use chrono::TimeDelta;
use tidings::domain::DeliveryState;
use tidings::email::Outcome;
use tidings::engine::NoProgress;

use crate::support::town::{Town, busy, followers_of, lost, monday, mostly_on_sqlite, request, to};
use crate::support::{Fresh, Shorthand};

mostly_on_sqlite! {
    counts_equal_the_journal_and_the_ledger
}

/// Returns each final state with its number of deliveries: in the ledger, and by the counter.
async fn by_state(town: &Town) -> Vec<(DeliveryState, u64, u64)> {
    let states = [
        DeliveryState::Sent,
        DeliveryState::Failed,
        DeliveryState::Canceled,
        DeliveryState::Unknown,
    ];
    let stored = town.store.delivery_counts(&states).await;
    let both = stored.into_iter().map(|(state, stored)| {
        let label = format!("state=\"{}\"", state.as_str());
        let counted = town.counted("tidings_deliveries_settled_total", &label);
        (state, stored, counted)
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
    app.fanouts().drain(&NoProgress).await.unwrap();
    let reason = "no such mailbox: ada@example.org".to_owned();
    town.answer([Outcome::Refused(reason), lost(), busy()]);

    town.digests_at(monday(0)).await;
    // By now the deferred email is retried.
    town.digests_at(monday(0) + TimeDelta::minutes(15)).await;

    let journal = town.store.backlog().await;
    let of_type = "type=\"ArtworkPublished\"";
    let accepted = town.counted("tidings_events_accepted_total", of_type);
    assert_eq!((accepted, journal.pending), (4, 0));
    assert_eq!(town.counted("tidings_events_repeated_total", ""), 1);
    assert_eq!(town.counted("tidings_fanouts_done_total", ""), journal.done);
    assert_eq!(town.counted("tidings_fanout_lag_seconds_count", ""), 4);
    // Three followers get two works, three named users one, and two more events have one user each.
    assert_eq!(town.counted("tidings_fanout_people_total", ""), 8);
    assert_eq!(town.counted("tidings_fanout_pushed_total", ""), 11);
    let by_state = by_state(&town).await;
    for (state, stored, counted) in &by_state {
        assert_eq!(stored, counted, "{state:?}: {by_state:?}");
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
