//! Reports lead to the same state in any order, even if they are repeated.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config as Settings, TestRunner};
use tidings::domain::{DeliveryId, ReportKind, SuppressionReason};

use super::{Event, PROVIDERS, email_to, emailed, tag_of};
use crate::api::Api;
use crate::support::town::{monday, mostly_on_sqlite};
use crate::support::{Fresh, Shorthand};

mostly_on_sqlite! {
    reports_in_any_order_lead_to_the_same_state
}

/// The final state: the report recorded for each email, and the reason of each suppression, with
/// their times.
type FinalState = (Vec<Option<(ReportKind, i64)>>, BTreeMap<String, (SuppressionReason, i64)>);

/// An event: the index of the email, of the provider and of the kind, and its delay in seconds.
type EventSpec = (usize, usize, usize, i64);

async fn post_reports(
    api: &Api,
    emails: &[(DeliveryId, &str)],
    events: &[EventSpec],
) -> FinalState {
    for (email, provider, news, later) in events {
        let (delivery, to) = &emails[*email];
        let tag = tag_of(delivery);
        let news = ReportKind::ALL[*news];
        let provider = match (PROVIDERS[*provider], news) {
            ("resend", ReportKind::Unsubscribed) => "postmark",
            (provider, _) => provider,
        };
        // An event has the same number at any place in the order.
        let place = PROVIDERS.iter().position(|one| *one == provider).unwrap() as u32;
        let n = *email as u32 * 2_000 + *later as u32 * 30 + news as u32 * 5 + place;
        let at = monday(0).timestamp() - 60 + later;
        let event = Event { provider, news: news.as_str(), n, tag: &tag, to, at };
        assert_eq!(api.report(&event).await.status, 200, "{n}");
    }
    let mut reports = Vec::new();
    for (delivery, _) in emails {
        let row = api.town.store.delivery(delivery).await.unwrap();
        let known = row.outcome.feedback.map(|one| (one.news, one.at.timestamp()));
        reports.push(known);
    }
    let listed = api.town.store.suppressions(None, 100).await.unwrap();
    let listed = listed.into_iter().map(|one| {
        let why = (one.reason, one.at.timestamp());
        (one.address.to_string(), why)
    });
    (reports, listed.collect())
}

async fn reports_in_any_order_lead_to_the_same_state(fresh: Fresh) {
    let mut runner = TestRunner::new(Settings::with_cases(12));
    let events = prop::collection::vec((0..2_usize, 0..5_usize, 0..6_usize, 0..50_i64), 1..8);
    let shuffled = events.prop_flat_map(|events| {
        let twice = [events.clone(), events.clone()].concat();
        (Just(events), Just(twice).prop_shuffle())
    });
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let case = |(events, shuffled): (Vec<EventSpec>, Vec<EventSpec>)| {
            let ends = runtime.block_on(async {
                let mut ends = Vec::new();
                for order in [&events, &shuffled] {
                    fresh.clear().await;
                    let api = emailed(&fresh).await;
                    let emails = [
                        (email_to(&api, "ada").await, "ada@example.org"),
                        (email_to(&api, "ben").await, "ben@example.org"),
                    ];
                    ends.push(post_reports(&api, &emails, order).await);
                    api.stop().await;
                }
                ends
            });
            prop_assert_eq!(&ends[0], &ends[1]);
            Ok(())
        };
        runner.run(&shuffled, case).unwrap();
    });
}
