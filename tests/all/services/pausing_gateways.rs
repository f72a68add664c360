//! While a gateway answers in place of the provider, each call contains a single email.

use std::sync::atomic::Ordering;

use tidings::email::Outcome;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;

use super::pausing::{reason, run};
use crate::support::Fresh;
use crate::support::town::{Town, cut_off, monday, mostly_on_sqlite, to};

mostly_on_sqlite! {
    a_gateway_in_place_of_the_provider_costs_one_email_a_call
    a_gateway_error_on_the_first_call_of_a_run_costs_one_email
    after_a_resume_a_silent_provider_costs_at_most_three_emails
    an_unsendable_email_does_not_reset_the_count_of_lost_answers
}

/// Returns a town whose provider takes `per_call` emails a call. Its answers are unreadable, and it
/// cannot be queried for outcomes.
async fn gateway(fresh: &Fresh, people: usize, per_call: usize) -> Town {
    let town = Town::found(fresh, false, "delivery.chunk = 100\n").await;
    let people = town.crowd(people).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    let per_call_of = &town.postbox.per_call;
    per_call_of.store(per_call, Ordering::Relaxed);
    town.answer((0..people.len()).map(|_| cut_off()));
    town
}

async fn a_gateway_in_place_of_the_provider_costs_one_email_a_call(fresh: Fresh) {
    let town = gateway(&fresh, 90, 20).await;

    let report = run(&town, DigestRequest::default()).await;

    assert_eq!(report.emails.unknown, 3);
    assert_eq!(
        reason(&report),
        "the outcomes of the last 3 calls in a row are unknown (cut off on the way)"
    );
}

async fn a_gateway_error_on_the_first_call_of_a_run_costs_one_email(fresh: Fresh) {
    let town = gateway(&fresh, 90, 20).await;
    town.postbox.takes_everything();
    let process = town.process();
    for (week, work) in [(0, "a1"), (1, "a2")] {
        if week > 0 {
            let names: Vec<String> = (0..90).map(|n| format!("p{n}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            town.happens(&[work], to(&names)).await;
        }
        town.answer([cut_off()]);
        town.clock.set(monday(week));
        let before = town.calls().len();

        let report = process.digests().run(&DigestRequest::default(), &NoProgress).await.unwrap();

        assert_eq!((report.emails.unknown, report.emails.sent), (1, 89));
        let sizes: Vec<usize> =
            town.calls()[before..].iter().map(|call| call.deliveries.len()).collect();
        assert_eq!((sizes[0], sizes[1], sizes[2]), (1, 1, 20 - 2), "{sizes:?}");
    }
}

async fn after_a_resume_a_silent_provider_costs_at_most_three_emails(fresh: Fresh) {
    let town = gateway(&fresh, 90, 20).await;
    run(&town, DigestRequest::default()).await;

    town.process().deliveries().resume().await.unwrap();
    let report = run(&town, DigestRequest::default()).await;

    assert!(report.emails.unknown <= 3, "{report:?}");
    reason(&report);
}

async fn an_unsendable_email_does_not_reset_the_count_of_lost_answers(fresh: Fresh) {
    let town = Town::found(&fresh, false, "delivery.chunk = 100\n").await;
    let people = town.crowd(30).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    let per_call = &town.postbox.per_call;
    per_call.store(3, Ordering::Relaxed);
    let unsendable = || Outcome::Unsendable("no such address".into());
    // Each call risks a single email.
    let calls = [unsendable(), cut_off(), unsendable(), cut_off(), cut_off()];
    town.answer(calls);

    let report = run(&town, DigestRequest::default()).await;

    assert!(reason(&report).contains("the last 3 calls"), "{report:?}");
    assert_eq!((report.emails.unknown, report.emails.failed), (3, 2));
}
