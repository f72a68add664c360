//! The contract of `Store`: exports are complete, and imports write what was exported.

use tidings::domain::batch::Accumulator;
use tidings::domain::{
    Audience, ChangeNotice, DeliveryId, DeliveryState, Feedback, Lease, ObjectId, ReportKind,
    Retraction, Suppression, SuppressionReason, User,
};
use tidings::store::{AnyRecord, FollowChange, ImportProgress, RecordKind, TransferMark};

use super::batches::{closing, opened};
use super::{inboxes, objects, people};
use crate::support::*;

/// One record of each kind, and more of those that have many forms, by the ordinary verbs.
async fn filled(store: &Fresh) {
    let users = [people::full("ada"), people::falsy("0"), User::new(user("bare"))];
    store.put_users(&users).await.unwrap();
    let follows = [("artist:1", "ada"), ("a.$b", "0")].map(|(k, u)| (key(k), user(u)));
    store.change_follows(FollowChange::Follow, &follows).await.unwrap();
    let works = ["Artwork:1", "bare"].map(objects::full);
    store.put_objects(&works).await.unwrap();
    for (name, n) in [("ada", 1), ("7", 2)] {
        let put = store.put_inbox(&inboxes::marked(name, 3), id(n)).await;
        assert!(put.unwrap());
    }
    let at = id(3);
    let (kind, object) = (kind("ArtworkPublished"), ObjectId::stored("0"));
    let no_users = ChangeNotice::users([""; 0]);
    store.retract(&[Retraction { kind, object, at }], &no_users).await.unwrap();
    let address = |text: &str| tidings::domain::Address::new(text).unwrap();
    let suppression = Suppression {
        address: address("ben@example.org"),
        reason: SuppressionReason::ALL[0],
        at: noon(),
        source: "hand".into(),
        detail: Some("$odd".into()),
        lifted: None,
    };
    let lifted = Suppression { address: address("fay@example.org"), ..suppression.clone() };
    let fay = lifted.address.clone();
    store.suppress(&[suppression, lifted]).await;
    store.lift(&fay, noon(), noon()).await;
    let bounced = DeliveryId::stored("digest:eve:daily:2014-04-22");
    let eve = address("eve@example.org");
    store.soft_bounce(&eve, &bounced, noon(), noon() - minutes(9)).await;
    let sight = [("key".to_owned(), "mark".to_owned())];
    store.record_receipts(&sight, noon(), noon() + minutes(9)).await;
    let mut followed = fanout(2);
    followed.audience = Audience::followers_of([key("artist:5")]).unwrap().except([user("0")]);
    let long = (0..100_000).map(|n| user(&format!("{n:0>100}")));
    let mut named = fanout(4);
    named.audience = Audience::users(long).unwrap();
    store.accept(&[fanout(1), followed, named]).await.unwrap();
    store.claim_fanouts(&lease("me", noon() + minutes(5)), noon(), 1.into()).await.unwrap();
    let held = Accumulator {
        ended: vec![closing("ada", "k", 2)],
        lease: Some(Lease { owner: "me".into(), until: noon() + minutes(3) }),
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
    store.sending("one", noon(), noon() + minutes(5), &[sending]).await;
    let news = Feedback { news: ReportKind::ALL[0], at: noon() };
    store.note_feedback(&[(rows[2].id.clone(), news)]).await.unwrap();
    store.put_note("pause", "the key is wrong").await;
}

pub async fn every_record_is_exported_and_imported_whole(store: Fresh) {
    filled(&store).await;
    let mut exported = Vec::new();
    for kind in RecordKind::ALL {
        let lines = store.lines_of(kind).await;
        assert!(!lines.is_empty(), "{kind:?}");
        for line in &lines {
            assert_eq!(AnyRecord::from_line(kind, line).unwrap().to_line().unwrap(), *line);
        }
        exported.push((kind, lines));
    }
    let lines = store.lines().await;
    let rows = store.deliveries_of(&user("ada"), 9).await;
    let journal = store.fanout(id(4)).await.unwrap();
    let due = noon() + minutes(1_000);
    let filter = tidings::store::AccumulatorFilter::Due(due);
    let gathering = store.find_accumulators(&filter, 9).await.unwrap();

    store.clear().await;
    assert_eq!(store.lines().await, [""; 0]);
    for (kind, lines) in &exported {
        store.whole().import_records(*kind, lines).await.unwrap();
    }

    assert_eq!(store.second().lines().await, lines);
    assert_eq!(rows[0].state, DeliveryState::Sending);
    let again = store.deliveries_of(&user("ada"), 9).await;
    assert_eq!(again, rows);
    let unrevised = |accumulators: Vec<Accumulator>| -> Vec<Accumulator> {
        let revision = None;
        let known = accumulators.into_iter();
        known.map(|one| Accumulator { revision, ..one }).collect()
    };
    let found = store.find_accumulators(&filter, 9).await.unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(unrevised(found), unrevised(gathering));
    assert!(journal.is_some());
    assert_eq!(store.fanout(id(4)).await.unwrap(), journal);
}

pub async fn pages_join_without_a_gap(store: Fresh) {
    let follows: Vec<_> = (0..2_500).map(|n| (key("k"), user(&format!("u{n:04}")))).collect();
    store.change_follows(FollowChange::Follow, &follows).await.unwrap();

    let pages = store.pages(RecordKind::Follows).await;

    assert!(pages.iter().all(|page| page.lines.len() <= 1_000));
    let all: Vec<String> = follows.iter().map(|(k, u)| follow_line(k, u)).collect();
    assert_eq!(store.lines_of(RecordKind::Follows).await, all);
}

pub async fn an_imported_record_replaces_the_stored_one(store: Fresh) {
    filled(&store).await;
    let before = store.lines().await;
    let users = store.lines_of(RecordKind::Users).await;
    let fanouts = store.lines_of(RecordKind::Fanouts).await;
    let mut ada = store.user_record(&user("ada")).await.unwrap();
    ada.name = Some("Another".into());
    assert_eq!(store.put_users(&[ada]).await.unwrap(), [true]);
    assert_ne!(store.lines().await, before);

    for _ in 0..2 {
        for (kind, lines) in [(RecordKind::Users, &users), (RecordKind::Fanouts, &fanouts)] {
            store.whole().import_records(kind, lines).await.unwrap();
        }
    }

    assert_eq!(store.lines().await, before);
}

pub async fn an_unreadable_record_is_reported_and_stops_no_other(store: Fresh) {
    let users = ["ada", "ben", "cem"].map(|name| User::new(user(name)));
    store.put_users(&users).await.unwrap();
    match poison::database(&store).await {
        Some(database) => {
            let odd = bson::doc! {"_id": "ben", "types": [{"t": "T", "route": "pigeon"}]};
            poison::put_into(&database, "users", odd).await;
            poison::put_into(&database, "users", bson::doc! {"_id": 7}).await;
            let id = bson::doc! {"a": "eve@example.org", "d": "digest:eve"};
            let odd = bson::doc! {"_id": id, "at": "late"};
            poison::put_into(&database, "soft_bounces", odd).await;
        }
        None => {
            let file = poison::file(&store);
            let odd = "UPDATE users SET types = '{\"T\": [\"pigeon\", 0]}' WHERE id = 'ben'";
            file.execute(odd, []).unwrap();
            let key = "INSERT INTO users (id, confirmed, types, rev) VALUES (x'ff', 1, '{}', 1)";
            file.execute(key, []).unwrap();
            let odd = "INSERT INTO soft_bounces VALUES ('eve@example.org', 'digest:eve', 'late')";
            file.execute(odd, []).unwrap();
        }
    }

    let pages = store.pages(RecordKind::Users).await;

    let lines = store.lines_of(RecordKind::Users).await;
    let ids = lines.iter().map(|line| match AnyRecord::from_line(RecordKind::Users, line) {
        Ok(AnyRecord::User(user)) => user.id.as_str().to_owned(),
        _ => panic!("{line}"),
    });
    assert_eq!(ids.collect::<Vec<_>>(), ["ada", "cem"]);
    let bad: Vec<String> = pages.into_iter().flat_map(|page| page.unreadable).collect();
    assert_eq!(bad.len(), 2, "{bad:?}");
    let ben = bad.iter().filter(|reported| reported.contains("ben"));
    assert_eq!(ben.count(), 1, "{bad:?}");
    let bounces = store.pages(RecordKind::SoftBounces).await;
    let bad: Vec<String> = bounces.into_iter().flat_map(|page| page.unreadable).collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert!(!bad[0].contains("eve@"), "{bad:?}");
}

fn mark(n: u64) -> TransferMark {
    TransferMark::Importing(ImportProgress {
        folder: "moving".into(),
        manifest: "53a9".into(),
        checked: true,
        files: 2,
        lines: n,
    })
}

pub async fn the_notes_about_the_store_itself_are_not_exported(store: Fresh) {
    store.put_note("pause", "it is late").await;
    let whole = store.whole();
    assert!(whole.swap_transfer_mark(None, Some(&mark(1))).await.unwrap());
    let (first, second) = (mark(1), mark(2));
    assert!(whole.swap_transfer_mark(Some(&first), Some(&second)).await.unwrap());

    let line = r#"{"_id":"pause","text":"it is late"}"#;
    assert_eq!(store.lines_of(RecordKind::Notes).await, [line]);
    let read = store.second().whole().transfer_mark().await.unwrap();
    assert_eq!(read, Some(second));
}

pub async fn one_of_many_concurrent_marks_wins(store: Fresh) {
    let won = store
        .at_once(16, |store, n| async move {
            let put = store.whole().swap_transfer_mark(None, Some(&mark(n.into()))).await;
            put.unwrap()
        })
        .await;

    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
    let current = store.whole().transfer_mark().await.unwrap().unwrap();
    let winner = won.iter().position(|won| *won).unwrap();
    assert_eq!(current, mark(winner as u64));
}

/// The source stays closed. The target is closed until the move ends.
pub async fn a_store_that_an_earlier_version_moves_is_marked(store: Fresh) {
    let (mut marks, mut before) = (Vec::new(), None);
    for note in [
        r#"{"role":"target","done":false}"#,
        r#"{"role":"target","done":true}"#,
        r#"{"role":"source","done":true}"#,
    ] {
        assert!(store.swap_note("moving", before, Some(note)).await.unwrap());
        before = Some(note);
        marks.push(store.transfer_mark().await.unwrap());
    }

    assert_eq!(marks, [Some(TransferMark::Moving), None, Some(TransferMark::Moving)]);
}
