//! Contract tests of `Days`: days are listed, exported, dropped and restored without losing a
//! write.

use tidings::domain::{DigestMarker, Entry};
use tidings::store::{Checksum, ChecksumBuilder, CountedRecords, Error, MergePolicy};

use crate::support::*;

const LARGE_CAP: usize = 1_000;
const HEX: &str = "533998b1c9dc24c371000041";

pub async fn days_are_listed_oldest_first_with_exact_counts(store: Fresh) {
    assert!(store.days().await.unwrap().is_empty());
    for (back, count) in [(0, 3), (40, 1), (7, 2)] {
        store
            .push(today().days_before(back), LARGE_CAP, &push_to_all(&people(count), events(2, 1)))
            .await
            .unwrap();
    }

    let days = store.days().await.unwrap();

    assert_eq!(days, [today().days_before(40), today().days_before(7), today()]);
    let mut counted: Vec<_> = days.into_iter().map(CountedRecords::Stacks).collect();
    counted.push(CountedRecords::Stacks(today().days_before(1)));
    assert_eq!(store.count(&counted).await.unwrap(), [1, 2, 3, 0]);
}

pub async fn a_dropped_day_is_removed_and_can_be_written_again(store: Fresh) {
    let ada = user("ada");
    for day in [today().days_before(1), today()] {
        store.push(day, LARGE_CAP, &push_to(&ada, events(2, 1))).await.unwrap();
    }

    store.remove_day(today()).await;

    assert_eq!(store.entries_of(&ada, today()).await, []);
    assert_eq!(store.entries_of(&ada, today().days_before(1)).await.len(), 2);
    assert_eq!(store.days().await.unwrap().len(), 1);
    assert!(store.exported(today()).await.is_empty());
    store.second().push(today(), LARGE_CAP, &push_to(&ada, events(1, 2))).await.unwrap();
    store.push_list(&ada, events(1, 3)).await;
    let expected = entries([events(1, 2), events(1, 3)].concat());
    assert_eq!(store.entries_of(&ada, today()).await, expected);
}

pub async fn dropping_a_missing_day_keeps_other_days(store: Fresh) {
    store.remove_day(today()).await;
    store.push_list(&user("ada"), events(1, 1)).await;

    store.remove_day(today().days_before(1)).await;

    assert_eq!(store.days().await.unwrap().len(), 1);
}

pub async fn an_export_returns_exact_documents_text_ids_first(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, vec![event("a\"1", 1)]).await;
    store.mark_stack(&ada, id(90), 1).await;
    let old = format!(r#"{{"_id":{{"$oid":"{HEX}"}},"events":[{{"t":"T","o":"x"}}]}}"#);
    store.restore_stacks(today(), std::slice::from_ref(&old)).await;
    store.push_list(&user("zoë"), events(1, 2)).await;

    let found = store.exported(today()).await;

    let (one, two, marker) = (id(1), id(2), id(90));
    let ada = format!(
        r#"{{"_id":"ada","events":[{{"t":"ArtworkPublished","o":"a\"1","i":{{"$oid":"{one}"}}}},{{"flushed":{{"$oid":"{marker}"}},"n":{{"$numberInt":"1"}}}}]}}"#
    );
    let zoe = format!(
        r#"{{"_id":"zoë","events":[{{"t":"ArtworkPublished","o":"a0","i":{{"$oid":"{two}"}}}}]}}"#
    );
    assert_eq!(found, [ada, zoe, old]);
}

pub async fn an_export_of_many_documents_is_complete(store: Fresh) {
    let users = people(3_000);
    store.push_list_to_all(&users, events(1, 1)).await;

    let found = store.exported(today()).await;

    assert_eq!(found.len(), users.len());
    for (line, person) in found.iter().zip(&users) {
        assert_starts_with!(line, &format!(r#"{{"_id":"{person}","#));
        assert!(!line.contains('\n'), "one document, one line");
    }
}

pub async fn a_restored_export_is_byte_exact(store: Fresh) {
    let users = people(1_500);
    store.push_list_to_all(&users, events(2, 1)).await;
    store.mark_stack(&users[3], id(90), 2).await;
    let unusual = format!(
        r#"{{"_id":{{"$oid":"{HEX}"}},"events":[{{"flushed":{{"$oid":"{HEX}"}}}},"x",null,{{"t":"T","o":{{"$oid":"{HEX}"}},"extra":[{{"$numberLong":"7"}},{{"$numberDouble":"1.5"}},{{"$date":{{"$numberLong":"1398124800000"}}}},true]}}]}}"#
    );
    let empty = r#"{"_id":"nothing yet","events":[]}"#.to_owned();
    store.restore_stacks(today(), &[unusual.clone(), empty.clone()]).await;
    let before = store.exported(today()).await;
    assert!(before.contains(&unusual) && before.contains(&empty), "{:?}", before.last());

    store.remove_day(today()).await;
    store.restore_stacks(today(), &before).await;

    assert_eq!(store.exported(today()).await, before);
    let found = store.entries_of(&users[0], today()).await;
    assert_eq!(found, entries(events(2, 1)));
}

pub async fn a_restored_day_can_be_restored_again(store: Fresh) {
    store.push_list_to_all(&people(20), events(2, 1)).await;
    let whole = store.exported(today()).await;
    store.remove_day(today()).await;

    store.restore_stacks(today(), &whole[..7]).await;
    store.restore_stacks(today(), &whole).await;
    store.restore_stacks(today(), &whole).await;

    assert_eq!(store.exported(today()).await, whole);
}

pub async fn restoring_a_different_document_is_a_conflict_without_changes(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, events(2, 1)).await;
    let before = store.exported(today()).await;
    store.push_list(&ada, events(1, 2)).await;
    let now = store.exported(today()).await;

    let error = store.restore_day(today(), &before, MergePolicy::MustBeEqual).await.unwrap_err();

    assert!(matches!(&error, Error::Conflict(what) if what.contains("ada")), "{error}");
    assert_eq!(store.exported(today()).await, now);
}

pub async fn an_invalid_document_is_rejected(store: Fresh) {
    for line in ["", "{", "[]", "5", r#"{"events":[]}"#] {
        let refused =
            store.restore_day(today(), &[line.to_owned()], MergePolicy::MustBeEqual).await;
        assert!(refused.is_err(), "{line}");
    }

    assert!(store.exported(today()).await.is_empty());
}

/// Computes the sum of the day's documents.
async fn sum(store: &Fresh) -> Checksum {
    let mut summing = ChecksumBuilder::default();
    store.exported(today()).await.iter().for_each(|line| summing.add(line));
    summing.finish()
}

pub async fn a_day_is_dropped_only_if_its_sum_matches(store: Fresh) {
    let users = people(1_200);
    store.push_list_to_all(&users, events(2, 1)).await;
    let summed = sum(&store).await;
    let ada = user("ada");
    store.push_list(&ada, events(1, 2)).await;
    let before = store.exported(today()).await;

    assert!(!store.drop_day(today(), &summed).await.unwrap());
    store.fix_day(today()).await.unwrap();
    assert_eq!(store.exported(today()).await, before);
    let now = sum(&store).await;
    assert!(store.drop_day(today(), &now).await.unwrap());

    assert!(store.days().await.unwrap().is_empty());
    store.push_list(&ada, events(1, 3)).await;
    assert_eq!(store.entries_of(&ada, today()).await, entries(events(1, 3)));
    store.fix_day(today()).await.unwrap();
    assert_eq!(store.exported(today()).await.len(), 1);
}

pub async fn dropping_or_fixing_a_missing_day_succeeds(store: Fresh) {
    let nothing = sum(&store).await;

    store.fix_day(today()).await.unwrap();

    assert!(store.drop_day(today(), &nothing).await.unwrap());
    assert!(store.days().await.unwrap().is_empty());
}

pub async fn writes_during_the_drop_of_a_day_are_never_lost(store: Fresh) {
    for round in 0..10 {
        store.push_list_to_all(&people(50), events(1, 1)).await;
        let summed = sum(&store).await;

        let work = |store: Fresh, n| {
            let summed = summed.clone();
            async move {
                if n == 0 {
                    store.drop_day(today(), &summed).await.unwrap()
                } else {
                    let late = push_to(&user("late"), events(1, 100 + n));
                    store.push(today(), LARGE_CAP, &late).await.unwrap();
                    true
                }
            }
        };
        let dropped = store.at_once(5, work).await[0];

        store.fix_day(today()).await.unwrap();
        let late = store.entries_of(&user("late"), today()).await;
        assert_eq!(late.len(), 4, "round {round}");
        let others = store.exported(today()).await.len() - 1;
        assert_eq!(others, if dropped { 0 } else { 50 }, "round {round}");
        store.remove_day(today()).await;
    }
}

pub async fn an_exported_stack_is_appended_once_and_pending_events_stay_pending(store: Fresh) {
    let (ada, ben) = (user("ada"), user("ben"));
    store.push_list(&ada, events(2, 1)).await;
    let first = store.exported(today()).await;
    store.remove_day(today()).await;
    store.push_list_to_all(&[ada.clone(), ben.clone()], events(2, 2)).await;
    store.mark_stack(&ada, id(90), 1).await;
    let second = store.exported(today()).await;
    store.remove_day(today()).await;

    store.restore_stacks(today(), &first).await;
    let append = MergePolicy::Append { is_expired: false };
    // Ada's restored events are pending, so no marker may cover them.
    let refused = store.restore_day(today(), &second, append).await;
    let pending = store.entries_of(&ada, today()).await;
    store.mark_stack(&ada, id(91), 2).await;
    for _ in 0..2 {
        store.restore_day(today(), &second, append).await.unwrap();
    }

    assert!(matches!(refused, Err(Error::Pending { .. })), "{refused:?}");
    assert_eq!(pending, entries(events(2, 1)));
    let marker = |by, n| Entry::DigestMarker(DigestMarker { id: Some(id(by)), n: Some(n) });
    let (first, second_part) = (entries(events(2, 1)), entries(events(2, 2)));
    let all = [first, vec![marker(91, 2)], second_part, vec![marker(90, 4)]].concat();
    assert_eq!(store.entries_of(&ada, today()).await, all);
    assert_eq!(store.entries_of(&ben, today()).await, entries(events(2, 2)));
    let refused = store.restore_day(today(), &second, MergePolicy::MustBeEqual).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict(..)), "{refused}");
}
