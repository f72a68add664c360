//! Laws of `Batches` for seats: one writer wins, what is due is found, and what is added is what
//! joining comes to.

use chrono::TimeDelta;
use tidings::domain::batch::{Addition, Contents, Keep, Lead, Memory, Seat, SeatId};
use tidings::domain::{BatchKey, BatchPolicy, BatchState, ObjectId};

use super::batches::{WINDOW, closing, item, opened, put, read, seat_id};
use crate::support::*;

pub async fn a_seat_comes_back_with_every_field(store: Fresh) {
    let mut full = opened("ada", "k", 1, 0);
    let open = full.open.as_mut().unwrap();
    open.last_event_at = noon() + minutes(2);
    open.taken = vec![item("gone", 6)];
    open.lead = Lead::Waiting {
        contents: Contents {
            count: 7,
            items: vec![item("$odd.é", 3)],
        },
        joined: vec![id(3), id(4)],
    };
    full.ended = vec![closing("ada", "k", 2), {
        let mut canceled = closing("ada", "k", 5);
        (canceled.state, canceled.settled) = (BatchState::Canceled, Some(noon()));
        canceled.lead = Lead::Mailed {
            joined: vec![id(2)],
        };
        canceled
    }];
    full.memories = vec![
        Memory {
            at: noon(),
            joined: vec![id(7), id(8)],
        },
        Memory {
            at: noon() + minutes(1),
            joined: vec![],
        },
    ];
    full.turn = Some(noon() + TimeDelta::milliseconds(1));
    full.lease = Some(lease("me", noon() + minutes(3)));
    let plain = opened("ben", "k", 9, 0);

    let written = [full.clone(), plain.clone()];
    assert_eq!(
        store.put_seats(&written, id(50)).await.unwrap(),
        [true, true]
    );

    let asked = [plain.id.clone(), seat_id("nobody", "k"), full.id.clone()];
    let found = store.second().seats(&asked).await.unwrap();
    let stamped = |seat: Seat| {
        Some(Seat {
            stamp: Some(id(50)),
            ..seat
        })
    };
    assert_eq!(found, [stamped(plain), None, stamped(full)]);
}

pub async fn a_seat_is_put_in_the_place_of_what_was_read_and_of_nothing_else(store: Fresh) {
    let first = opened("ada", "k", 1, 0);
    assert!(put(&store, &first, 50).await);
    let mine = read(&store, &first.id).await.unwrap();
    let mut theirs = mine.clone();
    theirs.turn = Some(noon());
    assert!(put(&store, &theirs, 51).await);

    assert!(!put(&store, &mine, 52).await);
    assert!(!put(&store, &first, 53).await);

    let standing = read(&store, &first.id).await.unwrap();
    assert_eq!(
        (standing.stamp, standing.turn),
        (Some(id(51)), Some(noon()))
    );
    let gone = Seat {
        id: seat_id("nobody", "k"),
        ..mine
    };
    assert!(!put(&store, &gone, 54).await);
    assert_eq!(read(&store, &gone.id).await, None);
}

pub async fn of_a_seat_that_is_named_twice_one_is_put(store: Fresh) {
    let first = opened("ada", "k", 1, 0);
    assert!(put(&store, &first, 50).await);
    let older = read(&store, &first.id).await.unwrap();
    let mut seat = older.clone();
    seat.turn = Some(noon());
    assert!(put(&store, &seat, 51).await);
    let newer = read(&store, &first.id).await.unwrap();

    for (named, stamp) in [([older.clone(), newer.clone()], 52), ([newer, older], 53)] {
        let told = store.put_seats(&named, id(stamp)).await.unwrap();

        let standing = read(&store, &first.id).await.unwrap();
        assert_eq!(standing.turn, Some(noon()), "the older one was put");
        for (seat, told) in named.iter().zip(told) {
            assert!(!told || seat.turn.is_some(), "told of one that was not put");
        }
    }
}

pub async fn of_many_who_open_one_seat_at_once_one_is_told_yes(store: Fresh) {
    let tasks = (0..8).map(|n| {
        let store = store.second();
        tokio::spawn(async move {
            let seat = opened("ada", "k", n, 0);
            store.put_seats(&[seat], id(50 + n)).await.unwrap() == [true]
        })
    });
    let mut yes = 0;
    for task in tasks.collect::<Vec<_>>() {
        yes += u32::from(task.await.unwrap());
    }

    assert_eq!(yes, 1);
    assert_eq!(store.batch_counts().await.unwrap().open, 1);
}

pub async fn of_many_who_change_a_seat_at_once_nobodys_change_is_lost(store: Fresh) {
    let tasks = (0..6_u32).map(|n| {
        let store = store.second();
        tokio::spawn(async move {
            for turn in 0.. {
                let ids = [seat_id("ada", "k")];
                let standing = store.seats(&ids).await.unwrap().pop().unwrap();
                let mut seat = standing.unwrap_or_else(|| Seat::new(ids[0].clone()));
                let stamp = 10_000 + 1_000 * n + turn;
                seat.join(&[item("a", n)], noon(), &WINDOW, || id(100 + n));
                if store.put_seats(&[seat], id(stamp)).await.unwrap() == [true] {
                    break;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }

    let open = read(&store, &seat_id("ada", "k")).await.unwrap().open;
    let open = open.unwrap();
    assert_eq!(open.contents.count, 6);
    assert_eq!(open.joined, (0..6).map(id).collect::<Vec<_>>());
}

pub async fn an_empty_seat_is_removed_and_can_be_taken_again(store: Fresh) {
    let seat = opened("ada", "k", 1, 0);
    assert!(put(&store, &seat, 50).await);
    let read_once = read(&store, &seat.id).await.unwrap();
    let empty = Seat {
        stamp: read_once.stamp,
        ..Seat::new(seat.id.clone())
    };
    let stale = Seat {
        stamp: Some(id(49)),
        ..empty.clone()
    };

    assert!(!put(&store, &stale, 51).await);
    assert!(put(&store, &empty, 52).await);

    assert_eq!(read(&store, &seat.id).await, None);
    assert_eq!(store.seat_of(id(1_001)).await.unwrap(), None);
    assert!(!put(&store, &read_once, 53).await);
    assert!(put(&store, &seat, 54).await);
}

pub async fn odd_keys_and_people_have_seats_of_their_own(store: Fresh) {
    let keys = [
        "0", "false", "a.b", "$ne", "A", "a", " a", "a ", "é", "e\u{301}",
    ];
    let mut seats: Vec<Seat> = (0..)
        .zip(keys)
        .map(|(n, key)| opened("$gt", key, n, 0))
        .collect();
    let mut of_type = opened("$gt", "x", 90, 0);
    of_type.id.key = BatchKey::Type(kind("A"));
    seats.push(of_type);

    let put = store.put_seats(&seats, id(50)).await.unwrap();

    assert_eq!(put, vec![true; seats.len()]);
    let ids: Vec<SeatId> = seats.iter().map(|seat| seat.id.clone()).collect();
    let found = store.seats(&ids).await.unwrap();
    for (seat, found) in seats.iter().zip(found) {
        assert_eq!(
            found.unwrap().open.unwrap().id,
            seat.open.as_ref().unwrap().id
        );
    }
}

pub async fn many_seats_are_put_and_read_at_once(store: Fresh) {
    let seats: Vec<Seat> = (0..2_500)
        .map(|n| opened(&format!("p{n:05}"), "k", n, 0))
        .collect();
    assert!(
        store
            .put_seats(&seats[..100], id(50))
            .await
            .unwrap()
            .iter()
            .all(|put| *put)
    );

    let put = store.put_seats(&seats, id(51)).await.unwrap();

    assert_eq!(put.iter().filter(|put| !**put).count(), 100);
    assert!(put[100..].iter().all(|put| *put));
    let ids: Vec<SeatId> = seats.iter().rev().map(|seat| seat.id.clone()).collect();
    let found = store.seats(&ids).await.unwrap();
    for (asked, found) in ids.iter().zip(found) {
        assert_eq!(found.unwrap().id, *asked);
    }
}

pub async fn what_is_added_to_an_open_batch_is_what_joining_comes_to_and_nothing_else_changes(
    store: Fresh,
) {
    let cooling = BatchPolicy {
        cooldown: minutes(4),
        max_wait: Some(minutes(9)),
        close_at: std::num::NonZeroU64::new(5),
        keep: Keep::Last(2),
        ..WINDOW
    };
    let by = |person: &str, policy: &BatchPolicy, fanouts: &[u32]| {
        let mut seat = Seat::new(seat_id(person, "k"));
        for fanout in fanouts {
            let opens = || id(1_000 + fanout);
            seat.join(&[item("a", *fanout)], noon(), policy, opens);
        }
        seat
    };
    let mut ended = by("ended", &cooling, &[4]);
    ended.close_now(id(1_004), noon()).unwrap();
    ended.join(&[item("a", 5)], noon(), &cooling, || id(1_005));
    let mut remembered = by("remembered", &cooling, &[6]);
    remembered.memories.push(Memory {
        at: noon(),
        joined: vec![id(50)],
    });
    let leading = BatchPolicy {
        leading: true,
        ..cooling
    };
    let seats = [
        by("fits", &cooling, &[1]),
        by("knows", &cooling, &[7, 50]),
        by("fills", &cooling, &[9, 10, 11]),
        by("other", &WINDOW, &[12]),
        by("leads", &leading, &[13]),
        ended,
        remembered,
        Seat::new(seat_id("empty", "k")),
    ];
    let whole: Vec<Seat> = seats
        .iter()
        .filter(|seat| !seat.is_empty())
        .cloned()
        .collect();
    assert!(
        store
            .put_seats(&whole, id(60))
            .await
            .unwrap()
            .iter()
            .all(|put| *put)
    );
    let items = vec![item("b", 50), item("c", 51)];
    let mut done = Vec::new();
    for (n, minute) in [(0, 1), (1, 1), (2, 6)] {
        let at = noon() + minutes(minute);
        let addition = Addition::new(items.clone(), at, &cooling).unwrap();
        for (place, seat) in seats.iter().enumerate() {
            let before = read(&store, &seat.id).await;
            let asked = [(seat.id.clone(), 0)];
            let additions = std::slice::from_ref(&addition);
            let stamp = id(100 + 10 * n + place as u32);
            let added = store.add_to_open(&asked, additions, stamp).await.unwrap();
            let after = read(&store, &seat.id).await;

            let Some(mut joined) = before.clone() else {
                assert!(!added && after.is_none());
                continue;
            };
            let fits = addition.fits(&joined);
            assert!(fits || !added, "{:?} took what does not fit", seat.id);
            if added {
                joined.join(&items, at, &cooling, || unreachable!("it is open"));
                joined.stamp = Some(stamp);
                assert_eq!(after, Some(joined));
                done.push(seat.id.user.to_string());
            } else {
                assert_eq!(after, before);
            }
        }
    }
    // Who does it at all does it wherever it fits, and once.
    assert!(done.is_empty() || done == ["fits"], "{done:?}");
}

pub async fn due_seats_come_in_the_order_in_which_they_fell_due(store: Fresh) {
    let seats: Vec<Seat> = [("c", 3), ("a", 1), ("d", 9), ("b", 2)]
        .into_iter()
        .zip(1..)
        .map(|((person, minute), n)| opened(person, "k", n, minute))
        .collect();
    store.put_seats(&seats, id(50)).await.unwrap();
    let due = |at, limit| {
        let store = store.second();
        async move {
            let due = store.due_seats(noon() + minutes(at), limit).await.unwrap();
            let people = due.into_iter().map(|seat| seat.id.user.to_string());
            people.collect::<Vec<_>>()
        }
    };

    assert_eq!(due(5, 10).await, [""; 0]);
    assert_eq!(due(6, 10).await, ["a"]);
    assert_eq!(due(8, 10).await, ["a", "b", "c"]);
    assert_eq!(due(60, 2).await, ["a", "b"]);
}

pub async fn a_seat_that_somebody_holds_is_not_due_until_the_lease_runs_out(store: Fresh) {
    let mut seat = opened("ada", "k", 1, 0);
    seat.lease = Some(lease("me", noon() + minutes(10)));
    assert!(put(&store, &seat, 50).await);

    assert_eq!(store.due_seats(noon() + minutes(9), 10).await.unwrap(), []);
    let due = store.due_seats(noon() + minutes(10), 10).await.unwrap();

    assert_eq!(due.len(), 1);
    assert_eq!(due[0].lease, seat.lease);
}

pub async fn a_batch_is_found_on_its_seat_until_it_leaves(store: Fresh) {
    let mut seat = opened("ada", "k", 1, 0);
    assert!(put(&store, &seat, 50).await);
    assert!(put(&store, &opened("ben", "k", 2, 0), 51).await);
    let found = store.seat_of(id(1_001)).await.unwrap().unwrap();
    assert_eq!(found.id, seat.id);

    seat.stamp = found.stamp;
    seat.close_now(id(1_001), noon()).unwrap();
    assert!(put(&store, &seat, 52).await);
    let found = store.seat_of(id(1_001)).await.unwrap().unwrap();
    assert_eq!(found.ended[0].id, id(1_001));

    seat.stamp = found.stamp;
    seat.hand_on(&found.ended, noon());
    assert!(put(&store, &seat, 53).await);
    assert_eq!(store.seat_of(id(1_001)).await.unwrap(), None);
}

pub async fn seats_are_found_by_what_their_batches_keep(store: Fresh) {
    let mut leading = Seat::new(seat_id("led", "k"));
    let policy = BatchPolicy {
        leading: true,
        ..WINDOW
    };
    leading.join(&[item("a1", 7)], noon(), &policy, || id(1_007));
    let mut other = opened("other", "k", 8, 0);
    let items = &mut other.open.as_mut().unwrap().contents.items;
    items.iter_mut().for_each(|item| item.t = kind("Other"));
    let seats = [
        opened("b", "k", 1, 0),
        opened("a", "k", 2, 0),
        opened("a", "j", 3, 0),
        leading,
        other,
    ];
    store.put_seats(&seats, id(50)).await.unwrap();
    let (published, objects) = (
        kind("ArtworkPublished"),
        [ObjectId::stored("a1"), ObjectId::stored("x")],
    );
    let holding = |objects: Vec<ObjectId>, after: Option<SeatId>, limit| {
        let (store, kind) = (store.second(), published.clone());
        async move {
            let found = store.seats_holding(&kind, &objects, after.as_ref(), limit);
            let found = found.await.unwrap().into_iter();
            found.map(|seat| seat.id).collect::<Vec<_>>()
        }
    };

    let all = holding(objects.to_vec(), None, 10).await;
    let some = holding(objects.to_vec(), None, 2).await;
    let rest = holding(objects.to_vec(), Some(some[1].clone()), 10).await;

    let expected = [("a", "j"), ("a", "k"), ("b", "k"), ("led", "k")];
    assert_eq!(all, expected.map(|(person, key)| seat_id(person, key)));
    assert_eq!([some, rest].concat(), all);
    assert_eq!(holding(vec![ObjectId::stored("x")], None, 10).await, []);
    // What is no longer kept is not found.
    let mut emptied = read(&store, &all[0]).await.unwrap();
    emptied.take_out(&published, &objects[..1], noon());
    assert!(put(&store, &emptied, 51).await);
    assert_eq!(holding(objects.to_vec(), None, 10).await, all[1..]);
}
