//! Laws of what people have seen of their feeds: one record a person, put in the place of what was
//! read and of nothing else.

use std::collections::BTreeMap;

use tidings::domain::inbox::{Entries, StackMarks};
use tidings::domain::{Id, Inbox, User, Window};
use tidings::store::{Error, FeedParts, Forgettable, Meeting, People};

use crate::support::*;

/// Whose marks on their first stack are these bits.
pub(super) fn marked(name: &str, bits: u8) -> Inbox {
    let marks = |seen: u8, read: u8, archived: u8| StackMarks {
        seen: Entries::stored(vec![0, seen]),
        read: Entries::stored(vec![read]),
        archived: Entries::stored(vec![archived]),
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

async fn standing(store: &Fresh, name: &str) -> Option<Inbox> {
    store.inboxes(&[user(name)]).await.unwrap().remove(0)
}

pub async fn an_inbox_comes_back_with_every_field(store: Fresh) {
    let all = ["ada", "Ada", "a.$b\u{0}", "7"].map(|name| marked(name, 3));
    for (inbox, n) in all.iter().zip(1..) {
        assert!(store.put_inbox(inbox, id(n)).await.unwrap());
    }

    let asked = ["7", "nobody", "ada", "a.$b\u{0}", "Ada", "ada"].map(user);
    let found = store.inboxes(&asked).await.unwrap();
    let nothing = store.inboxes(&[]).await.unwrap();

    let put = |n: usize| {
        let revision = Some(id(n as u32 + 1));
        Some(Inbox {
            revision,
            ..all[n].clone()
        })
    };
    assert_eq!(found, [put(3), None, put(0), put(2), put(1), put(0)]);
    assert_eq!(nothing, []);
}

pub async fn a_feed_is_what_its_parts_are_by_themselves(store: Fresh) {
    // An id that an older writer may have stored as an ObjectId, and one that is like an operator.
    let names = ["533998b1c9dc24c371000041", "ada", "$_id", "ben"];
    for (name, n) in names[..3].iter().zip(1..) {
        let person = user(name);
        for day in [today().back(1), today()] {
            let pushes = push_to(&person, events(2, n));
            store.push(day, 1_000, &pushes).await.unwrap();
        }
        store.put_users(&[User::new(person)]).await.unwrap();
        assert!(store.put_inbox(&marked(name, 3), id(n)).await.unwrap());
    }
    let event = r#"{"t":"ArtworkPublished","o":"a"}"#;
    let old = format!(r#"{{"_id":{{"$oid":"{}"}},"events":[{event}]}}"#, names[0]);
    // What another program wrote beside the events of somebody without records, where a store
    // holds that.
    let bare = format!(r#"{{"_id":"ben","events":[{event}]}}"#);
    let beside = r#""users":{"_id":"ada"},"inboxes":{"_id":"ada"}"#;
    let foreign = format!(r#"{{"_id":"ben","events":[{event}],{beside}}}"#);
    let held = store.restore_day(today(), &[foreign], Meeting::Same).await;
    let refused = matches!(held, Err(Error::Unsupported(_)));
    assert!(refused || held.is_ok(), "{held:?}");
    let others = if refused { vec![old, bare] } else { vec![old] };
    let restored = store.restore_day(today(), &others, Meeting::Same);
    restored.await.unwrap();

    let mut stacks = Vec::new();
    for name in names {
        let person = user(name);
        let feed = store.feed(window(), &person).await.unwrap();
        let each = std::slice::from_ref(&person);
        let windows = store.windows(window(), People::Each(each)).await.unwrap();
        let users = store.users(each).await.unwrap();
        let parts = FeedParts {
            person: windows[0].clone(),
            inbox: standing(&store, name).await,
            user: users[0].clone(),
        };
        assert_eq!(feed, parts);
        stacks.push(feed.person.stacks.len());
    }
    assert_eq!(stacks, [3, 2, 2, 1]);

    let long_ago = Window::ending(today().back(365), 7);
    let feed = store.feed(long_ago, &user("ada")).await.unwrap();
    assert_eq!(feed.person.stacks, []);
    assert_eq!(feed.inbox, standing(&store, "ada").await);
}

pub async fn an_inbox_is_put_in_the_place_of_what_was_read_and_of_nothing_else(store: Fresh) {
    let first = marked("ada", 1);
    assert!(store.put_inbox(&first, id(1)).await.unwrap());
    let again = store.put_inbox(&first, id(1)).await.unwrap();
    let over_it = store.put_inbox(&marked("ada", 2), id(2)).await.unwrap();
    let read = standing(&store, "ada").await.unwrap();
    let second = Inbox {
        revision: read.revision,
        ..marked("ada", 2)
    };
    let onto_it = store.put_inbox(&second, id(3)).await.unwrap();
    let late = store.put_inbox(&second, id(4)).await.unwrap();
    let of_none = Inbox {
        user: user("ben"),
        ..second.clone()
    };
    let onto_none = store.put_inbox(&of_none, id(5)).await.unwrap();

    let told = [again, over_it, onto_it, late, onto_none];
    assert_eq!(told, [true, false, true, false, false]);
    let revision = Some(id(3));
    let expected = Inbox { revision, ..second };
    assert_eq!(standing(&store, "ada").await, Some(expected));
    assert_eq!(standing(&store, "ben").await, None);
}

pub async fn of_many_who_mark_at_once_nobodys_mark_is_lost(store: Fresh) {
    let mark = |n: u32| {
        let store = &store;
        async move {
            for round in 0.. {
                let mut inbox = standing(store, "ada").await.unwrap_or(marked("ada", 0));
                let stack = inbox.stacks.entry("20140422".parse().unwrap()).or_default();
                let mut bytes = stack.seen.bytes().to_vec();
                bytes.resize(2, 0);
                bytes[n as usize / 8] |= 1 << (n % 8);
                stack.seen = Entries::stored(bytes);
                let revision: Id = id(100 * (n + 1) + round);
                if store.put_inbox(&inbox, revision).await.unwrap() {
                    return;
                }
            }
        }
    };

    futures::future::join_all((0..12).map(mark)).await;

    let inbox = standing(&store, "ada").await.unwrap();
    let seen = &inbox.stacks[&"20140422".parse().unwrap()].seen;
    assert!((0..12).all(|n| seen.has(n)), "{seen:?}");
}

pub async fn inboxes_that_nobody_marked_for_long_are_forgotten(store: Fresh) {
    for (n, name) in ["ada", "ben", "cem"].iter().enumerate() {
        let changed = noon() + minutes(n as i64);
        let inbox = Inbox {
            changed,
            ..marked(name, 1)
        };
        assert!(store.put_inbox(&inbox, id(n as u32)).await.unwrap());
    }

    let before = noon() + minutes(2);
    let forget = || store.forget(Forgettable::Inboxes, before, 1);
    let forgotten = [
        forget().await.unwrap(),
        forget().await.unwrap(),
        forget().await.unwrap(),
    ];

    assert_eq!(forgotten, [1, 1, 0]);
    assert_eq!(standing(&store, "ben").await, None);
    assert!(standing(&store, "cem").await.is_some());
}

pub async fn of_many_puts_at_once_each_is_told_its_own_end(store: Fresh) {
    // Of four each: whose record stands as it was read, or was put anew by somebody else; who has
    // none, or was thought to have none.
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

    let putting = puts
        .iter()
        .map(|(inbox, revision)| store.put_inbox(inbox, *revision));
    let done = futures::future::join_all(putting).await;

    for (n, (done, name)) in done.into_iter().zip(&people).enumerate() {
        let is_put = n % 2 == 0;
        assert_eq!(done.unwrap(), is_put, "{name}");
        let revision = id(if is_put { 3_000 } else { 2_000 } + n as u32);
        let stands = standing(&store, name).await.unwrap();
        assert_eq!(stands.revision, Some(revision), "{name}");
    }
}
