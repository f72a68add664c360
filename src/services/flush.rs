//! Marks all of a person's window as dealt with, without mailing it.
//!
//! The rule (P3): a marker says how far it was read; what arrives meanwhile stays pending.

use std::sync::Arc;

use super::{Error, Result};
use crate::clock::{Clock, Ids};
use crate::domain::{Day, UserId, Window};
use crate::store::{Mark, People, Stacks};

pub struct Flush {
    pub stacks: Arc<dyn Stacks>,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<Ids>,
    pub window_back: u32,
}

impl Flush {
    /// Flushes one person; says how many events were pending.
    pub async fn user(&self, user: &UserId) -> Result<u64> {
        let now = self.clock.now();
        let window = Window::ending(Day::of(now), self.window_back);
        let found = self
            .stacks
            .windows(window, People::Each(std::slice::from_ref(user)))
            .await?;
        let mut flushed = 0;
        for person in found {
            let covers = person.reach();
            if !covers.is_empty() {
                flushed += person.pending().len() as u64;
                let bad = self
                    .stacks
                    .mark(&[Mark {
                        user: person.user.clone(),
                        marker: self.ids.next(now),
                        covers,
                    }])
                    .await?;
                if let Some(bad) = bad.first() {
                    let why = format!("{bad}. It cannot be marked, and digests leave it out");
                    return Err(Error::Conflict(why));
                }
            }
        }
        Ok(flushed)
    }
}
