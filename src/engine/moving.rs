//! Moves a whole store into another, empty one.
//!
//! The rule: the source is closed first and stays as it is; the target is closed until all of it
//! was read again in both and found the same. Every step can be cut short anywhere and repeated:
//! pages are put as they are, and how far a copy has come is noted after each. So a process that
//! dies leaves work for the next run, and nothing else. Copying is in [`copying`], comparing in
//! [`comparing`].

use std::sync::Arc;

use chrono::TimeDelta;

use super::crash::point;
use super::{Error, Result, Watcher};
use crate::clock::{Clock, Ids};
use crate::domain::{Id, Lease};
use crate::store::{Counted, Kind, Movable, MoveNote, Reached, Role};
use crate::wire::moving::{Account, MoveOutcome, Part};

mod comparing;
mod copying;

/// How many records that could not be moved are told by name.
const NAMED: usize = 100;
/// How long nobody else may touch a day that is made whole.
const LEASE: TimeDelta = TimeDelta::minutes(5);

/// Moves one store into another.
pub struct Mover {
    /// What is moved away from.
    pub source: Arc<dyn Movable>,
    /// What is moved into.
    pub target: Arc<dyn Movable>,
    /// What they are called.
    pub names: Names,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Names the move, and this process.
    pub ids: Arc<Ids>,
}

/// What the two stores of a move are called, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// What is moved away from.
    pub from: String,
    /// What is moved into.
    pub to: String,
}

/// Whether a store may be opened again that was moved already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopening {
    /// Only one whose move has not ended.
    Unmoved,
    /// That one as well: whatever the target did since, it knows nothing of.
    Moved,
}

/// Opens a store again that was to be moved. What was copied stays in the target, which stays
/// closed. Answers whether there was anything to open.
pub async fn reopen(store: &dyn Movable, reopening: Reopening) -> Result<bool> {
    let note = store.move_note().await?;
    let Some(note) = note.filter(|note| note.role == Role::Source) else {
        return Ok(false);
    };
    if note.done && reopening == Reopening::Unmoved {
        return Err(Error::Conflict(format!(
            "{} was moved to {}, which may have mailed people since",
            note.from, note.to
        )));
    }
    store.unseal().await?;
    match store.swap_move_note(Some(&note), None).await? {
        true => Ok(true),
        false => Err(somebody_else()),
    }
}

/// Says what there is to move, and whether the target would take it; where there is none it would.
/// Changes nothing.
pub async fn rehearse(
    source: &dyn Movable,
    target: Option<&dyn Movable>,
    names: &Names,
) -> Result<Account> {
    let id = under_way(source.move_note().await?.as_ref(), names)?;
    if let Some(target) = target {
        standing(target, id, names).await?;
    }
    let mut account = names.account();
    account.parts = count(source).await?;
    Ok(account)
}

/// What a store holds.
async fn count(store: &dyn Movable) -> Result<Vec<Part>> {
    let part = |name, records| Part {
        name,
        records,
        moved: None,
        same: None,
    };
    let mut parts = Vec::new();
    for kind in Kind::ALL {
        parts.push(part(kind.as_str().to_owned(), store.tally(kind).await?));
    }
    for day in store.days().await? {
        let stacks = store.count(&[Counted::Stacks(day)]).await?;
        parts.push(part(day.to_string(), stacks.iter().sum()));
    }
    Ok(parts)
}

impl Mover {
    /// Moves everything, or goes on where an earlier run ended.
    pub async fn run(&self, watcher: &dyn Watcher) -> Result<Account> {
        let mut account = self.names.account();
        let (source, mut target) = self.begin().await?;
        if target.done {
            account.outcome = MoveOutcome::Known;
        } else {
            // All is read twice: copied, and compared.
            let parts = count(&*self.source).await?;
            watcher.total(2 * parts.iter().map(|part| part.records).sum::<u64>());
            if !self.copy(&mut target, watcher, &mut account).await?
                || !self.compare(watcher, &mut account).await?
            {
                account.outcome = MoveOutcome::Stopped;
                return Ok(account);
            }
            point("move-compared");
            let same = account.parts.iter().all(|part| part.same == Some(true));
            if !same || account.unmoved_count > 0 {
                // The next run copies all of it again, and tells of everything that it cannot.
                self.reached(&mut target, START).await?;
                account.outcome = MoveOutcome::Differs;
                return Ok(account);
            }
            account.outcome = MoveOutcome::Moved;
        }
        // The source first: who opened it again meanwhile has taken its note away, and the target
        // stays closed.
        let done = MoveNote {
            done: true,
            ..source.clone()
        };
        swap(&*self.source, Some(&source), &done).await?;
        point("move-source-done");
        if !target.done {
            let done = MoveNote {
                done: true,
                reached: None,
                ..target.clone()
            };
            swap(&*self.target, Some(&target), &done).await?;
        }
        Ok(account)
    }

    /// Closes both stores, unless an earlier run has; answers their notes.
    async fn begin(&self) -> Result<(MoveNote, MoveNote)> {
        let before = self.source.move_note().await?;
        let id = under_way(before.as_ref(), &self.names)?;
        // That it is empty is believed.
        self.target.catch_up().await?;
        let standing = standing(&*self.target, id, &self.names).await?;
        let id = id.unwrap_or_else(|| self.ids.next(self.clock.now()));
        let Names { from, to } = &self.names;
        let note = |role| MoveNote {
            id,
            role,
            from: from.clone(),
            to: to.clone(),
            done: false,
            reached: None,
        };
        let source = match before {
            Some(before) if before.role == Role::Source => before,
            before => {
                let source = note(Role::Source);
                swap(&*self.source, before.as_ref(), &source).await?;
                source
            }
        };
        point("move-source-noted");
        let why = format!("{from} is being moved to {to}, and takes nothing any more");
        if !self.source.seal(&why).await? {
            self.make_days_whole().await?;
        }
        // All that anybody was told stands is copied.
        self.source.catch_up().await?;
        point("move-sealed");
        let target = match standing {
            Some(target) => target,
            None => {
                let target = MoveNote {
                    reached: Some(START),
                    ..note(Role::Target)
                };
                swap(&*self.target, None, &target).await?;
                // Whoever had it open before it was noted may have brought something in.
                is_empty(&*self.target, &self.names).await?;
                target
            }
        };
        point("move-target-noted");
        Ok((source, target))
    }

    /// Days that somebody died over dropping are made whole, as they are read by their names.
    async fn make_days_whole(&self) -> Result<()> {
        let owner = self.ids.owner();
        for day in self.source.days().await? {
            let (name, now) = (super::archive::lease_of(day), self.clock.now());
            let lease = Lease {
                owner: owner.clone(),
                until: now + LEASE,
            };
            if !self.source.lease(&name, &lease, now).await? {
                return Err(Error::Conflict(format!(
                    "another process archives or restores {day}"
                )));
            }
            self.source.fix_day(day).await?;
            self.source.unlease(&name, &owner).await?;
        }
        Ok(())
    }

    /// Notes how far the copy has come.
    async fn reached(&self, note: &mut MoveNote, reached: Reached) -> Result<()> {
        let next = MoveNote {
            reached: Some(reached),
            ..note.clone()
        };
        swap(&*self.target, Some(note), &next).await?;
        *note = next;
        Ok(())
    }
}

impl Names {
    fn account(&self) -> Account {
        Account {
            from: self.from.clone(),
            to: self.to.clone(),
            outcome: MoveOutcome::Counted,
            parts: Vec::new(),
            unmoved: Vec::new(),
            unmoved_count: 0,
        }
    }
}

/// The move that the source is in; nothing where it is in none. Another move is in the way.
fn under_way(source: Option<&MoveNote>, names: &Names) -> Result<Option<Id>> {
    let Some(MoveNote {
        id, from, to, done, ..
    }) = source
    else {
        return Ok(None);
    };
    let why = match (source.map(|note| note.role), done) {
        (Some(Role::Source), _) if *to == names.to => return Ok(Some(*id)),
        (Some(Role::Source), true) => format!("{from} was moved to {to}"),
        (Some(Role::Source), false) => format!("{from} is being moved to {to}"),
        (_, false) => format!("{to} is itself being moved into, from {from}"),
        (_, true) => return Ok(None),
    };
    Err(Error::Conflict(why))
}

/// What the target is in this move; nothing where it is empty. Anything else is in the way.
async fn standing(target: &dyn Movable, id: Option<Id>, names: &Names) -> Result<Option<MoveNote>> {
    if let Some(note) = target.move_note().await? {
        let MoveNote { from, to, .. } = &note;
        return match note.role == Role::Target && id == Some(note.id) {
            true => Ok(Some(note)),
            false => {
                let by = format!("it is of another move, from {from} to {to}");
                Err(not_empty(names, &by))
            }
        };
    }
    is_empty(target, names).await.map(|()| None)
}

/// Whatever the target holds is in the way.
async fn is_empty(target: &dyn Movable, names: &Names) -> Result<()> {
    let taken = |by: String| Err(not_empty(names, &by));
    for kind in Kind::ALL {
        let records = target.tally(kind).await?;
        if records > 0 {
            return taken(format!("it holds {records} {}", kind.as_str()));
        }
    }
    match target.days().await?.first() {
        Some(day) => taken(format!("it holds {}", day.collection())),
        None => Ok(()),
    }
}

fn not_empty(names: &Names, by: &str) -> Error {
    Error::Conflict(format!("{} is not empty: {by}", names.to))
}

/// Nothing was copied yet.
const START: Reached = Reached::Kind {
    kind: Kind::ALL[0],
    after: None,
};

async fn swap(store: &dyn Movable, read: Option<&MoveNote>, note: &MoveNote) -> Result<()> {
    match store.swap_move_note(read, Some(note)).await? {
        true => Ok(()),
        false => Err(somebody_else()),
    }
}

fn somebody_else() -> Error {
    Error::Conflict("another process moves this store at the same time".to_owned())
}

/// Notes a record that cannot be moved.
fn unmoved(account: &mut Account, what: String) {
    account.unmoved_count += 1;
    if account.unmoved.len() < NAMED {
        account.unmoved.push(what);
    }
}
