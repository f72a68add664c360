//! Implements [`Stacks`] on day collections, and appends the markers of emailed events.
//!
//! A day collection is created before its first push, clustered by `_id`. Markers are added with
//! `$addToSet`, so any process may send a statement again. [`super::push`] appends entries,
//! and [`super::windows`] reads stacks.

use std::collections::HashMap;

use async_trait::async_trait;
use bson::{RawBson, RawDocumentBuf, doc, rawdoc};
use futures::stream::BoxStream;

use super::Mongo;
use super::bulk::{Verb, defect};
use super::patience::NAMESPACE_EXISTS;
use super::push::Push;
use super::reads::at_once;
use super::windows::{TOGETHER, among};
use crate::domain::{BadStack, ChangeNotice, Day, Form, PersonStacks, UserId, Window};
use crate::store::entry::{NewEntry, new_entries, object_id};
use crate::store::{Error, NewMarker, Pushed, Pushes, Result, Stacks};

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
        self.notify(ChangeNotice::people(people)).await;
        Ok(pushed)
    }

    fn scan(
        &self,
        window: Window,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<PersonStacks>>> {
        self.merge(window, after, chunk)
    }

    async fn windows(&self, window: Window, users: &[UserId]) -> Result<Vec<PersonStacks>> {
        self.windows_of(window, users).await
    }

    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<BadStack>> {
        let mut entries: Vec<NewEntry<'_>> = markers.iter().flat_map(new_entries).collect();
        entries.sort_by_key(|entry| entry.stack);
        let days: Vec<_> = entries
            .chunk_by(|a, b| a.stack.day == b.stack.day)
            .collect();
        let mut bad = Vec::new();
        let mark = |day: usize| self.mark_day(days[day]);
        at_once(DAYS_AT_ONCE, 0..days.len(), mark, |part| bad.extend(part)).await?;
        Ok(bad)
    }
}

/// The number of days whose stacks are marked at the same time.
const DAYS_AT_ONCE: usize = 2;

/// Returns the statement that appends an entry.
fn appending(entry: &NewEntry<'_>) -> RawDocumentBuf {
    let id = match (entry.stack.form, entry.user.legacy()) {
        (Form::ObjectId, Some(id)) => RawBson::from(object_id(id)),
        _ => RawBson::from(entry.user.as_str()),
    };
    let add = rawdoc! {"$addToSet": {"events": entry.document.clone()}};
    rawdoc! {"q": {"_id": id}, "u": add}
}

impl Mongo {
    /// Appends markers to the stacks of one day. Returns the stacks that could not take one.
    async fn mark_day(&self, entries: &[NewEntry<'_>]) -> Result<Vec<BadStack>> {
        let day = entries[0].stack.day;
        let (name, mut bad) = (day.collection(), Vec::new());
        let entries = self.mark_together(&name, entries).await?;
        let statements = entries.iter().map(|entry| appending(entry));
        let outcome = self.write(Verb::Update, &name, statements).await?;
        for refused in outcome.refused {
            let user = entries[refused.item].user.clone();
            match defect(&refused.failure) {
                Some(reason) => bad.push(BadStack { user, day, reason }),
                None => return Err(Error::database(outcome.doing, refused.failure)),
            }
        }
        Ok(bad)
    }

    /// Appends equal entries with one statement for many users, if few other stacks lie between
    /// theirs. Returns the other entries. As in [`super::push`], this costs the server less.
    async fn mark_together<'e>(
        &self,
        name: &str,
        entries: &'e [NewEntry<'e>],
    ) -> Result<Vec<&'e NewEntry<'e>>> {
        let (mut groups, mut left) = (HashMap::<&[u8], Vec<&NewEntry<'e>>>::new(), Vec::new());
        for entry in entries {
            match entry.stack.form {
                Form::Text => {
                    let equal = groups.entry(entry.document.as_bytes());
                    equal.or_default().push(entry);
                }
                Form::ObjectId => left.push(entry),
            }
        }
        for mut group in groups.into_values() {
            group.sort_by_key(|entry| entry.user);
            let users: Vec<&str> = group.iter().map(|entry| entry.user.as_str()).collect();
            let document = &group[0].document;
            let mark = |part: &[&str]| {
                let add = rawdoc! {"$addToSet": {"events": document.clone()}};
                let update = rawdoc! {"q": {"_id": among(part)}, "u": add, "multi": true};
                (update, 1)
            };
            let Some(outcome) = self.update_together(name, &users, TOGETHER, mark).await? else {
                left.extend(group);
                continue;
            };
            for refused in outcome.refused {
                match defect(&refused.failure) {
                    // Statements of single users show whose stack it is.
                    Some(_) => {
                        left.extend(group.chunks(TOGETHER).nth(refused.item).unwrap_or_default());
                    }
                    None => return Err(Error::database(outcome.doing, refused.failure)),
                }
            }
        }
        Ok(left)
    }

    /// Creates a clustered day collection before the first write to it. An existing one keeps its
    /// layout: older writers created ordinary ones.
    pub(super) async fn create_day(&self, day: Day) -> Result<()> {
        if self.known_days().contains_key(&day) {
            return Ok(());
        }
        let create = doc! {
            "create": day.collection(),
            "clusteredIndex": {"key": {"_id": 1}, "unique": true},
            "writeConcern": {"w": "majority"},
        };
        let created = self.run(&self.0.db, create, &[NAMESPACE_EXISTS]).await?;
        self.known_days().insert(day, created.is_ok());
        Ok(())
    }
}
