//! Appends markers of emailed events to stacks.
//!
//! Markers are added with `$addToSet`, so any process may send a statement again. Users with
//! adjacent ids and the same marker share a statement ([`super::neighbors`]). If a document cannot
//! take the marker, that statement fails; then each of its users gets a statement of their own.

use std::collections::HashMap;

use bson::{Bson, Document, doc};

use super::bulk::{Outcome, Refused, Targets, Verb, defect, encode};
use super::neighbors::{MANY, TOGETHER, between};
use super::values::oid;
use super::{Mongo, at_once};
use crate::domain::{BadStack, Day, Form, Id, Mailed, StackId, UserId};
use crate::store::{Error, NewMarker, Result};

const DOING: &str = "marking stacks";
/// The number of groups that are checked at the same time.
const ASKED: usize = 4;

/// An entry to append to a stack.
enum Entry<'a> {
    Marker(Id, u32),
    Mailed(&'a Mailed),
}

type Statement<'a> = (StackId, &'a UserId, Entry<'a>);

impl Mongo {
    pub(super) async fn append_markers(&self, markers: &[NewMarker]) -> Result<Vec<BadStack>> {
        let mut entries: Vec<Statement<'_>> = markers.iter().flat_map(entries_of).collect();
        entries.sort_by_key(|(stack, ..)| *stack);
        let mut alone = vec![true; entries.len()];
        let neighbors = self.neighbors(&entries).await?;
        neighbors
            .iter()
            .flatten()
            .for_each(|item| alone[*item] = false);
        for item in self.append_to_neighbors(&entries, &neighbors).await? {
            alone[item] = true;
        }
        let targets = of_days(&entries, |item| alone[item]);
        let outcome = self.bulk(DOING, Verb::Update, targets, |writer, item| {
            let (stack, user, entry) = &entries[item];
            writer.document("q");
            match (stack.form, user.legacy()) {
                (Form::ObjectId, Some(id)) => writer.id("_id", id),
                _ => writer.text("_id", user.as_str()),
            }
            writer.close();
            writer.document("u");
            writer.document("$addToSet");
            match entry {
                Entry::Marker(marker, n) => writer.marker("events", *marker, *n),
                Entry::Mailed(mailed) => writer.mailed("events", mailed),
            }
            writer.close();
            writer.close();
        });
        let of_whom = |item: usize| (entries[item].1, entries[item].0.day);
        outcome.await?.bad_stacks(of_whom)
    }

    /// Groups equal markers of users with adjacent ids. A group is at most as large as a statement.
    async fn neighbors(&self, entries: &[Statement<'_>]) -> Result<Vec<Vec<usize>>> {
        let mut same: HashMap<(StackId, Id, u32), Vec<usize>> = HashMap::new();
        for (item, (stack, _, entry)) in entries.iter().enumerate() {
            if let Entry::Marker(marker, n) = entry {
                same.entry((*stack, *marker, *n)).or_default().push(item);
            }
        }
        let mut groups: Vec<Vec<usize>> = same.into_values().collect();
        groups.retain(|group| group.len() >= MANY);
        if groups.is_empty() || self.is_routed().await? {
            return Ok(Vec::new());
        }
        for group in &mut groups {
            group.sort_unstable_by_key(|item| entries[*item].1);
        }
        let mut close = Vec::new();
        let look = |group: usize| self.group_stands_close(entries, &groups[group], group);
        let found = |group: Option<usize>| close.extend(group);
        at_once(ASKED, 0..groups.len(), look, found).await?;
        let parts = close
            .iter()
            .flat_map(|group| groups[*group].chunks(TOGETHER));
        Ok(parts.map(<[usize]>::to_vec).collect())
    }

    async fn group_stands_close(
        &self,
        entries: &[Statement<'_>],
        group: &[usize],
        number: usize,
    ) -> Result<Option<usize>> {
        let name = entries[group[0]].0.day.collection();
        let close = self.stand_close(DOING, &name, &ids(entries, group)).await?;
        Ok(close.then_some(number))
    }

    /// Appends with one statement per group. Returns the entries that need a statement of their
    /// own.
    async fn append_to_neighbors(
        &self,
        entries: &[Statement<'_>],
        neighbors: &[Vec<usize>],
    ) -> Result<Vec<usize>> {
        let statements: Vec<Document> = neighbors
            .iter()
            .filter_map(|together| append_between(entries, together))
            .collect();
        let statements = encode(DOING, statements)?;
        let mut targets: Targets = Vec::new();
        for (number, together) in neighbors.iter().enumerate() {
            let name = entries[together[0]].0.day.collection();
            match targets.iter_mut().find(|(known, _)| *known == name) {
                Some((_, numbers)) => numbers.push(number),
                None => targets.push((name, vec![number])),
            }
        }
        let outcome = self.bulk(DOING, Verb::Update, targets, |writer, number| {
            writer.fields(statements[number].as_bytes());
        });
        let mut alone = Vec::new();
        for refused in outcome.await?.refused {
            match defect(&refused.failure) {
                Some(_) => alone.extend(&neighbors[refused.item]),
                None => return Err(Error::database(DOING, refused.failure)),
            }
        }
        Ok(alone)
    }
}

fn spelled(entry: &Statement<'_>) -> Bson {
    let (stack, user, _) = entry;
    match (stack.form, user.legacy()) {
        (Form::ObjectId, Some(id)) => oid(id),
        _ => Bson::from(user.as_str()),
    }
}

fn ids(entries: &[Statement<'_>], items: &[usize]) -> Vec<Bson> {
    items.iter().map(|item| spelled(&entries[*item])).collect()
}

fn append_between(entries: &[Statement<'_>], sorted: &[usize]) -> Option<Document> {
    let Entry::Marker(marker, n) = &entries[*sorted.first()?].2 else {
        return None;
    };
    let which = between(&ids(entries, sorted));
    let n = i32::try_from(*n).unwrap_or(i32::MAX);
    let marker = doc! {"flushed": oid(*marker), "n": n};
    let add = doc! {"$addToSet": {"events": marker}};
    Some(doc! {"q": which, "u": add, "multi": true})
}

fn entries_of(marker: &NewMarker) -> Vec<Statement<'_>> {
    match marker {
        NewMarker::Flushed {
            user,
            marker,
            watermarks,
        } => {
            // A user who cannot have such an id has no such stack.
            let has = |stack: StackId| stack.form == Form::Text || user.legacy().is_some();
            let standing = watermarks.iter().filter(|(stack, _)| has(*stack));
            let entry = |(stack, n): &(StackId, u32)| (*stack, user, Entry::Marker(*marker, *n));
            standing.map(entry).collect()
        }
        NewMarker::Mailed { user, day, mailed } => {
            vec![(StackId::of(*day), user, Entry::Mailed(mailed))]
        }
    }
}

/// Groups the wanted entries by collection. The entries are sorted by day.
fn of_days(sorted: &[Statement<'_>], wanted: impl Fn(usize) -> bool) -> Targets {
    let mut start = 0;
    let target = |of_day: &[Statement<'_>]| {
        let items = start..start + of_day.len();
        start = items.end;
        let items = items.filter(|item| wanted(*item)).collect();
        (of_day[0].0.day.collection(), items)
    };
    let days = sorted.chunk_by(|a, b| a.0.day == b.0.day);
    days.map(target).collect()
}

impl Outcome {
    /// Returns the stacks that took no marker, or an error if a statement failed for another
    /// reason.
    fn bad_stacks<'a>(self, of: impl Fn(usize) -> (&'a UserId, Day)) -> Result<Vec<BadStack>> {
        let bad = |refused: Refused| match defect(&refused.failure) {
            Some(reason) => {
                let (user, day) = of(refused.item);
                let user = user.clone();
                Ok(BadStack { user, day, reason })
            }
            None => Err(Error::database(DOING, refused.failure)),
        };
        self.refused.into_iter().map(bad).collect()
    }
}
