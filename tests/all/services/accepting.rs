//! Events that are handed in at the same time are accepted together, and each is answered as if it
//! had come alone.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{join_all, ready};
use tidings::engine::{Error, Silent};
use tidings::store::Store;
use tokio::sync::oneshot;

use crate::support::town::{Town, on_both_stores, request, to};
use crate::support::{FailingStore, Fresh, Shorthand, user};

on_both_stores! {
    what_comes_at_the_same_time_is_one_call_and_each_has_its_own_answer
    what_is_long_is_accepted_alone
}

/// A store whose first call of `accept` waits, and which counts them.
struct Gate {
    store: Arc<dyn Store>,
    open: oneshot::Sender<()>,
    accepts: Arc<AtomicUsize>,
}

impl Gate {
    fn before(town: &Town) -> Self {
        let (open, opened) = oneshot::channel::<()>();
        let (first, accepts) = (Mutex::new(Some(opened)), Arc::new(AtomicUsize::new(0)));
        let counted = accepts.clone();
        let before = Box::new(move |verb: &'static str| {
            if verb != "accept" {
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
        Self {
            store,
            open,
            accepts,
        }
    }
}

async fn what_comes_at_the_same_time_is_one_call_and_each_has_its_own_answer(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    let gate = Gate::before(&town);
    let notify = town.process_on(&gate.store).notify();
    let asked = [
        ("a1", Some("one")),
        ("a2", None),
        ("a3", Some("three")),
        // The same event, and another one under its key.
        ("a3", Some("three")),
        ("a4", Some("three")),
        ("a2", None),
        // What was accepted before.
        ("a1", Some("one")),
    ];
    let handed_in = |(object, key): (&'static str, Option<&'static str>)| {
        let accept = notify.accept(vec![request(&[object], to(&["ada"]), key)]);
        async move { Ok::<_, Error>(accept.await?.remove(0)) }
    };
    let mut all = pin!(join_all(asked.map(handed_in)));

    assert!(futures::poll!(all.as_mut()).is_pending());
    while gate.accepts.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    gate.open.send(()).unwrap();
    let answers = all.await;

    assert_eq!(gate.accepts.load(Ordering::Relaxed), 2);
    let conflict = answers[4].as_ref().unwrap_err();
    assert!(
        matches!(conflict, Error::Conflict(why) if why.contains("three")),
        "{conflict:?}"
    );
    let told: Vec<_> = answers
        .iter()
        .filter_map(|told| told.as_ref().ok())
        .collect();
    let known: Vec<bool> = told.iter().map(|receipt| receipt.known).collect();
    assert_eq!(known, [false, false, false, true, false, true]);
    assert_eq!((told[3].id, told[5].id), (told[2].id, told[0].id));
    let ids: BTreeSet<_> = told.iter().map(|receipt| receipt.id).collect();
    assert_eq!(ids.len(), 4);
    town.process().fanouts().drain(&Silent).await.unwrap();
    assert_eq!(town.store.backlog().await.unwrap().done, 4);
}

async fn what_is_long_is_accepted_alone(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    let gate = Gate::before(&town);
    let notify = town.process_on(&gate.store).notify();
    let crowd: Vec<String> = (0..101).map(|n| format!("p{n}")).collect();
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    let mut but_for_many = request(&["a1"], to(&["ada"]), None);
    but_for_many.audience = but_for_many
        .audience
        .except(crowd.iter().map(|id| user(id)));
    let long = vec![
        vec![request(&["a1", "a2", "a3", "a4", "a5"], to(&["ada"]), None)],
        vec![request(&["a1"], to(&crowd), None)],
        vec![but_for_many],
        vec![
            request(&["a1"], to(&["ada"]), None),
            request(&["a2"], to(&["ada"]), None),
        ],
    ];
    let first = pin!(notify.accept(vec![request(&["a1"], to(&["ada"]), None)]));
    let mut first = first;
    assert!(futures::poll!(first.as_mut()).is_pending());
    while gate.accepts.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }

    for (n, requests) in long.into_iter().enumerate() {
        let count = requests.len();
        // One that waited for the first would wait for ever.
        let accepted = tokio::time::timeout(Duration::from_secs(30), notify.accept(requests));
        let receipts = accepted.await.expect("it waits for nobody").unwrap();
        assert_eq!(
            (receipts.len(), gate.accepts.load(Ordering::Relaxed)),
            (count, n + 2)
        );
    }

    gate.open.send(()).unwrap();
    first.await.unwrap();
}
