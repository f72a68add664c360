//! Predicts the emails of batches that are still open or closing.
//!
//! It finds their events as [`Compose::build`] does after they close, and only reads.

use std::collections::HashMap;

use super::gathered::newest_first;
use super::{Compose, Tells, gathered};
use crate::domain::EmailScope;
use crate::domain::user::Unmailable;
use crate::domain::{Batch, Content, Event, Id, User, UserId};
use crate::engine::Result;
use crate::engine::feedback::suppressions::Suppressed;
use crate::wire::event::Unknown;

/// The outcome of a batch if it closed now.
#[derive(Debug)]
pub(crate) enum Prospect {
    /// An email with this content.
    Told(Content),
    /// No email, because no event applies and is wanted.
    NothingLeft,
    /// No email, because the user may get none, or only mandatory types and the batch has none.
    Unmailable(Unmailable),
}

impl Compose {
    /// Returns the outcome of each batch, in the same order. Ids must be distinct. `people` has the
    /// records of the batches' users. Adds unknown types and objects to `not_known`.
    pub(crate) async fn prospects(
        &self,
        batches: &[Batch],
        people: &HashMap<UserId, User>,
        not_known: &mut Unknown,
    ) -> Result<Vec<Prospect>> {
        if batches.is_empty() {
            return Ok(Vec::new());
        }
        let suppressed = Suppressed::among(&*self.context.store, people.values()).await?;
        let tells = |batch: &Batch| {
            let user = people.get(&batch.user).ok_or(Unmailable::Unknown)?;
            Ok((user, Tells::Wanted(suppressed.scope(user)?)))
        };
        let whose = batches.iter().filter_map(|batch| {
            let tells: std::result::Result<_, Unmailable> = tells(batch);
            Some((batch.id, tells.ok()?))
        });
        let whose: HashMap<Id, (&User, Tells)> = whose.collect();
        let open = batches.iter().filter(|batch| whose.contains_key(&batch.id));
        let open: Vec<Batch> = open.cloned().collect();
        let mut catalog = self.catalog.of_mails();
        let kept = gathered::kept(&open);
        catalog.load(kept.iter()).await?;
        for event in &kept {
            not_known.note(event, &catalog, &self.context.policies);
        }
        let gathered = self.tellable(open, &whose, &mut catalog).await?;
        let batched = newest_first(&gathered);
        let shown = batched.iter().map(|(batch, events)| {
            let (user, _) = whose[batch];
            (&user.id, events.iter().collect())
        });
        let shown: Vec<(&UserId, Vec<&Event>)> = shown.collect();
        let reasons = self.reasons(&shown, &mut catalog).await?;
        let prospect = |batch: &Batch| {
            let (user, tells) = match tells(batch) {
                Ok(may) => may,
                Err(why) => return Prospect::Unmailable(why),
            };
            let gathered = gathered.get(&batch.id);
            match gathered.and_then(|of| of.content(&self.context.policies, &catalog)) {
                Some(mut content) => {
                    content.because = reasons.because(&user.id, &content);
                    Prospect::Told(content)
                }
                None if tells == Tells::Wanted(EmailScope::All) => Prospect::NothingLeft,
                None => {
                    let why = suppressed.mailable(user).err();
                    why.map_or(Prospect::NothingLeft, Prospect::Unmailable)
                }
            }
        };
        Ok(batches.iter().map(prospect).collect())
    }
}
