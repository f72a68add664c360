//! The common case of joining: an open batch with the same policy, which the new events do not
//! close.
//!
//! Under these conditions joining only appends events, so a store can do it in one update without
//! reading the accumulator. Otherwise [`super::Accumulator::join`] decides. Both have the same
//! result.

use std::collections::HashSet;

use chrono::{DateTime, Utc};

use super::{Accumulator, BatchPolicy, Item, Keep, ROOM};
use crate::domain::batch::BatchState;
use crate::domain::id::Id;

/// Events to append to open batches, and the conditions on each batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The events in the order of joining. They include all events of each fan-out.
    pub items: Vec<Item>,
    /// Their fan-outs, ascending. None of them may have joined before.
    pub fanouts: Vec<Id>,
    /// The time of joining.
    pub at: DateTime<Utc>,
    /// The fingerprint of the batch's policy.
    pub policy: String,
    /// Which events the batch keeps after the addition.
    pub keep: Keep,
    /// The most events that the batch may have before the addition.
    pub count_to: Option<u64>,
    /// The most fan-outs that may have joined before the addition.
    pub joined_to: usize,
    /// The earliest time at which the batch may have been opened.
    pub opened_from: Option<DateTime<Utc>>,
    /// The earliest time at which the batch closes after the addition.
    pub closes_from: DateTime<Utc>,
}

impl Addition {
    /// Creates an addition of events with the same policy; `None` if joining always does more than
    /// append.
    pub fn new(items: Vec<Item>, at: DateTime<Utc>, policy: &BatchPolicy) -> Option<Self> {
        let mut fanouts: Vec<Id> = items.iter().map(|item| item.i).collect();
        fanouts.sort_unstable();
        fanouts.dedup();
        let brought = items.chunk_by(|a, b| a.i == b.i).count();
        let distinct: HashSet<_> = items
            .iter()
            .map(|item| (item.i, &item.t, &item.o))
            .collect();
        // Duplicates count once, which an append cannot detect.
        if brought != fanouts.len() || distinct.len() != items.len() {
            return None;
        }
        // Quiet hours override the time that the policy gives.
        if policy.is_immediate() || policy.held_until.is_some() || items.is_empty() {
            return None;
        }
        let closes_from = at.checked_add_signed(policy.cooldown)?;
        let count_to = match policy.close_at {
            // Events that fill the batch close it.
            Some(full) => Some(full.get().checked_sub(items.len() as u64 + 1)?),
            None => None,
        };
        let opened_from = match policy.max_wait {
            Some(longest) => Some(closes_from.checked_sub_signed(longest)?),
            None => None,
        };
        Some(Self {
            at,
            policy: policy.fingerprint(),
            keep: policy.keep,
            count_to,
            joined_to: ROOM.checked_sub(fanouts.len())?,
            opened_from,
            closes_from,
            fanouts,
            items,
        })
    }

    /// Returns whether the accumulator meets all conditions.
    pub fn fits(&self, accumulator: &Accumulator) -> bool {
        let Some(open) = &accumulator.open else {
            return false;
        };
        open.state == BatchState::Open
            && accumulator.ended.is_empty()
            && !open.is_leading()
            && !open.deferred
            && open.policy == self.policy
            && self.count_to.is_none_or(|most| open.contents.count <= most)
            && open.joined.len() <= self.joined_to
            && self.opened_from.is_none_or(|from| open.opened_at >= from)
            && !self
                .fanouts
                .iter()
                .any(|fanout| accumulator.has_joined(*fanout))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use chrono::TimeDelta;
    use proptest::prelude::*;

    use super::super::{AccumulatorId, BatchKey};
    use super::*;
    use crate::domain::name::{EventType, ObjectId, UserId};

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_398_124_800 + second, 0).unwrap()
    }

    fn item(fanout: u8) -> Item {
        Item {
            i: Id::from_bytes([fanout; 12]),
            t: EventType::stored("T"),
            o: ObjectId::stored(fanout.to_string()),
        }
    }

    proptest! {
        #[test]
        fn an_addition_that_fits_has_the_same_effect_as_a_join(
            (window, longest) in (0..100_i64, prop::option::of(1..200_i64)),
            cooldown in prop_oneof![Just(0), 0..100_i64],
            (full, kept) in (prop::option::of(1..9_u64), 1..5_usize),
            before in prop::collection::vec((1..20_u8, 0..60_i64), 0..9),
            (fanouts, second) in (prop::collection::btree_set(1..30_u8, 1..3), 0..200_i64),
        ) {
            let policy = BatchPolicy {
                window: TimeDelta::seconds(window),
                cooldown: TimeDelta::seconds(cooldown),
                max_wait: longest.map(TimeDelta::seconds),
                close_at: full.and_then(NonZeroU64::new),
                keep: Keep::Last(kept),
                leading: false,
                held_until: None,
            };
            let key = BatchKey::Type(EventType::stored("T"));
            let mut accumulator = Accumulator::new(AccumulatorId { user: UserId::stored("u"), key });
            let mut batches = 100..;
            let mut next = || Id::from_bytes([batches.next().unwrap(); 12]);
            for (fanout, second) in before {
                accumulator.join(&[item(fanout)], at(second), &policy, &mut next);
            }
            let items: Vec<Item> = fanouts.into_iter().map(item).collect();
            let Some(addition) = Addition::new(items.clone(), at(second), &policy) else {
                prop_assert!(policy.is_immediate() || full.is_some());
                return Ok(());
            };
            if !addition.fits(&accumulator) {
                return Ok(());
            }

            let mut joined = accumulator.clone();
            joined.join(&items, at(second), &policy, &mut next);

            let open = accumulator.open.as_mut().unwrap();
            open.contents.count += items.len() as u64;
            open.contents.items.extend(items);
            let over = open.contents.items.len().saturating_sub(kept);
            open.contents.items.drain(..over);
            open.joined.extend(addition.fanouts);
            open.joined.sort_unstable();
            open.last_event_at = open.last_event_at.max(at(second));
            open.closes_at = open.closes_at.max(addition.closes_from);
            prop_assert_eq!(joined, accumulator);
        }
    }
}
