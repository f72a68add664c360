//! What batches would tell that are not mailed yet, as they are now.
//!
//! The rule: it is found as [`Compose::build`] finds it once they have closed, and only read.

use std::collections::HashMap;

use super::gathered::newest_first;
use super::{Compose, Tells, gathered};
use crate::domain::EmailScope;
use crate::domain::user::Unmailable;
use crate::domain::{Batch, Content, Event, Id, User, UserId};
use crate::engine::Result;
use crate::engine::feedback::suppressions::Suppressed;
use crate::wire::unknown::Unknown;

/// What becomes of a batch if it closes as it is.
#[derive(Debug)]
pub(crate) enum Prospect {
    /// It is mailed, and tells this.
    Told(Content),
    /// Nothing is left that applies and that its person wants.
    NothingLeft,
    /// Its person may not be mailed, or only what is mandatory, of which it has nothing.
    Unmailable(Unmailable),
}

impl Compose {
    /// What becomes of each of these batches, in their order; no two of one id. The people are all
    /// of theirs that have a record. What is not known of their events is noted.
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
