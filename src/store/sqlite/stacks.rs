//! The day tables: a user's stack of one day is one row, and a push appends to it.
//!
//! The transaction that appends also reads the stored entries, so repeating a push is harmless and
//! the cap is exact. Users are written in id order, which is the order of the table. Start with
//! [`push`].

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use rusqlite::Transaction;

use super::days::{RowId, append_to_row, find_row};
use super::notes::notify;
use super::{Sqlite, days, entry_text};
use crate::domain::{
    BadStack, ChangeNotice, Day, DaySet, Entry, Event, Id, IdForm, Stack, StackId, UserId,
    UserStacks,
};
use crate::store::entry::{NewEntry, event_document, new_entries};
use crate::store::{NewMarker, Pushed, Pushes, Result, Stacks};

/// Maximum number of users or markers in one transaction, which takes less than 0.1 s. Then other
/// writers get their turn.
const AT_ONCE: usize = 10_000;

#[async_trait]
impl Stacks for Sqlite {
    /// Does nothing: each read starts a transaction, which sees all earlier commits.
    async fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    async fn push(&self, day: Day, cap: usize, pushes: &Pushes) -> Result<Pushed> {
        let mut pushed = Pushed::default();
        let lists: Arc<[List]> = pushes.lists.iter().map(|list| List::new(list)).collect();
        for (part, people) in pushes.people.chunks(AT_ONCE).enumerate() {
            let (lists, first, people) = (lists.clone(), part * AT_ONCE, people.to_vec());
            let capped =
                self.write(move |transaction| push(transaction, day, cap, &lists, &people));
            let capped = capped.await?.into_iter();
            let capped = capped.map(|(n, which)| (first + n, which));
            pushed.capped.extend(capped);
        }
        Ok(pushed)
    }

    fn scan(
        &self,
        window: DaySet,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<UserStacks>>> {
        let chunk = chunk.max(1);
        let next = move |after: Option<UserId>| {
            let window = window.clone();
            async move {
                let people = self.read(move |transaction| {
                    let users = users_after(transaction, &window, after.as_ref(), chunk)?;
                    each(transaction, &window, users)
                });
                let people = people.await?;
                let last = people.last().map(|person| person.user.clone());
                Ok(last.map(|last| (people, Some(last))))
            }
        };
        stream::try_unfold(after, next).boxed()
    }

    async fn windows(&self, window: DaySet, users: &[UserId]) -> Result<Vec<UserStacks>> {
        let users = users.to_vec();
        self.read(move |transaction| each(transaction, &window, users)).await
    }

    /// Always returns an empty list, because a row can always take another line.
    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<BadStack>> {
        let entries = markers.iter().flat_map(new_entries);
        let mut lines: Vec<NewLine> = entries.filter_map(|one| NewLine::of(&one)).collect();
        // The order in which the tables are stored on disk.
        lines.sort_by(|a, b| (a.day, &a.row).cmp(&(b.day, &b.row)));
        for part in lines.chunks(AT_ONCE) {
            let part = part.to_vec();
            self.write(move |transaction| write_markers(transaction, &part)).await?;
        }
        Ok(Vec::new())
    }
}

/// A list of entries, prepared for writing.
struct List {
    events: Vec<Event>,
    lines: Vec<String>,
    ids: HashSet<Option<Id>>,
}

impl List {
    fn new(events: &[Event]) -> Self {
        let line = |event: &Event| entry_text::line(&event_document(event));
        Self {
            events: events.to_vec(),
            lines: events.iter().map(line).collect(),
            ids: events.iter().map(|event| event.i).collect(),
        }
    }

    /// Returns the indices of the entries that are not among these stored lines.
    fn missing_in(&self, stored: &str) -> Vec<usize> {
        let mut missing: Vec<usize> = (0..self.events.len()).collect();
        for line in stored.lines() {
            // Nearly every line is an event of another fan-out, which its last characters show.
            if entry_text::our_id(line).is_some_and(|id| !self.ids.contains(&Some(id))) {
                continue;
            }
            if let Entry::Event(event) = entry_text::read_line(line) {
                missing.retain(|n| self.events[*n] != event);
            }
        }
        missing
    }
}

/// Pushes the entries of these users. Returns the entries that did not fit: the index of the user,
/// and the indices in the user's list.
fn push(
    transaction: &Transaction<'_>,
    day: Day,
    cap: usize,
    lists: &[List],
    people: &[(UserId, usize)],
) -> Result<Vec<(usize, Vec<usize>)>> {
    let mut capped = Vec::new();
    let is_empty = |(_, list): &(UserId, usize)| lists[*list].events.is_empty();
    if people.iter().all(is_empty) {
        return Ok(capped);
    }
    days::create_day(transaction, day)?;
    for (place, (user, list)) in people.iter().enumerate() {
        let (id, list) = (RowId::Text(user.clone()), &lists[*list]);
        let stored = find_row(transaction, day, &id, |n, lines| (n, list.missing_in(lines)))?;
        let (n, mut missing) = stored.unwrap_or_else(|| (0, list.missing_in("")));
        let over = missing.split_off(missing.len().min(cap.saturating_sub(n)));
        if !missing.is_empty() {
            let lines: String = missing.iter().map(|n| list.lines[*n].as_str()).collect();
            append_to_row(transaction, day, &id, missing.len(), &lines)?;
        }
        if !over.is_empty() {
            capped.push((place, over));
        }
    }
    let names = people.iter().map(|(user, _)| user.as_str());
    notify(transaction, &ChangeNotice::people(names))?;
    Ok(capped)
}

/// Returns the next users that have a stack in the window, in ascending order.
fn users_after(
    transaction: &Transaction<'_>,
    window: &DaySet,
    after: Option<&UserId>,
    limit: usize,
) -> Result<Vec<UserId>> {
    let from = after.map_or("", UserId::as_str);
    let mut users = BTreeSet::new();
    for day in days::days_in(transaction, window)? {
        // All text sorts before all bytes, which are the ObjectIds of older writers.
        let text = Some((RowId::Text(UserId::stored(from)), "id < x''"));
        let bytes = Id::first_from(from).map(|id| (RowId::ObjectId(id), "true"));
        for (first, condition) in text.into_iter().chain(bytes) {
            let table = day.collection();
            let sql = format!("SELECT id FROM {table} WHERE id >= ?1 AND {condition} ORDER BY id");
            let mut statement = transaction.prepare_cached(&sql)?;
            let mut rows = statement.query([first])?;
            // One more, because the first may be `after` itself.
            let mut left = limit + 1;
            while left > 0
                && let Some(row) = rows.next()?
            {
                // A row without a valid id belongs to no user.
                if let Ok(id) = days::row_id(row.get_ref(0)?, day) {
                    users.insert(id.into_user());
                    left -= 1;
                }
            }
        }
    }
    let next = users.into_iter().filter(|user| after.is_none_or(|after| user > after));
    Ok(next.take(limit).collect())
}

/// Looks up each user, day and form.
fn each(
    transaction: &Transaction<'_>,
    window: &DaySet,
    people: Vec<UserId>,
) -> Result<Vec<UserStacks>> {
    let mut found: Vec<_> =
        people.into_iter().map(|user| UserStacks { user, stacks: Vec::new() }).collect();
    for day in days::days_in(transaction, window)? {
        for person in &mut found {
            for form in [IdForm::ObjectId, IdForm::Text] {
                let Some(id) = RowId::of(&person.user, form) else {
                    continue;
                };
                let entries = find_row(transaction, day, &id, |_, lines| entry_text::read(lines))?;
                let stack = |entries| Stack::new(StackId { day, form }, entries);
                person.stacks.extend(entries.map(stack));
            }
        }
    }
    Ok(found)
}

/// An entry to be appended to a row, unless it is already there.
#[derive(Debug, Clone)]
struct NewLine {
    day: Day,
    row: RowId,
    line: String,
}

impl NewLine {
    fn of(entry: &NewEntry<'_>) -> Option<Self> {
        Some(Self {
            day: entry.stack.day,
            row: RowId::of(entry.user, entry.stack.form)?,
            line: entry_text::line(&entry.document),
        })
    }

    fn is_in(&self, lines: &str) -> bool {
        let entry = entry_text::read_line(self.line.trim_end());
        // Nearly every line is an event, which its last characters show.
        lines
            .lines()
            .any(|line| entry_text::our_id(line).is_none() && entry_text::read_line(line) == entry)
    }
}

fn write_markers(transaction: &Transaction<'_>, markers: &[NewLine]) -> Result<()> {
    for of_a_day in markers.chunk_by(|a, b| a.day == b.day) {
        let day = of_a_day[0].day;
        if !days::has_day(transaction, day)? {
            continue;
        }
        for marker in of_a_day {
            let is_in = |_, lines: &str| marker.is_in(lines);
            if find_row(transaction, day, &marker.row, is_in)? == Some(false) {
                append_to_row(transaction, day, &marker.row, 1, &marker.line)?;
            }
        }
    }
    Ok(())
}
