//! Reads both stores again and compares them, kind by kind and day by day.
//!
//! The rule: nothing that was copied is believed. Each part is counted and summed in both, so a
//! change of the source since it was copied shows as well. A record that cannot be read is the same
//! as none, and is told.

use std::collections::BTreeSet;

use futures::TryStreamExt;

use super::{Mover, unmoved};
use crate::domain::Day;
use crate::engine::{Result, Watcher};
use crate::store::{DaySum, Kind, Movable, Summing};
use crate::wire::moving::{Account, Part};

impl Mover {
    /// Notes of every part whether it is the same; no if it was asked to end before.
    pub(super) async fn compare(
        &self,
        watcher: &dyn Watcher,
        account: &mut Account,
    ) -> Result<bool> {
        let (source, target) = (&*self.source, &*self.target);
        // Whatever anybody was told stands is read.
        source.catch_up().await?;
        for kind in Kind::ALL {
            let sums = futures::try_join!(sum(source, kind, watcher), sum(target, kind, watcher));
            let ((here, bad), (there, _)) = sums?;
            bad.into_iter().for_each(|what| unmoved(account, what));
            if watcher.stopping() {
                return Ok(false);
            }
            watcher.advance(here.stacks);
            account
                .parts
                .push(part(kind.as_str().to_owned(), &here, &there));
        }
        let days = futures::try_join!(source.days(), target.days())?;
        let days: BTreeSet<Day> = days.0.into_iter().chain(days.1).collect();
        for day in days {
            let (here, there) =
                futures::try_join!(sum_of(source, day, watcher), sum_of(target, day, watcher))?;
            if watcher.stopping() {
                return Ok(false);
            }
            watcher.advance(here.stacks);
            account.parts.push(part(day.to_string(), &here, &there));
        }
        Ok(true)
    }
}

fn part(name: String, here: &DaySum, there: &DaySum) -> Part {
    Part {
        name,
        records: here.stacks,
        moved: Some(there.stacks),
        same: Some(here == there),
    }
}

/// What the records of a kind come to, and which cannot be read.
async fn sum(
    store: &dyn Movable,
    kind: Kind,
    watcher: &dyn Watcher,
) -> Result<(DaySum, Vec<String>)> {
    let (mut summing, mut bad) = (Summing::default(), Vec::new());
    let mut after = None;
    loop {
        let portion = store.portion(kind, after.as_deref()).await?;
        for kept in &portion.kept {
            summing.add(&kept.line()?);
        }
        bad.extend(portion.bad);
        after = portion.next;
        if after.is_none() || watcher.stopping() {
            return Ok((summing.end(), bad));
        }
    }
}

/// What the stacks of a day come to.
async fn sum_of(store: &dyn Movable, day: Day, watcher: &dyn Watcher) -> Result<DaySum> {
    let mut summing = Summing::default();
    let mut chunks = store.export_day(day);
    while let Some(chunk) = chunks.try_next().await? {
        chunk.iter().for_each(|line| summing.add(line));
        if watcher.stopping() {
            break;
        }
    }
    Ok(summing.end())
}
