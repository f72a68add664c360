//! Tests that concurrent events are accepted in one store call, and that each gets the answer it
//! would get alone.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{join_all, ready};
use tidings::engine::{Error, NoProgress};
use tidings::store::Store;
use tokio::sync::oneshot;

use crate::support::town::{Town, mostly_on_sqlite, request, to};
use crate::support::{FailingStore, Fresh, Shorthand, user};

mostly_on_sqlite! {
    concurrent_events_share_a_store_call_and_get_separate_answers
    a_large_request_has_a_store_call_of_its_own
}

/// A store whose first call of one method blocks until `open` is sent. Counts all calls of it.
pub(super) struct Gate {
    pub(super) store: Arc<dyn Store>,
    pub(super) open: oneshot::Sender<()>,
    pub(super) calls: Arc<AtomicUsize>,
}

impl Gate {
    pub(super) fn before(town: &Town, gated: &'static str) -> Self {
        let (open, opened) = oneshot::channel::<()>();
        let (first, calls) = (Mutex::new(Some(opened)), Arc::new(AtomicUsize::new(0)));
        let counted = calls.clone();
        let before = Box::new(move |method: &'static str| {
            if method != gated {
                return Box::pin(ready(())) as _;
            }
            counted.fetch_add(1, Ordering::Relaxed);
            let first = first.lock().unwrap().take();
            Box::pin(async move {
                if let Some(opened) = first {
                    opened.await.unwrap();
                }
            }) as _
        });
        let store = FailingStore::waiting(town.store.clone(), before);
        Self { store, open, calls }
    }
}

async fn concurrent_events_share_a_store_call_and_get_separate_answers(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    let gate = Gate::before(&town, "accept");
    let notify = town.process_on(&gate.store).notify();
    let requests = [
        ("a1", Some("one")),
        ("a2", None),
        ("a3", Some("three")),
        // The same event again, and a different one with the same key.
        ("a3", Some("three")),
        ("a4", Some("three")),
        ("a2", None),
        // A duplicate of the first event, whose call is still blocked.
        ("a1", Some("one")),
    ];
    let accept_one = |(object, key): (&'static str, Option<&'static str>)| {
        let accept = notify.accept(vec![request(&[object], to(&["ada"]), key)]);
        async move { Ok::<_, Error>(accept.await?.remove(0)) }
    };
    let mut all = pin!(join_all(requests.map(accept_one)));

    assert!(futures::poll!(all.as_mut()).is_pending());
    while gate.calls.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    gate.open.send(()).unwrap();
    let answers = all.await;

    assert_eq!(gate.calls.load(Ordering::Relaxed), 2);
    let conflict = answers[4].as_ref().unwrap_err();
    assert!(matches!(conflict, Error::Conflict(why) if why.contains("three")), "{conflict:?}");
    let receipts: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
    let duplicates: Vec<bool> = receipts.iter().map(|receipt| receipt.duplicate).collect();
    assert_eq!(duplicates, [false, false, false, true, false, true]);
    assert_eq!((receipts[3].id, receipts[5].id), (receipts[2].id, receipts[0].id));
    let ids: BTreeSet<_> = receipts.iter().map(|receipt| receipt.id).collect();
    assert_eq!(ids.len(), 4);
    town.process().fanouts().drain(&NoProgress).await.unwrap();
    assert_eq!(town.store.backlog().await.done, 4);
}

async fn a_large_request_has_a_store_call_of_its_own(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    let gate = Gate::before(&town, "accept");
    let notify = town.process_on(&gate.store).notify();
    let crowd: Vec<String> = (0..101).map(|n| format!("p{n}")).collect();
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    let mut excluding_many = request(&["a1"], to(&["ada"]), None);
    excluding_many.audience = excluding_many.audience.except(crowd.iter().map(|id| user(id)));
    let large = vec![
        vec![request(&["a1", "a2", "a3", "a4", "a5"], to(&["ada"]), None)],
        vec![request(&["a1"], to(&crowd), None)],
        vec![excluding_many],
        vec![request(&["a1"], to(&["ada"]), None), request(&["a2"], to(&["ada"]), None)],
    ];
    let first = pin!(notify.accept(vec![request(&["a1"], to(&["ada"]), None)]));
    let mut first = first;
    assert!(futures::poll!(first.as_mut()).is_pending());
    while gate.calls.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }

    for (n, requests) in large.into_iter().enumerate() {
        let count = requests.len();
        // A request that waited for the first one would block forever.
        let accepted = tokio::time::timeout(Duration::from_secs(30), notify.accept(requests));
        let receipts = accepted.await.expect("it waits for nobody").unwrap();
        assert_eq!((receipts.len(), gate.calls.load(Ordering::Relaxed)), (count, n + 2));
    }

    gate.open.send(()).unwrap();
    first.await.unwrap();
}
