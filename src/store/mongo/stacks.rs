//! The heart: pushing onto day collections, and marking what was mailed.
//!
//! The rule: entries and markers are added as whole values with `$addToSet`, so any statement may
//! be sent again, by anybody. The cap is a filter: a stack that is too full for a whole list does
//! not match it, and only those few are then looked at one by one. Reading is [`super::scan`] and
//! [`super::windows`].

use std::collections::HashSet;

use async_trait::async_trait;
use bson::doc;
use futures::stream::BoxStream;

use super::bulk::{Outcome, Verb};
use super::encode::Writer;
use super::{Layout, Mongo, at_once};
use crate::domain::{Day, Entry, Event, Form, PersonStacks, StackId, UserId, Window};
use crate::store::{Error, Mark, People, Pushed, Pushes, Result, Stacks};

#[async_trait]
impl Stacks for Mongo {
    async fn push(&self, day: Day, cap: usize, pushes: &Pushes) -> Result<Pushed> {
        if pushes.people.is_empty() {
            return Ok(Pushed::default());
        }
        self.create_day(day).await?;
        let push = Push {
            doing: format!("pushing onto the stacks of {day}"),
            store: self,
            day,
            cap,
            pushes,
        };
        push.run().await
    }

    fn scan(
        &self,
        window: Window,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<PersonStacks>>> {
        self.scan_window(window, after, chunk)
    }

    async fn windows(&self, window: Window, people: People<'_>) -> Result<Vec<PersonStacks>> {
        match people {
            People::Each(people) => self.windows_of_each(window, people).await,
            People::Between(people) => self.windows_between(window, people).await,
        }
    }

    async fn mark(&self, marks: &[Mark]) -> Result<()> {
        let mut statements: Vec<(StackId, &Mark, u32)> = marks
            .iter()
            .flat_map(|mark| mark.covers.iter().map(move |(stack, n)| (*stack, mark, *n)))
            // Who has no such form has no such stack.
            .filter(|(stack, mark, _)| stack.form == Form::Text || mark.user.legacy().is_some())
            .collect();
        statements.sort_by_key(|(stack, ..)| *stack);
        let targets = statements
            .chunk_by(|(a, ..), (b, ..)| a.day == b.day)
            .scan(0, |start, of_day| {
                let items = (*start..*start + of_day.len()).collect();
                *start += of_day.len();
                Some((of_day[0].0.day.collection(), items))
            })
            .collect();
        let doing = "marking stacks";
        let outcome = self.bulk(doing, Verb::Update, targets, |writer, item| {
            let (stack, mark, n) = statements[item];
            writer.document("q");
            match (stack.form, mark.user.legacy()) {
                (Form::ObjectId, Some(id)) => writer.id("_id", id),
                _ => writer.text("_id", mark.user.as_str()),
            }
            writer.close();
            writer.document("u");
            writer.document("$addToSet");
            writer.marker("events", mark.marker, n);
            writer.close();
            writer.close();
        });
        outcome.await?.complete(doing).map(drop)
    }
}

impl Mongo {
    /// Makes a day collection before anything is written to it, so that it is clustered. One that
    /// stands already stays as it is.
    pub(super) async fn create_day(&self, day: Day) -> Result<()> {
        if self.layout(day).is_some() {
            return Ok(());
        }
        let name = day.collection();
        let command = doc! {
            "create": &name,
            "clusteredIndex": {"key": {"_id": 1}, "unique": true},
            "writeConcern": {"w": "majority"},
        };
        let doing = format!("creating {name}");
        let created = self.patiently(&doing, || {
            let run = self.0.db.run_command(command.clone());
            async move {
                match run.await {
                    Ok(_) => Ok(true),
                    Err(error) if code_of(&error) == Some(NAMESPACE_EXISTS) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
        });
        if created.await? {
            self.note_layout(day, Some(Layout::Clustered));
        } else {
            let window = Window::ending(day, 0);
            self.layouts(window).await?;
        }
        Ok(())
    }
}

pub(super) const NAMESPACE_EXISTS: i32 = 48;

/// The server's code for a command that it refused.
pub(super) fn code_of(error: &mongodb::error::Error) -> Option<i32> {
    match &*error.kind {
        mongodb::error::ErrorKind::Command(command) => Some(command.code),
        _ => None,
    }
}

/// How many stacks are looked at one by one at the same time.
const LOOKS: usize = 8;

/// One push on its way.
struct Push<'a> {
    doing: String,
    store: &'a Mongo,
    day: Day,
    cap: usize,
    pushes: &'a Pushes,
}

impl Push<'_> {
    async fn run(&self) -> Result<Pushed> {
        let fits = |list: usize| self.pushes.lists[list].len() <= self.cap;
        let lists = || self.pushes.people.iter().map(|(_, list)| *list).enumerate();
        let whole: Vec<usize> = lists()
            .filter(|(_, list)| fits(*list))
            .map(|(i, _)| i)
            .collect();
        let mut left: Vec<usize> = lists()
            .filter(|(_, list)| !fits(*list))
            .map(|(i, _)| i)
            .collect();
        let mut refused = self.whole_lists(whole).await?;
        if !refused.is_empty() {
            // Most of these met somebody who was creating the same stack: that is over now.
            refused = self.whole_lists(refused).await?;
        }
        left.extend(refused);
        left.sort_unstable();
        self.one_by_one(left).await
    }

    /// Pushes everybody's whole list, and tells for whom that could not be done: somebody else
    /// created the stack at the same moment, or it has no room for the whole list.
    async fn whole_lists(&self, people: Vec<usize>) -> Result<Vec<usize>> {
        let updates: Vec<Statement> = self
            .pushes
            .lists
            .iter()
            .map(|list| Statement::new(list, self.cap))
            .collect();
        let outcome = self.send(people, |item| &updates[self.pushes.people[item].1]);
        let refused = outcome.await?.duplicates(&self.doing)?;
        let mut people: Vec<usize> = refused.into_iter().map(|refused| refused.item).collect();
        people.sort_unstable();
        Ok(people)
    }

    /// Looks at each of these stacks, adds what is missing as far as there is room, and looks again
    /// until nothing is left to add. Others may push meanwhile: then a look more is needed, and as
    /// a stack can only grow up to the cap, it ends.
    async fn one_by_one(&self, mut people: Vec<usize>) -> Result<Pushed> {
        let mut capped = Vec::new();
        while !people.is_empty() {
            let look = |item: usize| self.look(item);
            let mut additions = Vec::new();
            at_once(LOOKS, people, look, |(item, plan)| {
                if !plan.add.is_empty() {
                    additions.push((item, Statement::new(&plan.add, self.cap)));
                } else if !plan.capped.is_empty() {
                    capped.push((item, plan.capped));
                }
            })
            .await?;
            additions.sort_unstable_by_key(|(item, _)| *item);
            people = additions.iter().map(|(item, _)| *item).collect();
            let addition = |item| {
                let place = additions.binary_search_by_key(&item, |(item, _)| *item);
                &additions[place.expect("every item has an addition")].1
            };
            // A duplicate here is a stack that filled up since we looked: the next look tells.
            let outcome = self.send(people.clone(), addition).await?;
            outcome.duplicates(&self.doing)?;
        }
        capped.sort_unstable();
        Ok(Pushed { capped })
    }

    /// Finds out what is still to be done for one person.
    async fn look(&self, item: usize) -> Result<(usize, Plan)> {
        let (user, list) = &self.pushes.people[item];
        let entries = self.store.stack(self.day, user).await?;
        Ok((
            item,
            Plan::of(&self.pushes.lists[*list], &entries, self.cap),
        ))
    }

    async fn send<'s>(
        &self,
        people: Vec<usize>,
        statement: impl Fn(usize) -> &'s Statement + Send + Sync,
    ) -> Result<Outcome> {
        let targets = vec![(self.day.collection(), people)];
        let encode = |writer: &mut Writer, item: usize| {
            let statement = statement(item);
            writer.document("q");
            writer.text("_id", self.pushes.people[item].0.as_str());
            writer.document(statement.room.as_str());
            writer.flag("$exists", false);
            writer.close();
            writer.close();
            writer.encoded("u", &statement.update);
            writer.flag("upsert", true);
        };
        self.store
            .bulk(&self.doing, Verb::Update, targets, encode)
            .await
    }
}

/// Adding a list: the same for everybody who gets it, so it is encoded once.
struct Statement {
    /// The element that must not exist for the list to fit under the cap.
    room: String,
    update: Vec<u8>,
}

impl Statement {
    fn new(list: &[Event], cap: usize) -> Self {
        let mut writer = Writer::new();
        writer.document("$addToSet");
        writer.document("events");
        writer.array("$each");
        for (index, event) in list.iter().enumerate() {
            writer.event(index, event);
        }
        Self {
            room: format!("events.{}", cap.saturating_sub(list.len())),
            update: writer.finish().into_bytes(),
        }
    }
}

/// What is still to be done for one person.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    /// What is missing and fits.
    add: Vec<Event>,
    /// What is missing and does not fit, by its place in the list.
    capped: Vec<usize>,
}

impl Plan {
    fn of(list: &[Event], entries: &[Entry], cap: usize) -> Self {
        let mut standing: HashSet<&Event> = entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Event(event) => Some(event),
                _ => None,
            })
            .collect();
        let mut missing = list
            .iter()
            .enumerate()
            .filter(|(_, event)| standing.insert(event));
        let room = cap.saturating_sub(entries.len());
        let add = missing
            .by_ref()
            .take(room)
            .map(|(_, event)| event.clone())
            .collect();
        let capped = missing.map(|(index, _)| index).collect();
        Self { add, capped }
    }
}

impl Mongo {
    /// What stands on the stack that we write to.
    async fn stack(&self, day: Day, user: &UserId) -> Result<Vec<Entry>> {
        let doing = format!("reading a stack of {day}");
        let found = self.patiently(&doing, || {
            let days = self
                .0
                .db
                .collection::<bson::RawDocumentBuf>(&day.collection());
            let find = doc! {"_id": user.as_str()};
            async move { Ok(days.find_one(find).await?) }
        });
        match found.await? {
            None => Ok(Vec::new()),
            Some(document) => super::decode::RawStack::read(document.as_bytes())
                .and_then(|stack| stack.map_or(Ok(Vec::new()), |stack| stack.entries()))
                .map_err(|error| Error::corrupt(format!("a stack of {day}"), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{EventType, Id, ObjectId};

    fn event(o: &str) -> Event {
        Event {
            t: EventType::stored("T"),
            o: ObjectId::stored(o),
            i: Some(Id::from_bytes([1; 12])),
        }
    }

    #[test]
    fn what_is_missing_is_added_in_list_order_as_far_as_there_is_room() {
        let list = ["a", "b", "c", "d"].map(event);
        let standing = [Entry::Other, Entry::Event(event("b"))];
        let plan = Plan::of(&list, &standing, 4);
        assert_eq!(plan.add, [event("a"), event("c")]);
        assert_eq!(plan.capped, [3]);
        let full = Plan::of(&list, &standing, 2);
        assert_eq!((full.add.len(), full.capped), (0, vec![0, 2, 3]));
    }

    #[test]
    fn an_entry_named_twice_is_added_once() {
        let list = [event("a"), event("a")];
        let plan = Plan::of(&list, &[], 1);
        assert_eq!(
            plan,
            Plan {
                add: vec![event("a")],
                capped: vec![]
            }
        );
    }

    #[test]
    fn a_statement_needs_room_for_its_whole_list() {
        let list = ["a", "b", "c"].map(event);
        assert_eq!(Statement::new(&list, 1_000).room, "events.997");
        assert_eq!(Statement::new(&list, 3).room, "events.0");
    }
}
