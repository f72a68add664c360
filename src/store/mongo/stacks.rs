//! The heart: day collections, written by [`super::push`] and by marking what was mailed, read by
//! [`super::scan`] and [`super::windows`].
//!
//! The rule: day collections are made before their first push, clustered by `_id`, and a marker is
//! added as a whole value with `$addToSet`, so any statement may be sent again, by anybody.

use async_trait::async_trait;
use bson::doc;
use futures::stream::BoxStream;

use super::bulk::{DUPLICATE, Outcome, Refused, Targets, Verb};
use super::patience::Failure;
use super::push::Push;
use super::{Known, Layout, Mongo};
use crate::domain::{
    BadStack, Day, Defect, Form, Id, Mailed, PersonStacks, Poke, StackId, UserId, Window,
};
use crate::store::{Error, Mark, People, Pushed, Pushes, Result, Stacks};

#[async_trait]
impl Stacks for Mongo {
    async fn catch_up(&self) -> Result<()> {
        self.caught_up().await
    }

    async fn push(&self, day: Day, cap: usize, pushes: &Pushes) -> Result<Pushed> {
        if pushes.people.is_empty() {
            return Ok(Pushed::default());
        }
        let pushed = Push::new(self, day, cap, pushes).await?.run().await?;
        let people = pushes.people.iter().map(|(user, _)| user.as_str());
        self.poke(Poke::people(people)).await;
        Ok(pushed)
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

    async fn mark(&self, marks: &[Mark]) -> Result<Vec<BadStack>> {
        let mut statements: Vec<_> = marks.iter().flat_map(entries_of).collect();
        statements.sort_by_key(|(stack, ..)| *stack);
        let targets = of_days(&statements, |(stack, ..)| stack.day);
        let doing = "marking stacks";
        let outcome = self.bulk(doing, Verb::Update, targets, |writer, item| {
            let (stack, user, entry) = &statements[item];
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
        let marked = |item: usize| (statements[item].1, statements[item].0.day);
        outcome.await?.bad_stacks(doing, marked)
    }
}

/// What is written at the end of a stack.
enum Entry<'a> {
    Marker(Id, u32),
    Mailed(&'a Mailed),
}

fn entries_of(mark: &Mark) -> Vec<(StackId, &UserId, Entry<'_>)> {
    match mark {
        Mark::Flushed {
            user,
            marker,
            watermarks,
        } => {
            // Who has no such form has no such stack.
            let has = |stack: StackId| stack.form == Form::Text || user.legacy().is_some();
            let standing = watermarks.iter().filter(|(stack, _)| has(*stack));
            let entry = |(stack, n): &(StackId, u32)| (*stack, user, Entry::Marker(*marker, *n));
            standing.map(entry).collect()
        }
        Mark::Mailed { user, day, mailed } => {
            vec![(StackId::of(*day), user, Entry::Mailed(mailed))]
        }
    }
}

impl Outcome {
    /// The stacks that took nothing, if nothing else was refused.
    fn bad_stacks<'a>(
        self,
        doing: &str,
        of: impl Fn(usize) -> (&'a UserId, Day),
    ) -> Result<Vec<BadStack>> {
        let bad = |refused: Refused| match defect(&refused.failure) {
            Some(reason) => {
                let (user, day) = of(refused.item);
                let user = user.clone();
                Ok(BadStack { user, day, reason })
            }
            None => Err(Error::database(doing, refused.failure)),
        };
        self.refused.into_iter().map(bad).collect()
    }
}

/// How the server names the key that a stack stands under.
const OUR_KEY: &str = "dup key: { _id:";

/// What is wrong with a document, where it is to blame for the failure.
pub(super) fn defect(failure: &Failure) -> Option<Defect> {
    let no_list = ["non-array", "must be an array"];
    match failure.code? {
        2 if no_list.iter().any(|words| failure.why.contains(words)) => Some(Defect::NoList),
        10334 | 17419 | 17420 => Some(Defect::NoRoom),
        121 => Some(Defect::Refused),
        // A key that is not ours: somebody made a unique index.
        DUPLICATE if failure.why.contains("dup key") && !failure.why.contains(OUR_KEY) => {
            Some(Defect::Refused)
        }
        _ => None,
    }
}

/// The collections of things that are sorted by their days.
fn of_days<T>(sorted: &[T], day: impl Fn(&T) -> Day) -> Targets {
    let mut start = 0;
    let target = |of_day: &[T]| {
        let items = (start..start + of_day.len()).collect();
        start += of_day.len();
        (day(&of_day[0]).collection(), items)
    };
    let days = sorted.chunk_by(|a, b| day(a) == day(b));
    days.map(target).collect()
}

impl Mongo {
    /// Makes a day collection before anything is written to it, so that it is clustered. One that
    /// stands already stays as it is.
    pub(super) async fn create_day(&self, day: Day) -> Result<()> {
        if self.known(day).is_some() {
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
                match run.await.map_err(Failure::from) {
                    Ok(_) => Ok(true),
                    Err(failure) if failure.code == Some(NAMESPACE_EXISTS) => Ok(false),
                    Err(failure) => Err(failure),
                }
            }
        });
        if created.await? {
            let (layout, fresh) = (Layout::Clustered, true);
            self.note(day, Known { layout, fresh });
        } else {
            self.layouts(&Window::ending(day, 0)).await?;
        }
        Ok(())
    }
}

/// The server's code for a collection that stands already.
pub(super) const NAMESPACE_EXISTS: i32 = 48;
