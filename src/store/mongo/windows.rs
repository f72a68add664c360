//! Looks up the stacks of given users.
//!
//! On MongoDB 6.0, `$in` on the `_id` of a clustered collection reads all of it. There, users are
//! looked up by equality: a few users with one command each, many with one command per day. On
//! ordinary collections, which older writers created, `$in` is fastest.

use std::collections::HashMap;

use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::options::FindOptions;

use super::codec::RawStack;
use super::reads::at_once;
use super::{KnownDay, Layout, Mongo};
use crate::domain::{Day, PersonStacks, Stack, StackId, UserId, Window};
use crate::store::Result;

/// The number of users from which it pays to find out how the days are stored.
const MANY: usize = 16;
/// The number of single users that are looked up at the same time.
const AT_ONCE: usize = 8;
/// The number of days on which many users are looked up at the same time.
const DAYS_AT_ONCE: usize = 4;
/// Users per command.
const IDS: usize = 1_000;

impl Mongo {
    pub(super) async fn windows_of(
        &self,
        window: Window,
        people: &[UserId],
    ) -> Result<Vec<PersonStacks>> {
        let mut found = Vec::new();
        if people.len() < MANY {
            let days: Vec<Day> = window.days().collect();
            let read = |person: usize| self.look_up(&days, &people[person]);
            at_once(AT_ONCE, 0..people.len(), read, |part| found.extend(part)).await?;
        } else {
            // Days without a layout do not exist.
            let layouts = self.layouts(&window).await?;
            let days = |chunk| {
                layouts
                    .iter()
                    .map(move |(day, layout)| (*day, *layout, chunk))
            };
            let parts: Vec<_> = people.chunks(IDS).flat_map(days).collect();
            let read = |n: usize| self.look_up_all(parts[n]);
            at_once(DAYS_AT_ONCE, 0..parts.len(), read, |part| {
                found.extend(part)
            })
            .await?;
        }
        Ok(by_person(people, found))
    }

    /// Reads a user's stacks of these days with one command.
    async fn look_up(&self, days: &[Day], user: &UserId) -> Result<Vec<(UserId, Stack)>> {
        let doing = "reading a person's stacks";
        let documents = self.united(doing, branches(days, user)).await?;
        Ok(stacks(days, &documents))
    }

    /// Returns the results of all branches, with one command.
    async fn united(
        &self,
        doing: &str,
        mut branches: impl Iterator<Item = (String, Vec<Document>)>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let Some((first, mut pipeline)) = branches.next() else {
            return Ok(Vec::new());
        };
        pipeline.extend(branches.map(|(coll, pipeline)| {
            doc! {"$unionWith": {"coll": coll, "pipeline": pipeline}}
        }));
        self.aggregate(doing, Some(&first), &pipeline, None).await
    }

    /// Reads many users' stacks of one day.
    async fn look_up_all(
        &self,
        (day, layout, people): (Day, Layout, &[UserId]),
    ) -> Result<Vec<(UserId, Stack)>> {
        let (doing, name) = (format!("reading stacks of {day}"), day.collection());
        let ids = people.iter().flat_map(spellings);
        let documents = match layout {
            Layout::Ordinary => {
                let filter = doc! {"_id": {"$in": ids.collect::<Vec<_>>()}};
                self.find_raw(&doing, &name, &filter, FindOptions::default())
                    .await?
            }
            Layout::Clustered => {
                let legacy = self.has_legacy(&doing, day, people).await?;
                let ids = ids.filter(|id| legacy || matches!(id, Bson::String(_)));
                // An id may start with `$`, which would make it a field path here.
                let ids: Vec<Document> = ids.map(|id| doc! {"_id": {"$literal": id}}).collect();
                let same = doc! {
                    "from": name, "localField": "_id", "foreignField": "_id", "as": "stack",
                };
                let pipeline = [
                    doc! {"$documents": ids},
                    doc! {"$lookup": same},
                    doc! {"$unwind": "$stack"},
                    doc! {"$replaceRoot": {"newRoot": "$stack"}},
                ];
                self.aggregate(&doing, None, &pipeline, None).await?
            }
        };
        let read = |document| read(document, |_| Some(day));
        Ok(documents.iter().filter_map(read).collect())
    }

    /// Returns whether any stack of this day has an ObjectId as `_id`, if one of these users could
    /// have such a stack. This saves lookups: one that finds nothing costs as much as any other.
    /// ObjectIds sort after all text.
    async fn has_legacy(&self, doing: &str, day: Day, people: &[UserId]) -> Result<bool> {
        if people.iter().all(|user| user.legacy().is_none()) {
            return Ok(false);
        }
        let (name, order) = (day.collection(), Document::new());
        let filter = doc! {"_id": {"$gte": Oid::from_bytes([0; 12])}};
        let found = self.find_ids(doing, &name, &filter, order, 1);
        Ok(!found.await?.is_empty())
    }

    /// Returns the layouts of the window's existing days. Lists only days without a known layout.
    pub(super) async fn layouts(&self, window: &Window) -> Result<HashMap<Day, Layout>> {
        let unknown: Vec<String> = window
            .days()
            .filter(|day| self.known_day(*day).is_none())
            .map(Day::collection)
            .collect();
        if !unknown.is_empty() {
            let listed = self.find_collections(doc! {"name": {"$in": unknown}});
            for collection in listed.await? {
                let name = collection.get_str("name").unwrap_or_default();
                let options = collection.get_document("options");
                let known = KnownDay {
                    layout: match options.is_ok_and(|of| of.contains_key("clusteredIndex")) {
                        true => Layout::Clustered,
                        false => Layout::Ordinary,
                    },
                    mostly_new: false,
                };
                let day = Day::of_collection(name);
                self.known_days().extend(day.map(|day| (day, known)));
            }
        }
        let known = |day| self.known_day(day).map(|known| (day, known.layout));
        Ok(window.days().filter_map(known).collect())
    }
}

/// Returns pipelines that read a user's stack of each day and add the index of the day.
fn branches(days: &[Day], user: &UserId) -> impl Iterator<Item = (String, Vec<Document>)> {
    days.iter().enumerate().flat_map(|(index, day)| {
        let branch = move |id: Bson| {
            let own = doc! {"$match": {"_id": {"$eq": id}}};
            let day_is = doc! {"$set": {"day": index as i32}};
            (day.collection(), vec![own, day_is])
        };
        spellings(user).map(branch)
    })
}

/// Decodes the stacks that [`branches`] found.
fn stacks(days: &[Day], documents: &[RawDocumentBuf]) -> Vec<(UserId, Stack)> {
    let day = |stack: &RawStack<'_>| {
        let index = stack.number("day").ok().flatten()?;
        days.get(index as usize).copied()
    };
    let read = documents.iter().map(|document| read(document, day));
    read.flatten().collect()
}

/// Returns the possible spellings of a user's `_id`: as an ObjectId if it can be one, and as text.
fn spellings(user: &UserId) -> impl Iterator<Item = Bson> + use<> {
    let legacy = user
        .legacy()
        .map(|id| Bson::ObjectId(Oid::from_bytes(id.bytes())));
    legacy.into_iter().chain([Bson::String(user.to_string())])
}

/// Returns `None` if the document has no readable owner.
fn read(
    document: &RawDocumentBuf,
    day: impl Fn(&RawStack<'_>) -> Option<Day>,
) -> Option<(UserId, Stack)> {
    let stack = RawStack::read(document.as_bytes()).ok()??;
    let id = StackId {
        day: day(&stack)?,
        form: stack.user.form(),
    };
    Some((stack.user.user(), stack.stack(id)))
}

/// Returns the stacks of each user, in the order of the users.
fn by_person(people: &[UserId], found: Vec<(UserId, Stack)>) -> Vec<PersonStacks> {
    let mut by_user: HashMap<UserId, Vec<Stack>> = HashMap::new();
    for (user, stack) in found {
        by_user.entry(user).or_default().push(stack);
    }
    let person = |user: &UserId| {
        let mut stacks = by_user.remove(user).unwrap_or_default();
        stacks.sort_by_key(|stack| stack.id);
        let user = user.clone();
        PersonStacks { user, stacks }
    };
    people.iter().map(person).collect()
}
