//! How a batch stands in a column: as JSON, with times in milliseconds.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::codec::millis;
use crate::domain::batch::{Contents, Item, Lead, Memory};
use crate::domain::{Batch, BatchKey, BatchState, EventType, Id, Invalid, ObjectId, UserId};

/// A kept event: its fan-out, its type, its object.
type ItemJson = (Id, String, String);

#[derive(Serialize, Deserialize)]
struct ContentsJson {
    count: u64,
    items: Vec<ItemJson>,
    joined: Vec<Id>,
}

/// What a batch is without its id, state and whose it is.
#[derive(Serialize, Deserialize)]
pub(super) struct Gathered {
    opened: i64,
    last: i64,
    closes: i64,
    contents: ContentsJson,
    policy: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lead: Option<ContentsJson>,
    /// What its lead took along that is a batch of its own by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    led: Option<Vec<Id>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    taken: Vec<ItemJson>,
}

/// A batch in its accumulator.
#[derive(Serialize, Deserialize)]
pub(super) struct Seated {
    id: Id,
    state: String,
    settled: Option<i64>,
    #[serde(flatten)]
    gathered: Gathered,
}

fn item_json(item: &Item) -> ItemJson {
    (item.i, item.t.to_string(), item.o.to_string())
}

fn read_item((i, t, o): ItemJson) -> Item {
    Item {
        i,
        t: EventType::stored(t),
        o: ObjectId::stored(o),
    }
}

fn contents(contents: &Contents, joined: &[Id]) -> ContentsJson {
    ContentsJson {
        count: contents.count,
        items: contents.items.iter().map(item_json).collect(),
        joined: joined.to_vec(),
    }
}

fn read_contents(json: ContentsJson) -> (Contents, Vec<Id>) {
    let contents = Contents {
        count: json.count,
        items: json.items.into_iter().map(read_item).collect(),
    };
    (contents, json.joined)
}

fn time(millis: i64) -> Result<DateTime<Utc>, Invalid> {
    DateTime::from_timestamp_millis(millis)
        .ok_or_else(|| Invalid::new("time", millis, "is no time in milliseconds"))
}

impl Gathered {
    pub(super) fn of(batch: &Batch) -> Self {
        Self {
            opened: millis(batch.opened_at),
            last: millis(batch.last_event_at),
            closes: millis(batch.closes_at),
            contents: contents(&batch.contents, &batch.joined),
            policy: batch.policy.clone(),
            lead: match &batch.lead {
                Lead::Waiting {
                    contents: lead,
                    joined,
                } => Some(contents(lead, joined)),
                Lead::None | Lead::Mailed { .. } => None,
            },
            led: match &batch.lead {
                Lead::Mailed { joined } => Some(joined.clone()),
                Lead::None | Lead::Waiting { .. } => None,
            },
            taken: batch.taken.iter().map(item_json).collect(),
        }
    }

    pub(super) fn read(
        self,
        id: Id,
        user: UserId,
        key: BatchKey,
        state: BatchState,
        settled: Option<DateTime<Utc>>,
    ) -> Result<Batch, Invalid> {
        let (contents, joined) = read_contents(self.contents);
        Ok(Batch {
            id,
            user,
            key,
            state,
            opened_at: time(self.opened)?,
            last_event_at: time(self.last)?,
            closes_at: time(self.closes)?,
            lead: match (self.lead.map(read_contents), self.led) {
                (Some((contents, joined)), _) => Lead::Waiting { contents, joined },
                (None, Some(joined)) => Lead::Mailed { joined },
                (None, None) => Lead::None,
            },
            contents,
            policy: self.policy,
            joined,
            taken: self.taken.into_iter().map(read_item).collect(),
            settled,
        })
    }
}

impl Seated {
    pub(super) fn of(batch: &Batch) -> Self {
        Self {
            id: batch.id,
            state: batch.state.as_str().to_owned(),
            settled: batch.settled.map(millis),
            gathered: Gathered::of(batch),
        }
    }

    pub(super) fn read(self, user: UserId, key: BatchKey) -> Result<Batch, Invalid> {
        let settled = self.settled.map(time).transpose()?;
        self.gathered
            .read(self.id, user, key, self.state.parse()?, settled)
    }
}

/// When each was handed on, and what had joined it.
pub(super) fn memories(memories: &[Memory]) -> Vec<(i64, &[Id])> {
    let memory = |memory: &'_ Memory| millis(memory.at);
    let joined = memories.iter().map(|memory| &memory.joined[..]);
    memories.iter().map(memory).zip(joined).collect()
}

pub(super) fn read_memories(memories: Vec<(i64, Vec<Id>)>) -> Result<Vec<Memory>, Invalid> {
    let memory = |(at, joined)| {
        Ok(Memory {
            at: time(at)?,
            joined,
        })
    };
    memories.into_iter().map(memory).collect()
}
