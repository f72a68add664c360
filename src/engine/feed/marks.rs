//! What people do to the items of their feeds: seen, read, put away.
//!
//! The rule: a mark holds for what its reader was shown, told by a cursor or by ids, and for
//! nothing that arrived since. It is computed on the record that stands, again and again until
//! nobody came between. Every mark answers how the feed stands then, so that no client counts.

use serde::Deserialize;

use super::{Feeds, Standing};
use crate::domain::feed::{Cursor, Kinds, Query, select};
use crate::domain::inbox::{Mark, Marked};
use crate::domain::{
    Category, Day, EventType, Invalid, PersonStacks, Poke, Policies, Position, UserId, Window,
};
use crate::engine::Result;
use crate::engine::directory::fields;
use crate::store;
use crate::wire::feed::Counts;

/// The most items that one call names.
pub const MAX_IDS: usize = 1_000;
/// How often a record is read anew because somebody else put it meanwhile.
const ROUNDS: usize = 100;

/// A mark as it is handed in: up to a cursor, or on items by their ids. No `null` stands for what
/// is left out: a type that was lost on the way would mark all types.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with mark and to or ids")]
pub struct MarksInput {
    /// What is done: `seen`, `read`, `unread`, `archive` or `restore`.
    pub mark: Mark,
    /// The cursor of an answer: everything up to what it showed.
    #[serde(default, deserialize_with = "fields::parsed_if_given")]
    pub to: Option<Cursor>,
    /// Only items of this type; only beside `to`.
    #[serde(rename = "type", default, deserialize_with = "fields::given")]
    pub kind: Option<EventType>,
    /// Only items of types of this category; only beside `to`.
    #[serde(default, deserialize_with = "fields::parsed_if_given")]
    pub category: Option<Category>,
    /// Only items that stand on this day; only beside `to`.
    #[serde(default, deserialize_with = "fields::parsed_if_given")]
    pub day: Option<Day>,
    /// Only items whose objects are about this, as groups are; only beside `to`.
    #[serde(default, deserialize_with = "fields::given")]
    pub about: Option<String>,
    /// Items by their ids; those that stand nowhere any more are passed over. 1 to 1,000.
    #[serde(default, deserialize_with = "fields::all_parsed_if_given")]
    pub ids: Option<Vec<Position>>,
}

/// Which items are meant.
struct Meant {
    /// As the record takes it.
    marked: Marked,
    /// Only these of them, where that is asked: which they are is known once their objects are.
    part: Option<Query>,
}

impl MarksInput {
    fn meant(self, policies: &Policies) -> std::result::Result<(Mark, Meant), Invalid> {
        let Self {
            mark,
            to,
            kind,
            category,
            day,
            about,
            ids,
        } = self;
        if to.is_none() {
            let why = "is only known beside to; with ids, leave it out";
            let beside = [
                ("type", kind.as_ref().map(ToString::to_string)),
                (
                    "category",
                    category.as_ref().map(|of| of.as_str().to_owned()),
                ),
                ("day", day.map(|day| day.to_string())),
                ("about", about.clone()),
            ];
            for (what, given) in beside {
                if let Some(given) = given {
                    return Err(Invalid::new(what, given, why));
                }
            }
        }
        let kinds = Kinds::of(kind, category.as_ref(), policies);
        let part = (day.is_some() || about.is_some()).then(|| Query {
            kinds: kinds.clone(),
            day,
            about,
            ..Query::default()
        });
        let marked = match (to, ids) {
            (Some(to), None) => Marked::To(to, kinds),
            (None, Some(ids)) if (1..=MAX_IDS).contains(&ids.len()) => Marked::Items(ids),
            (None, Some(ids)) if ids.is_empty() => {
                return Err(Invalid::new("ids", "[]", "names none: give one at least"));
            }
            (None, Some(ids)) => {
                let why = format!("is not a number of items from 1 to {MAX_IDS}");
                return Err(Invalid::new("ids", ids.len(), why));
            }
            (to, _) => {
                let why = match to {
                    Some(_) => "has both to and ids: give one of them",
                    None => "names no items: give to, the cursor of what was shown, or ids",
                };
                return Err(Invalid::new("mark", mark.as_str(), why));
            }
        };
        Ok((mark, Meant { marked, part }))
    }
}

impl Feeds {
    /// Marks items of somebody's feed; how it stands then.
    pub async fn mark(&self, user: &UserId, input: MarksInput) -> Result<Counts> {
        let (mark, Meant { marked, part }) = input.meant(&self.context.policies)?;
        // What they were shown, whichever process it was shown by.
        let shown = |person: &PersonStacks| match &marked {
            Marked::To(cursor, _) => cursor.is_within(person),
            Marked::Items(places) => places.iter().all(|place| person.holds(*place)),
        };
        let mut standing = self.standing_where(user, shown).await?;
        let marked = match (marked, part) {
            (Marked::To(to, _), Some(part)) => Marked::Items(places(&standing, &to, &part)),
            (marked, _) => marked,
        };
        let kept = Window::ending(standing.reading.window.last(), self.remembered_back);
        for round in 0..ROUNDS {
            let now = self.context.clock.now();
            let inbox = &mut standing.inbox;
            let done = if inbox.mark(&standing.person, &kept, &marked, mark, now) {
                self.context
                    .store
                    .put_inbox(inbox, self.context.ids.next(now))
                    .await?
            } else {
                // That nothing is to be done is believed only of what was read just now.
                round > 0
            };
            if done {
                // Whoever polls this process next sees it, before the store tells.
                self.polls.hear(&Poke::people([user.as_str()]));
                return Ok(self.counts_of(&standing).answer);
            }
            standing.inbox = self.inbox(user).await?;
        }
        let why = format!("{ROUNDS} others marked something first, each time");
        Err(store::Error::database("marking items of a feed", why).into())
    }
}

/// Where the items stand that are asked for, of those up to the cursor.
fn places(standing: &Standing, to: &Cursor, part: &Query) -> Vec<Position> {
    let mut shown = standing.person.clone();
    to.cut(&mut shown);
    let mut items = select(&shown, part);
    items.retain(|item| {
        let object = standing.catalog.record(item.event);
        object.is_some_and(|object| part.is_about(&object))
    });
    items.iter().map(|item| item.position).collect()
}
