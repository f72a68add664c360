//! Laws of `Moving`: what is read is all there is, and what is put is what was read.

use tidings::domain::batch::Accumulator;
use tidings::domain::{
    Audience, DeliveryId, DeliveryState, Feedback, Lease, ObjectId, Poke, Reason, ReportKind,
    Retraction, Suppression, User,
};
use tidings::store::{FollowChange, Kept, Kind, MoveNote, Role};

use super::batches::{closing, opened};
use super::{inboxes, objects, people};
use crate::support::*;

/// One record of each kind, and more of those that have many forms, by the ordinary verbs.
async fn filled(store: &Fresh) {
    let users = [
        people::full("ada"),
        people::falsy("0"),
        User::new(user("bare")),
    ];
    store.put_users(&users).await.unwrap();
    let follows = [("artist:1", "ada"), ("a.$b", "0")].map(|(k, u)| (key(k), user(u)));
    store
        .change_follows(FollowChange::Follow, &follows)
        .await
        .unwrap();
    let works = ["Artwork:1", "bare"].map(objects::full);
    store.put_objects(&works).await.unwrap();
    for (name, n) in [("ada", 1), ("7", 2)] {
        let put = store.put_inbox(&inboxes::marked(name, 3), id(n)).await;
        assert!(put.unwrap());
    }
    let at = id(3);
    let (t, o) = (kind("ArtworkPublished"), ObjectId::stored("0"));
    let nobody = Poke::people([""; 0]);
    store
        .retract(&[Retraction { t, o, at }], &nobody)
        .await
        .unwrap();
    let address = |text: &str| tidings::domain::Address::new(text).unwrap();
    let suppression = Suppression {
        address: address("ben@example.org"),
        reason: Reason::ALL[0],
        at: noon(),
        source: "hand".into(),
        detail: Some("$odd".into()),
        lifted: None,
    };
    let lifted = Suppression {
        address: address("fay@example.org"),
        ..suppression.clone()
    };
    let fay = lifted.address.clone();
    store.suppress(&[suppression, lifted]).await.unwrap();
    store.lift(&fay, noon(), noon()).await.unwrap();
    let bounced = DeliveryId::stored("digest:eve:daily:2014-04-22");
    let eve = address("eve@example.org");
    store
        .soft_bounce(&eve, &bounced, noon(), noon() - minutes(9))
        .await
        .unwrap();
    let sight = [("key".to_owned(), "mark".to_owned())];
    store
        .sight(&sight, noon(), noon() + minutes(9))
        .await
        .unwrap();
    let mut followed = fanout(2);
    followed.audience = Audience::followers_of([key("artist:5")])
        .unwrap()
        .except([user("0")]);
    // More than a document of MongoDB holds.
    let long = (0..100_000).map(|n| user(&format!("{n:0>180}")));
    let mut named = fanout(4);
    named.audience = Audience::users(long).unwrap();
    store.accept(&[fanout(1), followed, named]).await.unwrap();
    store
        .claim_fanouts("me", noon(), noon() + minutes(5), 1.into())
        .await
        .unwrap();
    let held = Accumulator {
        ended: vec![closing("ada", "k", 2)],
        lease: Some(Lease {
            owner: "me".into(),
            until: noon() + minutes(3),
        }),
        ..opened("ada", "k", 1, 0)
    };
    let accumulators = [held, opened("ben", "other", 3, 4)];
    store.put_accumulators(&accumulators, id(50)).await.unwrap();
    store.file_batches(&[closing("cem", "k", 9)]).await.unwrap();
    let mut waiting = delivery("eve", "2014-04-23", "one");
    waiting.lease = None;
    waiting.attempts.not_before = Some(noon() + minutes(7));
    waiting.outcome.reason = Some("later".into());
    let mut failed = delivery("dee", "2014-04-21", "one");
    (failed.state, failed.open, failed.lease) = (DeliveryState::Failed, false, None);
    failed.outcome.settled = Some(noon());
    let rows = [delivery("ada", "2014-04-22", "one"), waiting, failed];
    store.open(&rows).await.unwrap();
    let sending = handover(&rows[0].id, "call");
    store
        .sending("one", noon(), noon() + minutes(5), &[sending])
        .await
        .unwrap();
    let news = Feedback {
        news: ReportKind::ALL[0],
        at: noon(),
    };
    store
        .note_feedback(&[(rows[2].id.clone(), news)])
        .await
        .unwrap();
    store.put_note("pause", "the key is wrong").await.unwrap();
}

pub async fn everything_that_is_kept_is_read_and_put_whole(store: Fresh) {
    filled(&store).await;
    let mut read = Vec::new();
    for kind in Kind::ALL {
        let tally = store.movable().tally(kind).await.unwrap();
        let all = store.portions(kind).await.concat();
        assert!(
            !all.is_empty() && tally == all.len() as u64,
            "{kind:?}: {tally}"
        );
        read.push((kind, all));
    }
    let lines = store.lines().await;
    let rows = store.deliveries_of(&user("ada"), 9).await.unwrap();
    let due = noon() + minutes(1_000);
    let filter = tidings::store::AccumulatorFilter::Due(due);
    let gathering = store.find_accumulators(&filter, 9).await.unwrap();

    store.clear().await;
    assert_eq!(store.lines().await, [""; 0]);
    for (kind, kept) in &read {
        store.movable().put(*kind, kept).await.unwrap();
    }

    assert_eq!(store.second().lines().await, lines);
    assert_eq!(rows[0].state, DeliveryState::Sending);
    let again = store.deliveries_of(&user("ada"), 9).await.unwrap();
    assert_eq!(again, rows);
    let found = store.find_accumulators(&filter, 9).await.unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found, gathering);
    let journal = store.fanout(id(4)).await.unwrap().unwrap();
    assert!(
        read.iter()
            .any(|(_, kept)| kept.contains(&Kept::Fanout(Box::new(journal.clone()))))
    );
}

pub async fn portions_join_without_a_seam(store: Fresh) {
    let follows: Vec<_> = (0..2_500)
        .map(|n| (key("k"), user(&format!("u{n:04}"))))
        .collect();
    store
        .change_follows(FollowChange::Follow, &follows)
        .await
        .unwrap();

    let portions = store.portions(Kind::Follows).await;

    assert!(portions.iter().all(|portion| portion.len() <= 1_000));
    let all = follows.into_iter().map(|(k, u)| Kept::Follow(k, u));
    assert_eq!(portions.concat(), all.collect::<Vec<_>>());
}

pub async fn what_is_put_stands_in_the_place_of_what_stood(store: Fresh) {
    filled(&store).await;
    let before = store.lines().await;
    let mut ada = store
        .users(&[user("ada")])
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    let as_read = Kept::User(Box::new(ada.clone()));
    ada.name = Some("Another".into());
    assert_eq!(store.put_users(&[ada]).await.unwrap(), [true]);
    let moved = store.fanout(id(2)).await.unwrap().unwrap();

    for _ in 0..2 {
        let put = [Kept::Fanout(Box::new(moved.clone()))];
        store.movable().put(Kind::Fanouts, &put).await.unwrap();
        let put = std::slice::from_ref(&as_read);
        store.movable().put(Kind::Users, put).await.unwrap();
    }

    assert_eq!(store.lines().await, before);
}

pub async fn a_record_that_cannot_be_read_is_told_and_keeps_no_other(store: Fresh) {
    let users = ["ada", "ben", "cem"].map(|name| User::new(user(name)));
    store.put_users(&users).await.unwrap();
    match poison::database(&store).await {
        Some(database) => {
            let odd = bson::doc! {"_id": "ben", "types": [{"t": "T", "route": "pigeon"}]};
            poison::put_into(&database, "users", odd).await;
            poison::put_into(&database, "users", bson::doc! {"_id": 7}).await;
        }
        None => {
            let file = poison::file(&store);
            let odd = "UPDATE users SET types = '{\"T\": [\"pigeon\", 0]}' WHERE id = 'ben'";
            file.execute(odd, []).unwrap();
            let key = "INSERT INTO users (id, confirmed, types, rev) VALUES (x'ff', 1, '{}', 1)";
            file.execute(key, []).unwrap();
        }
    }

    let portion = store.movable().portion(Kind::Users, None).await.unwrap();
    let tally = store.movable().tally(Kind::Users).await.unwrap();

    let whom = portion.kept.iter().map(|kept| match kept {
        Kept::User(user) => user.id.as_str(),
        other => panic!("{other:?}"),
    });
    assert_eq!(whom.collect::<Vec<_>>(), ["ada", "cem"]);
    assert_eq!((portion.bad.len(), tally), (2, 4), "{:?}", portion.bad);
    let ben = portion.bad.iter().filter(|told| told.contains("ben"));
    assert_eq!(ben.count(), 1, "{:?}", portion.bad);
}

fn note(n: u32) -> MoveNote {
    MoveNote {
        id: id(n),
        role: Role::Target,
        from: "sqlite:old.db".into(),
        to: "mongodb://db.example.org/new".into(),
        done: false,
        reached: None,
    }
}

pub async fn the_notes_of_the_store_itself_are_not_read(store: Fresh) {
    store.put_note("pause", "it is late").await.unwrap();
    let (first, done) = (
        note(1),
        MoveNote {
            done: true,
            ..note(1)
        },
    );
    let movable = store.movable();
    assert!(movable.swap_move_note(None, Some(&first)).await.unwrap());
    assert!(
        movable
            .swap_move_note(Some(&first), Some(&done))
            .await
            .unwrap()
    );

    let (name, text) = ("pause".to_owned(), "it is late".to_owned());
    assert_eq!(
        store.portions(Kind::Notes).await.concat(),
        [Kept::Note { name, text }]
    );
    assert_eq!(movable.tally(Kind::Notes).await.unwrap(), 1);
    assert_eq!(
        store.second().movable().move_note().await.unwrap(),
        Some(done)
    );
}

pub async fn of_many_who_change_what_a_store_is_in_a_move_one_is_told_yes(store: Fresh) {
    let told = store
        .at_once(16, |store, n| async move {
            let put = store.movable().swap_move_note(None, Some(&note(n))).await;
            put.unwrap()
        })
        .await;

    assert_eq!(told.iter().filter(|yes| **yes).count(), 1, "{told:?}");
    let stands = store.movable().move_note().await.unwrap().unwrap();
    let winner = told.iter().position(|yes| *yes).unwrap();
    assert_eq!(stands, note(winner as u32));
}

pub async fn a_sealed_store_takes_nothing_from_anybody_until_it_is_unsealed(store: Fresh) {
    filled(&store).await;
    store
        .push(today(), 9, &push_to(&user("ada"), events(2, 1)))
        .await
        .unwrap();
    let before = store.lines().await;
    let can = store
        .movable()
        .seal("it's being moved to $x")
        .await
        .unwrap();
    assert_eq!(can, !store.url().starts_with("mongodb"));
    if !can {
        return;
    }
    store.movable().seal("twice").await.unwrap();

    let other = store.second();
    let refused = [
        other
            .put_users(&[User::new(user("new"))])
            .await
            .unwrap_err(),
        other.accept(&[fanout(70)]).await.unwrap_err(),
        other
            .push(today(), 9, &push_to(&user("ada"), events(1, 5)))
            .await
            .unwrap_err(),
        other
            .write_markers(&[new_marker(&user("ada"), today(), id(9), 1)])
            .await
            .unwrap_err(),
        other
            .open(&[delivery("new", "2014-04-22", "one")])
            .await
            .unwrap_err(),
        other.delete_user(&user("ada")).await.unwrap_err(),
        other.put_note("pause", "another").await.unwrap_err(),
    ];

    for error in refused {
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, "it's being moved to $x");
    }
    assert_eq!(store.lines().await, before);
    assert!(
        store
            .movable()
            .swap_move_note(None, Some(&note(1)))
            .await
            .unwrap()
    );
    store.movable().unseal().await.unwrap();
    assert_eq!(
        other.put_users(&[User::new(user("new"))]).await.unwrap(),
        [true]
    );
}
