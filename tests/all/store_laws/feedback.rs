//! Laws of `Feedbacks`: a report finds its mail, and the worst news stands.

use tidings::domain::delivery::{PeriodCount, Settlement};
use tidings::domain::{
    Cadence, Delivery, DeliveryId, DeliveryState, Feedback, Occasion, ReportCounts, ReportKind,
};
use tidings::store::DeliveryFilter;

use super::deliveries::{later, open, row, settlement};

use crate::support::*;

fn feedback(news: ReportKind, minute: i64) -> Feedback {
    Feedback {
        news,
        at: later(minute),
    }
}

/// Settles and closes a row that `one` holds.
async fn end(store: &Fresh, id: &DeliveryId, state: DeliveryState, minute: i64, known_as: &str) {
    let end = Settlement {
        provider_id: Some(known_as.into()),
        ..settlement(id, state)
    };
    assert_eq!(
        store.settle("one", later(minute), &[end]).await.unwrap(),
        [true]
    );
    store.close(std::slice::from_ref(id)).await.unwrap();
}

pub async fn a_mail_is_found_by_its_tag(store: Fresh) {
    let ids = open(&store, &["ada", "ben"]).await;
    let stranger = DeliveryId::stored("digest:eve:daily:2014-04-22");

    let tags = [ids[1].tag(), stranger.tag(), ids[0].tag(), ids[1].tag()];
    let found = named(&store.second(), &DeliveryFilter::Tags(&tags)).await;

    assert_eq!(found, ids);
    assert_eq!(named(&store, &DeliveryFilter::Tags(&[])).await, []);
}

/// Which mails are found, in the order of their ids.
async fn named(store: &Fresh, which: &DeliveryFilter<'_>) -> Vec<DeliveryId> {
    let found = store.find_deliveries(which, 100).await.unwrap();
    let mut found: Vec<_> = found.into_iter().map(|row| row.id).collect();
    found.sort_unstable();
    found
}

pub async fn mails_are_found_by_their_providers_ids_and_several_may_share_one(store: Fresh) {
    let ids = open(&store, &["ada", "ben", "cem"]).await;
    for (id, known_as) in ids.iter().zip(["shared", "own $id", "shared"]) {
        end(&store, id, DeliveryState::Sent, 1, known_as).await;
    }

    let asked = ["own $id", "unheard of"].map(str::to_owned);
    let own = named(&store, &DeliveryFilter::ProviderIds(&asked)).await;
    let asked = ["own $id", "shared"].map(str::to_owned);
    let all = named(&store, &DeliveryFilter::ProviderIds(&asked)).await;

    assert_eq!(own, ids[1..2]);
    assert_eq!(all, ids);
    assert_eq!(named(&store, &DeliveryFilter::ProviderIds(&[])).await, []);
}

pub async fn the_worst_news_stands_whatever_comes_first(store: Fresh) {
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
        let stands = row(&store, &ids[0]).await.outcome.feedback.unwrap();
        assert_eq!(stands.news, one.news, "each was worse than those before");
    }
    let backwards: Vec<_> = all.iter().rev().map(|one| (ids[1].clone(), *one)).collect();
    store.note_feedback(&backwards).await.unwrap();

    for id in &ids {
        assert_eq!(row(&store, id).await.outcome.feedback, Some(worst), "{id}");
    }
}

pub async fn of_many_who_bring_news_at_once_the_worst_stands(store: Fresh) {
    let id = open(&store, &["ada"]).await.remove(0);
    let told = id.clone();

    store
        .at_once(20, move |store, n| {
            let news = ReportKind::ALL[n as usize % ReportKind::ALL.len()];
            let news = [(told.clone(), feedback(news, i64::from(n)))];
            async move { store.note_feedback(&news).await.unwrap() }
        })
        .await;

    let stands = row(&store, &id).await.outcome.feedback;
    assert_eq!(stands, Some(feedback(ReportKind::Complained, 5)));
}

pub async fn news_of_a_mail_that_is_being_sent_keeps_nobody_from_settling_it(store: Fresh) {
    let ids = open(&store, &["ada"]).await;
    let call = [handover(&ids[0], "call")];
    store
        .sending("one", later(0), later(5), &call)
        .await
        .unwrap();
    let news = [(ids[0].clone(), feedback(ReportKind::Delivered, 0))];

    store.second().note_feedback(&news).await.unwrap();
    let sending = row(&store, &ids[0]).await;
    end(&store, &ids[0], DeliveryState::Sent, 1, "p").await;
    let sent = row(&store, &ids[0]).await;

    assert_eq!(sending.state, DeliveryState::Sending);
    assert_eq!(sending.open, true);
    assert_eq!(sending.attempts.made, 1);
    assert_eq!((sent.state, sent.open), (DeliveryState::Sent, false));
    assert_eq!(
        sent.outcome.feedback,
        Some(feedback(ReportKind::Delivered, 0))
    );
}

pub async fn news_of_unknown_mails_change_nothing(store: Fresh) {
    let id = open(&store, &["ada"]).await.remove(0);
    let stranger = DeliveryId::stored("digest:eve:daily:2014-04-22");
    let news = [
        (stranger.clone(), feedback(ReportKind::Bounced, 0)),
        (id.clone(), feedback(ReportKind::Delivered, 0)),
    ];

    store.note_feedback(&news).await.unwrap();
    store.note_feedback(&[]).await.unwrap();

    assert_eq!(store.delivery(&stranger).await.unwrap(), None);
    let stands = row(&store, &id).await.outcome.feedback;
    assert_eq!(stands, Some(feedback(ReportKind::Delivered, 0)));
}

pub async fn the_echo_counts_mails_by_when_they_were_settled(store: Fresh) {
    assert_eq!(
        store.report_counts(later(0)).await.unwrap(),
        ReportCounts::default()
    );
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
    assert_eq!(
        store.report_counts(later(4)).await.unwrap(),
        ReportCounts::default()
    );
}

pub async fn what_was_settled_since_is_counted_by_cadence_period_and_state(store: Fresh) {
    assert_eq!(store.settled_since(later(0)).await.unwrap(), []);
    let mut ids = open(&store, &["a", "b", "c", "d"]).await;
    let weekly = |person: &str| Delivery {
        id: DeliveryId::stored(format!("digest:{person}:weekly:2014-W17")),
        occasion: Occasion::Digest {
            cadence: Cadence::Weekly,
            period: "2014-W17".into(),
        },
        ..delivery(person, "2014-04-22", "one")
    };
    let yesterday = delivery("g", "2014-04-21", "one");
    let more = [weekly("e"), weekly("f"), yesterday, weekly("waits")];
    assert_eq!(store.open(&more).await.unwrap(), [true; 4]);
    ids.extend(more.iter().map(|row| row.id.clone()));
    let ends = [
        (DeliveryState::Sent, 1),
        (DeliveryState::Sent, 2),
        (DeliveryState::Sent, 2),
        (DeliveryState::Failed, 3),
        (DeliveryState::Sent, 2),
        (DeliveryState::Unknown, 2),
        (DeliveryState::Sent, 3),
    ];
    for (id, (state, minute)) in ids.iter().zip(ends) {
        end(&store, id, state, minute, "p").await;
    }

    let counted = store.second().settled_since(later(2)).await.unwrap();

    let count = |cadence, period: &str, state, mails| PeriodCount {
        cadence,
        period: period.into(),
        state,
        mails,
        events: 4 * mails,
    };
    let expected = [
        count(Cadence::Daily, "2014-04-21", DeliveryState::Sent, 1),
        count(Cadence::Daily, "2014-04-22", DeliveryState::Failed, 1),
        count(Cadence::Daily, "2014-04-22", DeliveryState::Sent, 2),
        count(Cadence::Weekly, "2014-W17", DeliveryState::Sent, 1),
        count(Cadence::Weekly, "2014-W17", DeliveryState::Unknown, 1),
    ];
    assert_eq!(counted, expected);
    assert_eq!(store.settled_since(later(4)).await.unwrap(), []);
}
