//! A preview for a user shows the emails of their unsent batches.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use tidings::operate::preview::{EmailDraft, PreviewKind};

use super::mandatory::happens;
use crate::support::town::{Town, mostly_on_sqlite, saturday, to};
use crate::support::{Fresh, user};

mostly_on_sqlite! {
    open_batches_are_found_behind_sent_ones
    a_pending_lead_is_a_separate_email
    withdrawn_events_and_users_without_a_confirmed_address_are_excluded
}

const CONFIG: &str = r#"
[types.Show]
route = "batch"
window = "1h"
[types.Lead]
route = "batch"
window = "1h"
leading = true
[types.Alarm]
route = "immediate"
"#;

/// Returns the drafts of the user's batches.
async fn of_batches(town: &Town, id: &str) -> Vec<EmailDraft> {
    let app = town.process();
    let mut drafts = app.user_emails().draft_emails(&user(id), None).await.unwrap();
    drafts.retain(|draft| draft.kind() == PreviewKind::Batch);
    drafts
}

async fn open_batches_are_found_behind_sent_ones(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    happens(&town, "Show", &["a1"], to(&["ada"])).await;
    for minute in 1..=25 {
        happens(&town, "Alarm", &["a2"], to(&["ada"])).await;
        town.send_due_at(saturday() + TimeDelta::minutes(minute)).await;
    }

    let drafts = of_batches(&town, "ada").await;

    assert_eq!((town.emails().len(), drafts.len()), (25, 1));
}

async fn a_pending_lead_is_a_separate_email(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    for work in ["a1", "a2", "a3"] {
        happens(&town, "Lead", &[work], to(&["ada"])).await;
    }

    let drafts = of_batches(&town, "ada").await;

    let totals: BTreeSet<u64> = drafts.iter().map(|draft| draft.content.total).collect();
    let names: BTreeSet<&str> = drafts.iter().map(|draft| draft.name.as_str()).collect();
    assert_eq!((totals, names.len()), (BTreeSet::from([1, 2]), 2));
}

async fn withdrawn_events_and_users_without_a_confirmed_address_are_excluded(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    happens(&town, "Show", &["a4", "a9"], to(&["ada", "ben"])).await;
    town.change("ben", |ben| ben.confirmed = false).await;

    let (ada, ben) = (of_batches(&town, "ada").await, of_batches(&town, "ben").await);

    let totals: Vec<u64> = ada.iter().map(|draft| draft.content.total).collect();
    assert_eq!((totals, ben.len()), (vec![1], 0));
}
