//! Merges the day tables of a window by user id.
//!
//! Each table is read in its own order, so disk reads are sequential. Memory holds one row of each
//! table and the result. Rows with text ids and rows with ObjectIds sort separately, so a day that
//! has both is read as two sources. Start with [`read`].

use rusqlite::{CachedStatement, Rows, Transaction};

use super::answer::Answer;
use super::codec::RowId;
use super::{days, entries};
use crate::domain::{Day, Form, Id, PersonStacks, Stack, StackId, UserId, Window};

/// The users to read.
#[derive(Debug, Clone)]
pub(super) enum Range {
    All,
    /// Users after this one.
    After(UserId),
    /// Only these users, ascending. Reads all rows from the first to the last of them.
    Among(Vec<UserId>),
}

impl Range {
    /// Returns the first user of the range, and whether it is included.
    fn start(&self) -> Option<(&UserId, bool)> {
        match self {
            Self::All => None,
            Self::After(user) => Some((user, false)),
            Self::Among(people) => people.first().map(|user| (user, true)),
        }
    }

    fn end(&self) -> Option<&UserId> {
        match self {
            Self::All | Self::After(_) => None,
            Self::Among(people) => people.last(),
        }
    }

    fn holds(&self, user: &UserId) -> bool {
        match self {
            Self::All => true,
            Self::After(last) => user > last,
            Self::Among(people) => people.binary_search(user).is_ok(),
        }
    }
}

/// Returns the first `limit` users of the range that have a stack in the window, in ascending
/// order.
pub(super) fn read(
    transaction: &Transaction<'_>,
    window: &Window,
    range: &Range,
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
            let Some((sql, start)) = query(transaction, stack, range)? else {
                continue;
            };
            open.push((stack, transaction.prepare_cached(&sql)?, start));
        }
    }
    let mut sources = Vec::with_capacity(open.len());
    for (stack, statement, start) in &mut open {
        let mut source = Source::open(*stack, statement, start)?;
        source.advance(range)?;
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
                source.advance(range)?;
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

impl<'a> Source<'a> {
    fn open(
        stack: StackId,
        statement: &'a mut CachedStatement<'_>,
        bounds: &Bounds,
    ) -> Answer<Self> {
        let rows = match bounds {
            (start, None) => statement.query([start])?,
            (start, Some(end)) => statement.query([start, end])?,
        };
        Ok(Self {
            stack,
            rows,
            head: None,
        })
    }

    /// Reads the next row of the range.
    fn advance(&mut self, range: &Range) -> Answer<()> {
        while let Some(row) = self.rows.next()? {
            // A row without a valid id belongs to no user.
            let Ok(id) = days::row_id(row.get_ref(0)?, self.stack.day) else {
                continue;
            };
            let user = id.into_user();
            if range.holds(&user) {
                let entries = entries::read(entries::bytes(row.get_ref(1)?));
                self.head = Some((user, Stack::new(self.stack, entries)));
                break;
            }
        }
        Ok(())
    }
}

/// The first and, if known, the last id of a source.
type Bounds = (RowId, Option<RowId>);

/// Returns the query for the rows of one day and form; `None` if there are none in the range.
fn query(
    transaction: &Transaction<'_>,
    stack: StackId,
    range: &Range,
) -> Answer<Option<(String, Bounds)>> {
    let table = stack.day.collection();
    let ordered =
        |condition: &str| format!("SELECT id, events FROM {table} WHERE {condition} ORDER BY id");
    Ok(match stack.form {
        Form::Text => {
            let nobody = UserId::stored("");
            let (start, with_it) = range.start().unwrap_or((&nobody, true));
            let from = if with_it { "id >= ?1" } else { "id > ?1" };
            let start = RowId::Text(start.clone());
            match range.end() {
                // All text sorts before all bytes.
                None => Some((ordered(&format!("{from} AND id < x''")), (start, None))),
                Some(end) => {
                    let end = RowId::Text(end.clone());
                    Some((ordered(&format!("{from} AND id <= ?2")), (start, Some(end))))
                }
            }
        }
        Form::ObjectId => {
            let start = match range.start() {
                None => Id::first_from(""),
                Some((user, _)) => Id::first_from(user.as_str()),
            };
            let Some(start) = start else { return Ok(None) };
            if !has_object_ids(transaction, stack.day)? {
                return Ok(None);
            }
            let start = RowId::ObjectId(start);
            match range.end().and_then(|end| Id::first_from(end.as_str())) {
                None => Some((ordered("id >= ?1"), (start, None))),
                Some(end) => Some((
                    ordered("id >= ?1 AND id <= ?2"),
                    (start, Some(RowId::ObjectId(end))),
                )),
            }
        }
    })
}

/// Returns whether older writers left rows under ObjectIds. Costs one lookup at the end of the
/// table.
fn has_object_ids(transaction: &Transaction<'_>, day: Day) -> Answer<bool> {
    let sql = format!("SELECT 1 FROM {} WHERE id >= x'' LIMIT 1", day.collection());
    Ok(transaction.prepare_cached(&sql)?.exists([])?)
}
