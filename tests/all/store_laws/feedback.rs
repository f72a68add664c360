//! Contract tests of `Feedbacks`: a report is matched to its email, and the most serious report
//! wins.

use tidings::domain::delivery::Settlement;
use tidings::domain::{Delivery, DeliveryId, DeliveryState, Feedback, ReportCounts, ReportKind};
use tidings::store::DeliveryFilter;

use super::deliveries::{later, open, row, settlement};

use crate::support::*;

fn feedback(news: ReportKind, minute: i64) -> Feedback {
    Feedback { news, at: later(minute) }
}

/// Settles and closes a delivery that `one` holds.
async fn end(store: &Fresh, id: &DeliveryId, state: DeliveryState, minute: i64, provider_id: &str) {
    let end = Settlement { provider_id: Some(provider_id.into()), ..settlement(id, state) };
    assert_eq!(store.settle("one", later(minute), &[end]).await, [true]);
    store.close(std::slice::from_ref(id)).await.unwrap();
}

pub async fn a_delivery_is_found_by_its_tag(store: Fresh) {
    let ids = open(&store, &["ada", "ben"]).await;
    let unknown = DeliveryId::stored("digest:eve:daily:2014-04-22");

    let tags = [ids[1].tag(), unknown.tag(), ids[0].tag(), ids[1].tag()];
    let found = find_ids(&store.second(), &DeliveryFilter::Tags(&tags)).await;

    assert_eq!(found, ids);
    assert_eq!(find_ids(&store, &DeliveryFilter::Tags(&[])).await, []);
}

/// Returns the ids of the matching deliveries in ascending order.
async fn find_ids(store: &Fresh, which: &DeliveryFilter<'_>) -> Vec<DeliveryId> {
    let found = store.find_deliveries(which, 100).await.unwrap();
    let mut found: Vec<_> = found.into_iter().map(|row| row.id).collect();
    found.sort_unstable();
    found
}

pub async fn deliveries_are_found_by_provider_id_which_several_may_share(store: Fresh) {
    let ids = open(&store, &["ada", "ben", "cem"]).await;
    for (id, provider_id) in ids.iter().zip(["shared", "own $id", "shared"]) {
        end(&store, id, DeliveryState::Sent, 1, provider_id).await;
    }

    let requested = ["own $id", "unheard of"].map(str::to_owned);
    let own = find_ids(&store, &DeliveryFilter::ProviderIds(&requested)).await;
    let requested = ["own $id", "shared"].map(str::to_owned);
    let all = find_ids(&store, &DeliveryFilter::ProviderIds(&requested)).await;

    assert_eq!(own, ids[1..2]);
    assert_eq!(all, ids);
    assert_eq!(find_ids(&store, &DeliveryFilter::ProviderIds(&[])).await, []);
}

pub async fn the_most_serious_report_wins_in_any_order(store: Fresh) {
    let ids = open(&store, &["ada", "ben"]).await;
    let mut all = Vec::new();
    for (n, news) in ReportKind::ALL.into_iter().enumerate() {
        all.extend([feedback(news, 9 - n as i64), feedback(news, 20)]);
    }
    let worst = feedback(ReportKind::Complained, 4);

    for one in &all {
        let news = [(ids[0].clone(), *one)];
        store.note_feedback(&news).await.unwrap();
        store.second().note_feedback(&news).await.unwrap();
        let stored = row(&store, &ids[0]).await.outcome.feedback.unwrap();
        assert_eq!(stored.news, one.news, "each was worse than those before");
    }
    let backwards: Vec<_> = all.iter().rev().map(|one| (ids[1].clone(), *one)).collect();
    store.note_feedback(&backwards).await.unwrap();

    for id in &ids {
        assert_eq!(row(&store, id).await.outcome.feedback, Some(worst), "{id}");
    }
}

pub async fn the_most_serious_of_concurrent_reports_wins(store: Fresh) {
    let id = open(&store, &["ada"]).await.remove(0);
    let reported = id.clone();

    store
        .at_once(20, move |store, n| {
            let news = ReportKind::ALL[n as usize % ReportKind::ALL.len()];
            let news = [(reported.clone(), feedback(news, i64::from(n)))];
            async move { store.note_feedback(&news).await.unwrap() }
        })
        .await;

    let stored = row(&store, &id).await.outcome.feedback;
    assert_eq!(stored, Some(feedback(ReportKind::Complained, 5)));
}

pub async fn a_report_about_a_sending_delivery_does_not_prevent_settling(store: Fresh) {
    let ids = open(&store, &["ada"]).await;
    let call = [handover(&ids[0], "call")];
    store.sending("one", later(0), later(5), &call).await;
    let news = [(ids[0].clone(), feedback(ReportKind::Delivered, 0))];

    store.second().note_feedback(&news).await.unwrap();
    let sending = row(&store, &ids[0]).await;
    end(&store, &ids[0], DeliveryState::Sent, 1, "p").await;
    let sent = row(&store, &ids[0]).await;

    assert_eq!(sending.state, DeliveryState::Sending);
    assert!(sending.open);
    assert_eq!(sending.attempts.made, 1);
    assert_eq!((sent.state, sent.open), (DeliveryState::Sent, false));
    assert_eq!(sent.outcome.feedback, Some(feedback(ReportKind::Delivered, 0)));
}

pub async fn reports_about_unknown_deliveries_change_nothing(store: Fresh) {
    let id = open(&store, &["ada"]).await.remove(0);
    let unknown = DeliveryId::stored("digest:eve:daily:2014-04-22");
    let news = [
        (unknown.clone(), feedback(ReportKind::Bounced, 0)),
        (id.clone(), feedback(ReportKind::Delivered, 0)),
    ];

    store.note_feedback(&news).await.unwrap();
    store.note_feedback(&[]).await.unwrap();

    assert_eq!(store.delivery(&unknown).await, None);
    let stored = row(&store, &id).await.outcome.feedback;
    assert_eq!(stored, Some(feedback(ReportKind::Delivered, 0)));
}

pub async fn report_counts_select_deliveries_by_settlement_time(store: Fresh) {
    assert_eq!(store.report_counts(later(0)).await.unwrap(), ReportCounts::default());
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let ids = open(&store, &names).await;
    let ends = [
        (DeliveryState::Sent, 1, Some(ReportKind::Bounced)),
        (DeliveryState::Sent, 2, Some(ReportKind::Refused)),
        (DeliveryState::Sent, 2, Some(ReportKind::Delivered)),
        (DeliveryState::Sent, 3, None),
        (DeliveryState::Unknown, 3, Some(ReportKind::Complained)),
        (DeliveryState::Unknown, 3, None),
        (DeliveryState::Failed, 3, None),
    ];
    for (id, (state, minute, news)) in ids.iter().zip(ends) {
        end(&store, id, state, minute, "p").await;
        if let Some(news) = news {
            let news = [(id.clone(), feedback(news, 60))];
            store.note_feedback(&news).await.unwrap();
        }
    }
    let unsettled: &Delivery = &row(&store, &ids[7]).await;
    assert_eq!(unsettled.outcome.settled, None);

    let all = store.report_counts(later(1)).await.unwrap();
    let late = store.report_counts(later(3)).await.unwrap();

    let expected = ReportCounts {
        sent: 5,
        delivered: 1,
        bounced: 1,
        complained: 1,
        refused: 1,
        ..ReportCounts::default()
    };
    assert_eq!(all, expected);
    assert_eq!((late.sent, late.complained, late.bounced), (2, 1, 0));
    assert_eq!(store.report_counts(later(4)).await.unwrap(), ReportCounts::default());
}
