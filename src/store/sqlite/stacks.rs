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

use super::coordination::notify;
use super::days::{RowId, append_to_row, find_row};
use super::{Sqlite, days, entry_text};
use crate::domain::{
    ChangeNotice, Day, DaySet, DefectiveStack, Entry, Event, Id, IdForm, Stack, StackId, UserId,
    UserStacks,
};
use crate::store::entry::{NewEntry, entries_of_marker, event_document};
use crate::store::{NewMarker, PushOutcome, PushRequest, Result, Stacks};

/// Maximum number of users or markers in one transaction, which then takes less than 0.1 s. Other
/// writers can write between two transactions.
const MAX_PER_TRANSACTION: usize = 10_000;

#[async_trait]
impl Stacks for Sqlite {
    /// Does nothing: each read starts a transaction, which sees all earlier commits.
    async fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    async fn push(&self, day: Day, cap: usize, pushes: &PushRequest) -> Result<PushOutcome> {
        let mut pushed = PushOutcome::default();
        let lists: Arc<[PreparedList]> =
            pushes.lists.iter().map(|list| PreparedList::new(list)).collect();
        for (chunk_number, users) in pushes.users.chunks(MAX_PER_TRANSACTION).enumerate() {
            let (lists, users) = (lists.clone(), users.to_vec());
            let capped =
                self.write(move |transaction| push(transaction, day, cap, &lists, &users)).await?;
            for (user, entries) in capped {
                pushed.capped.push((chunk_number * MAX_PER_TRANSACTION + user, entries));
            }
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
        let read_chunk = move |after: Option<UserId>| {
            let window = window.clone();
            async move {
                let stacks = self
                    .read(move |transaction| {
                        let users = users_after(transaction, &window, after.as_ref(), chunk)?;
                        read_stacks(transaction, &window, users)
                    })
                    .await?;
                let last = stacks.last().map(|last| last.user.clone());
                Ok(last.map(|last| (stacks, Some(last))))
            }
        };
        stream::try_unfold(after, read_chunk).boxed()
    }

    async fn windows(&self, window: DaySet, users: &[UserId]) -> Result<Vec<UserStacks>> {
        let users = users.to_vec();
        self.read(move |transaction| read_stacks(transaction, &window, users)).await
    }

    /// Always returns an empty list, because a line can be appended to any row.
    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<DefectiveStack>> {
        let entries = markers.iter().flat_map(entries_of_marker);
        let mut lines: Vec<NewLine> =
            entries.filter_map(|entry| NewLine::from_entry(&entry)).collect();
        // The order of the rows on disk.
        lines.sort_by(|a, b| (a.day, &a.row).cmp(&(b.day, &b.row)));
        for chunk in lines.chunks(MAX_PER_TRANSACTION) {
            let chunk = chunk.to_vec();
            self.write(move |transaction| write_markers(transaction, &chunk)).await?;
        }
        Ok(Vec::new())
    }
}

/// A list of entries, prepared for writing.
struct PreparedList {
    events: Vec<Event>,
    lines: Vec<String>,
    ids: HashSet<Option<Id>>,
}

impl PreparedList {
    fn new(events: &[Event]) -> Self {
        let to_line = |event: &Event| entry_text::to_line(&event_document(event));
        Self {
            events: events.to_vec(),
            lines: events.iter().map(to_line).collect(),
            ids: events.iter().map(|event| event.fanout_id).collect(),
        }
    }

    /// Returns the indices of the entries that are not among these stored lines.
    fn missing_in(&self, stored: &str) -> Vec<usize> {
        let mut missing: Vec<usize> = (0..self.events.len()).collect();
        for line in stored.lines() {
            // Nearly every line is an event of another fan-out. Comparing the ids rules these out.
            if entry_text::trailing_id(line).is_some_and(|id| !self.ids.contains(&Some(id))) {
                continue;
            }
            if let Entry::Event(event) = entry_text::read_line(line) {
                missing.retain(|n| self.events[*n] != event);
            }
        }
        missing
    }
}

/// Appends entries to the stack of each user: those of the list with the index beside the user.
/// Returns the entries that did not fit: the index of the user, and their indices in the list.
fn push(
    transaction: &Transaction<'_>,
    day: Day,
    cap: usize,
    lists: &[PreparedList],
    users: &[(UserId, usize)],
) -> Result<Vec<(usize, Vec<usize>)>> {
    let mut capped = Vec::new();
    if users.iter().all(|(_, list)| lists[*list].events.is_empty()) {
        return Ok(capped);
    }
    days::create_day(transaction, day)?;
    for (user_index, (user, list)) in users.iter().enumerate() {
        let (id, list) = (RowId::Text(user.clone()), &lists[*list]);
        let stored =
            find_row(transaction, day, &id, |count, lines| (count, list.missing_in(lines)))?;
        let (count, mut missing) = stored.unwrap_or_else(|| (0, list.missing_in("")));
        let over_cap = missing.split_off(missing.len().min(cap.saturating_sub(count)));
        if !missing.is_empty() {
            let lines: String = missing.iter().map(|n| list.lines[*n].as_str()).collect();
            append_to_row(transaction, day, &id, missing.len(), &lines)?;
        }
        if !over_cap.is_empty() {
            capped.push((user_index, over_cap));
        }
    }
    let ids = users.iter().map(|(user, _)| user.as_str());
    notify(transaction, &ChangeNotice::users(ids))?;
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
    let mut candidates = BTreeSet::new();
    for day in days::days_in(transaction, window)? {
        // Text ids sort before the ids of older writers, which are the bytes of ObjectIds.
        let text_ids = Some((RowId::Text(UserId::stored(from)), "id < x''"));
        let object_ids = Id::first_not_before(from).map(|id| (RowId::ObjectId(id), "true"));
        for (first, condition) in text_ids.into_iter().chain(object_ids) {
            let table = day.collection_name();
            let sql = format!("SELECT id FROM {table} WHERE id >= ?1 AND {condition} ORDER BY id");
            let mut statement = transaction.prepare_cached(&sql)?;
            let mut rows = statement.query([first])?;
            // One more, because the first may be `after` itself.
            let mut remaining = limit + 1;
            while remaining > 0
                && let Some(row) = rows.next()?
            {
                // A row without a valid id belongs to no user.
                if let Ok(id) = RowId::read(row.get_ref(0)?, day) {
                    candidates.insert(id.into_user());
                    remaining -= 1;
                }
            }
        }
    }
    let users = candidates.into_iter().filter(|user| after.is_none_or(|after| user > after));
    Ok(users.take(limit).collect())
}

/// Returns the stacks of these users in the window. Looks up each user, day and form.
fn read_stacks(
    transaction: &Transaction<'_>,
    window: &DaySet,
    users: Vec<UserId>,
) -> Result<Vec<UserStacks>> {
    let mut user_stacks: Vec<_> =
        users.into_iter().map(|user| UserStacks { user, stacks: Vec::new() }).collect();
    for day in days::days_in(transaction, window)? {
        for UserStacks { user, stacks } in &mut user_stacks {
            for form in [IdForm::ObjectId, IdForm::Text] {
                let Some(id) = RowId::of_user(user, form) else {
                    continue;
                };
                let read = |_, lines: &str| entry_text::read_lines(lines);
                let entries = find_row(transaction, day, &id, read)?;
                stacks.extend(entries.map(|entries| Stack::new(StackId { day, form }, entries)));
            }
        }
    }
    Ok(user_stacks)
}

/// An entry to append to a row, unless it is already there.
#[derive(Debug, Clone)]
struct NewLine {
    day: Day,
    row: RowId,
    line: String,
}

impl NewLine {
    fn from_entry(entry: &NewEntry<'_>) -> Option<Self> {
        Some(Self {
            day: entry.stack.day,
            row: RowId::of_user(entry.user, entry.stack.form)?,
            line: entry_text::to_line(&entry.document),
        })
    }

    fn is_in(&self, lines: &str) -> bool {
        let entry = entry_text::read_line(self.line.trim_end());
        // Nearly every line is an event. Its trailing id rules it out without parsing.
        let is_event = |line: &str| entry_text::trailing_id(line).is_some();
        lines.lines().any(|line| !is_event(line) && entry_text::read_line(line) == entry)
    }
}

fn write_markers(transaction: &Transaction<'_>, markers: &[NewLine]) -> Result<()> {
    for markers_of_day in markers.chunk_by(|a, b| a.day == b.day) {
        let day = markers_of_day[0].day;
        if !days::has_day(transaction, day)? {
            continue;
        }
        for marker in markers_of_day {
            let is_in = |_, lines: &str| marker.is_in(lines);
            if find_row(transaction, day, &marker.row, is_in)? == Some(false) {
                append_to_row(transaction, day, &marker.row, 1, &marker.line)?;
            }
        }
    }
    Ok(())
}
