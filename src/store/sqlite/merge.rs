//! Merges the day tables of a window by user id.
//!
//! Each table is read in its own order, so disk reads are sequential. Memory holds one row of each
//! table and the result. Rows with text ids and rows with ObjectIds sort separately, so a day that
//! has both is read as two sources. Start with [`read`].

use rusqlite::{Rows, Transaction};

use super::answer::Answer;
use super::days::{self, RowId};
use super::entries;
use crate::domain::{Day, Form, Id, PersonStacks, Stack, StackId, UserId, Window};

/// Returns the first `limit` users after `after` that have a stack in the window, in ascending
/// order.
pub(super) fn read(
    transaction: &Transaction<'_>,
    window: &Window,
    after: Option<&UserId>,
    limit: usize,
) -> Answer<Vec<PersonStacks>> {
    let mut open = Vec::new();
    for day in days::days(transaction)?
        .into_iter()
        .filter(|day| window.contains(*day))
    {
        // This is the order in which a user's stacks are returned.
        for form in [Form::ObjectId, Form::Text] {
            let stack = StackId { day, form };
            if let Some((sql, start)) = query(transaction, stack, after)? {
                open.push((stack, transaction.prepare_cached(&sql)?, start));
            }
        }
    }
    let mut sources = Vec::with_capacity(open.len());
    for (stack, statement, start) in &mut open {
        let mut source = Source {
            stack: *stack,
            rows: statement.query([&*start])?,
            head: None,
        };
        source.advance(after)?;
        sources.push(source);
    }
    let mut found = Vec::with_capacity(limit.min(4_096));
    while found.len() < limit {
        let heads = sources.iter().filter_map(|source| source.head.as_ref());
        let Some(user) = heads.map(|(user, _)| user).min().cloned() else {
            break;
        };
        let mut stacks = Vec::with_capacity(sources.len());
        for source in &mut sources {
            if let Some((_, stack)) = source.head.take_if(|(whose, _)| *whose == user) {
                stacks.push(stack);
                source.advance(after)?;
            }
        }
        found.push(PersonStacks { user, stacks });
    }
    Ok(found)
}

/// The rows of one day and form, and the next of them.
struct Source<'a> {
    stack: StackId,
    rows: Rows<'a>,
    head: Option<(UserId, Stack)>,
}

impl Source<'_> {
    /// Reads the next row of a user after `after`.
    fn advance(&mut self, after: Option<&UserId>) -> Answer<()> {
        while let Some(row) = self.rows.next()? {
            // A row without a valid id belongs to no user.
            let Ok(id) = days::row_id(row.get_ref(0)?, self.stack.day) else {
                continue;
            };
            let user = id.into_user();
            if after.is_none_or(|after| user > *after) {
                let entries = entries::read(entries::bytes(row.get_ref(1)?));
                self.head = Some((user, Stack::new(self.stack, entries)));
                break;
            }
        }
        Ok(())
    }
}

/// Returns the query for the rows of one day and form, and the id where it starts; `None` if there
/// are no such rows.
fn query(
    transaction: &Transaction<'_>,
    stack: StackId,
    after: Option<&UserId>,
) -> Answer<Option<(String, RowId)>> {
    let after = after.map_or("", UserId::as_str);
    let (condition, start) = match stack.form {
        // All text sorts before all bytes.
        Form::Text => ("id >= ?1 AND id < x''", RowId::Text(UserId::stored(after))),
        Form::ObjectId => match Id::first_from(after) {
            Some(start) if has_object_ids(transaction, stack.day)? => {
                ("id >= ?1", RowId::ObjectId(start))
            }
            _ => return Ok(None),
        },
    };
    let table = stack.day.collection();
    let sql = format!("SELECT id, events FROM {table} WHERE {condition} ORDER BY id");
    Ok(Some((sql, start)))
}

/// Returns whether older writers left rows under ObjectIds. Costs one lookup at the end of the
/// table.
fn has_object_ids(transaction: &Transaction<'_>, day: Day) -> Answer<bool> {
    let sql = format!("SELECT 1 FROM {} WHERE id >= x'' LIMIT 1", day.collection());
    Ok(transaction.prepare_cached(&sql)?.exists([])?)
}
