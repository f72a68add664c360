//! Contract tests of `Directory` for inboxes: each user has one record, and a write replaces only
//! the revision that was read.

use std::collections::BTreeMap;

use tidings::domain::feed_marks::{EntrySet, StackMarks};
use tidings::domain::{DaySet, Id, Inbox, User};
use tidings::store::{Error, ExpiringRecords, FeedParts, MergePolicy};

use crate::support::*;

/// An inbox that marks these bits on its first stack.
pub(super) fn marked(name: &str, bits: u8) -> Inbox {
    let marks = |seen: u8, read: u8, archived: u8| StackMarks {
        seen: EntrySet::stored(vec![0, seen]),
        read: EntrySet::stored(vec![read]),
        archived: EntrySet::stored(vec![archived]),
    };
    let named = |text: &str| text.parse().unwrap();
    Inbox {
        user: user(name),
        revision: None,
        changed: noon(),
        stacks: BTreeMap::from([
            (named("20140421"), marks(bits, 0b101, 0b1)),
            (named("20140421o"), marks(0xff, 0, 0)),
        ]),
    }
}

async fn load_inbox(store: &Fresh, name: &str) -> Option<Inbox> {
    store.inboxes(&[user(name)]).await.unwrap().remove(0)
}

pub async fn an_inbox_is_read_back_with_every_field(store: Fresh) {
    let all = ["ada", "Ada", "a.$b\u{0}", "7"].map(|name| marked(name, 3));
    for (inbox, n) in all.iter().zip(1..) {
        assert!(store.put_inbox(inbox, id(n)).await.unwrap());
    }

    let requested = ["7", "nobody", "ada", "a.$b\u{0}", "Ada", "ada"].map(user);
    let found = store.inboxes(&requested).await.unwrap();
    let nothing = store.inboxes(&[]).await.unwrap();

    let put = |n: usize| {
        let revision = Some(id(n as u32 + 1));
        Some(Inbox { revision, ..all[n].clone() })
    };
    assert_eq!(found, [put(3), None, put(0), put(2), put(1), put(0)]);
    assert_eq!(nothing, []);
}

pub async fn a_feed_equals_the_separate_reads_of_its_parts(store: Fresh) {
    // An id that an older writer may have stored as an ObjectId, and one that looks like an
    // operator.
    let names = ["533998b1c9dc24c371000041", "ada", "$_id", "ben"];
    for (name, n) in names[..3].iter().zip(1..) {
        let person = user(name);
        for day in [today().days_before(1), today()] {
            let pushes = push_to(&person, events(2, n));
            store.push(day, 1_000, &pushes).await.unwrap();
        }
        store.put_users(&[User::new(person)]).await.unwrap();
        assert!(store.put_inbox(&marked(name, 3), id(n)).await.unwrap());
    }
    let event = r#"{"t":"ArtworkPublished","o":"a"}"#;
    let old = format!(r#"{{"_id":{{"$oid":"{}"}},"events":[{event}]}}"#, names[0]);
    // Another program's fields beside the events of a user without records. Only MongoDB stores
    // them.
    let bare = format!(r#"{{"_id":"ben","events":[{event}]}}"#);
    let beside = r#""users":{"_id":"ada"},"inboxes":{"_id":"ada"}"#;
    let foreign = format!(r#"{{"_id":"ben","events":[{event}],{beside}}}"#);
    let restored_foreign = store.restore_day(today(), &[foreign], MergePolicy::MustBeEqual).await;
    let refused = matches!(restored_foreign, Err(Error::Unsupported(_)));
    assert!(refused || restored_foreign.is_ok(), "{restored_foreign:?}");
    let others = if refused { vec![old, bare] } else { vec![old] };
    store.restore_stacks(today(), &others).await;

    let mut stacks = Vec::new();
    for name in names {
        let person = user(name);
        let each = std::slice::from_ref(&person);
        let feed = store.feeds(window(), each).await.unwrap().remove(0);
        let windows = store.windows(window(), each).await.unwrap();
        let users = store.users(each).await.unwrap();
        let parts = FeedParts {
            stacks: windows[0].clone(),
            inbox: load_inbox(&store, name).await,
            user: users[0].clone(),
        };
        assert_eq!(feed, parts);
        stacks.push(feed.stacks.stacks.len());
    }
    assert_eq!(stacks, [3, 2, 2, 1]);

    let long_ago = DaySet::ending(today().days_before(365), 7);
    let feed = store.feeds(long_ago, &[user("ada")]).await.unwrap();
    let feed = &feed[0];
    assert_eq!(feed.stacks.stacks, []);
    assert_eq!(feed.inbox, load_inbox(&store, "ada").await);
}

pub async fn an_inbox_replaces_only_the_revision_that_was_read(store: Fresh) {
    let first = marked("ada", 1);
    assert!(store.put_inbox(&first, id(1)).await.unwrap());
    let again = store.put_inbox(&first, id(1)).await.unwrap();
    let without_revision = store.put_inbox(&marked("ada", 2), id(2)).await.unwrap();
    let read = load_inbox(&store, "ada").await.unwrap();
    let second = Inbox { revision: read.revision, ..marked("ada", 2) };
    let with_revision = store.put_inbox(&second, id(3)).await.unwrap();
    let stale = store.put_inbox(&second, id(4)).await.unwrap();
    let of_missing = Inbox { user: user("ben"), ..second.clone() };
    let onto_missing = store.put_inbox(&of_missing, id(5)).await.unwrap();

    let written = [again, without_revision, with_revision, stale, onto_missing];
    assert_eq!(written, [true, false, true, false, false]);
    let revision = Some(id(3));
    let expected = Inbox { revision, ..second };
    assert_eq!(load_inbox(&store, "ada").await, Some(expected));
    assert_eq!(load_inbox(&store, "ben").await, None);
}

pub async fn concurrent_marks_in_an_inbox_are_all_stored(store: Fresh) {
    let mark = |n: u32| {
        let store = &store;
        async move {
            for round in 0.. {
                let mut inbox = load_inbox(store, "ada").await.unwrap_or(marked("ada", 0));
                let stack = inbox.stacks.entry("20140422".parse().unwrap()).or_default();
                let mut bytes = stack.seen.bytes().to_vec();
                bytes.resize(2, 0);
                bytes[n as usize / 8] |= 1 << (n % 8);
                stack.seen = EntrySet::stored(bytes);
                let revision: Id = id(100 * (n + 1) + round);
                if store.put_inbox(&inbox, revision).await.unwrap() {
                    return;
                }
            }
        }
    };

    futures::future::join_all((0..12).map(mark)).await;

    let inbox = load_inbox(&store, "ada").await.unwrap();
    let seen = &inbox.stacks[&"20140422".parse().unwrap()].seen;
    assert!((0..12).all(|n| seen.contains(n)), "{seen:?}");
}

pub async fn inboxes_without_recent_changes_are_removed(store: Fresh) {
    for (n, name) in ["ada", "ben", "cem"].iter().enumerate() {
        let changed = noon() + minutes(n as i64);
        let inbox = Inbox { changed, ..marked(name, 1) };
        assert!(store.put_inbox(&inbox, id(n as u32)).await.unwrap());
    }

    let before = noon() + minutes(2);
    let forget = || store.forget(ExpiringRecords::Inboxes, before, 1);
    let forgotten = [forget().await.unwrap(), forget().await.unwrap(), forget().await.unwrap()];

    assert_eq!(forgotten, [1, 1, 0]);
    assert_eq!(load_inbox(&store, "ben").await, None);
    assert!(load_inbox(&store, "cem").await.is_some());
}

pub async fn concurrent_writes_of_inboxes_each_return_their_own_outcome(store: Fresh) {
    // Four cases in turn: the record is unchanged, or replaced; there is none, or another writer
    // created one.
    let people: Vec<String> = (0..16).map(|n| format!("p{n:02}")).collect();
    let mut puts = Vec::new();
    for (n, name) in people.iter().enumerate() {
        let (mine, other) = (id(1_000 + n as u32), id(2_000 + n as u32));
        let mut put = marked(name, 7);
        if n % 4 < 2 {
            let first = store.put_inbox(&marked(name, 1), mine).await;
            assert!(first.unwrap());
            put.revision = Some(mine);
        }
        if n % 2 == 1 {
            let mut theirs = marked(name, 3);
            theirs.revision = put.revision;
            assert!(store.put_inbox(&theirs, other).await.unwrap());
        }
        puts.push((put, id(3_000 + n as u32)));
    }

    let putting = puts.iter().map(|(inbox, revision)| store.put_inbox(inbox, *revision));
    let done = futures::future::join_all(putting).await;

    for (n, (done, name)) in done.into_iter().zip(&people).enumerate() {
        let is_put = n % 2 == 0;
        assert_eq!(done.unwrap(), is_put, "{name}");
        let revision = id(if is_put { 3_000 } else { 2_000 } + n as u32);
        let stored = load_inbox(&store, name).await.unwrap();
        assert_eq!(stored.revision, Some(revision), "{name}");
    }
}
