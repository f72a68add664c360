//! Contract tests of `Journal::accept`: an event is stored once for each key.

use tidings::domain::{Audience, Fanout, FanoutState, ObjectId, Point};
use tidings::store::Acceptance;

use super::journal::{accept, claim, progress, soon};
use crate::support::*;

pub async fn an_accepted_fan_out_is_read_back_with_every_field(store: Fresh) {
    let named = fanout(1);
    let mut followed = fanout(2);
    followed.audience =
        Audience::followers_of(["artist:5", "$gt", "a.b"].map(key)).unwrap().except([user("0")]);
    followed.objects = ["0", "false", "a.b", "ü"].map(ObjectId::stored).to_vec();
    let mut around = fanout(3);
    around.audience =
        Audience::near(Point::new(121.48791951161945, 31.245270191439438).unwrap(), 0.1 + 0.2)
            .unwrap();

    let all = [named, followed, around];
    let answers = store.accept(&all).await.unwrap();

    assert_eq!(answers, [Acceptance::New, Acceptance::New, Acceptance::New]);
    for fanout in all {
        assert_eq!(store.second().fanout(fanout.id).await.unwrap(), Some(fanout));
    }
    assert_eq!(store.fanout(id(99)).await.unwrap(), None);
}

pub async fn batch_keys_are_read_back_unchanged(store: Fresh) {
    let longest = "ü".repeat(128);
    let keys = ["0", "false", "null", "a.b", "$ne", " a ", "A", &longest];
    let keyed =
        |n: usize, key: &str| Fanout { batch_key: key.parse().ok(), ..fanout(n as u32 + 2) };
    let keyed = keys.iter().enumerate().map(|(n, key)| keyed(n, key));
    let all: Vec<_> = std::iter::once(fanout(1)).chain(keyed).collect();
    assert!(all[1..].iter().all(|fanout| fanout.batch_key.is_some()));

    store.accept(&all).await.unwrap();

    let again = store.accept(&all).await.unwrap();
    for (fanout, again) in all.iter().zip(again) {
        assert_eq!(again, Acceptance::Duplicate(Box::new(fanout.clone())));
    }
    let claimed = claim(&store, "one", noon(), soon(), 100).await.into_iter();
    let claimed: Vec<_> = claimed.map(|fanout| fanout.batch_key).collect();
    let accepted: Vec<_> = all.into_iter().map(|fanout| fanout.batch_key).collect();
    assert_eq!(claimed, accepted);
}

pub async fn a_repeated_key_returns_the_stored_fan_out(store: Fresh) {
    let first = fanout(1);
    store.accept(std::slice::from_ref(&first)).await.unwrap();
    let again = Fanout { key: first.key.clone(), ..fanout(2) };

    let answers = store.accept(&[fanout(3), again.clone(), first.clone()]).await.unwrap();

    let known = Acceptance::Duplicate(Box::new(first.clone()));
    assert_eq!(answers, [Acceptance::New, known.clone(), known]);
    assert_eq!(store.fanout(again.id).await.unwrap(), None);
    assert_eq!(store.backlog().await, Backlog { pending: 2, done: 0 });
}

pub async fn the_first_of_two_equal_keys_in_one_call_is_new(store: Fresh) {
    let (first, other) = (fanout(1), fanout(2));
    let second = Fanout { key: first.key.clone(), ..fanout(3) };

    let answers = store.accept(&[first.clone(), other, second]).await.unwrap();

    assert_eq!(answers, [Acceptance::New, Acceptance::New, Acceptance::Duplicate(Box::new(first))]);
    assert_eq!(store.backlog().await.pending, 2);
}

pub async fn one_of_many_concurrent_events_with_one_key_is_new(store: Fresh) {
    let accept_one = |store: Fresh, n: u32| async move {
        let fanout = Fanout { key: "one".into(), ..fanout(n) };
        (fanout.id, store.accept(&[fanout]).await.unwrap().remove(0))
    };
    let answers = store.at_once(16, accept_one).await;

    let winners: Vec<_> = answers.iter().filter(|(_, answer)| *answer == Acceptance::New).collect();
    assert_eq!(winners.len(), 1);
    for (_, answer) in &answers {
        if let Acceptance::Duplicate(fanout) = answer {
            assert_eq!(fanout.id, winners[0].0);
        }
    }
    assert_eq!(store.backlog().await.pending, 1);
}

pub async fn a_repeated_key_returns_the_progress_of_its_fan_out(store: Fresh) {
    accept(&store, [1]).await;
    claim(&store, "one", noon(), soon(), 10).await;
    store.save_fanouts(&lease("one", soon()), &[(id(1), progress("m", 3, true))]).await.unwrap();

    let answer = store.accept(&[fanout(1)]).await.unwrap().remove(0);

    let Acceptance::Duplicate(known) = answer else { panic!("{answer:?}") };
    assert_eq!((known.state, known.progress), (FanoutState::Done, progress("m", 3, true)));
}

pub async fn many_events_are_accepted_in_one_call(store: Fresh) {
    let fanouts: Vec<_> = (0..1_000).map(fanout).collect();

    for expected in [1_000, 0] {
        let answers = store.accept(&fanouts).await.unwrap();
        let new = answers.iter().filter(|answer| **answer == Acceptance::New).count();
        assert_eq!(new, expected);
        for (answer, requested) in answers.iter().zip(&fanouts) {
            if let Acceptance::Duplicate(known) = answer {
                assert_eq!(**known, *requested);
            }
        }
    }
}
