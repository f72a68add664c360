//! Assembles the digests of due users from the events that still apply.
//!
//! A user without such an event is not due (P6). Details and followed objects are loaded only for
//! an onlooker. Digests that are sent are built again ([`crate::engine::delivery`]).

use super::{DuePerson, Run};
use crate::domain::digest::{assemble, showable};
use crate::domain::{Content, Event};
use crate::engine::Result;

impl Run<'_> {
    /// Returns the users who have an event that still applies, with the content of their digests.
    pub(super) async fn applicable<'p>(
        &mut self,
        due: Vec<DuePerson<'p>>,
    ) -> Result<Vec<(DuePerson<'p>, Content)>> {
        let (catalog, report) = (&mut self.catalog, &mut self.report);
        let (policies, caps) = (&self.digests.context.policies, self.digests.caps);
        let pending = || due.iter().flat_map(|person| &person.wanted);
        catalog.load(pending().map(|pending| pending.event)).await?;
        for pending in pending() {
            report.not_known.note(pending.event, catalog, policies);
        }
        // Sending builds the email again and loads the details then.
        let reasons = match self.is_looked_on {
            true => {
                let applies = |event: &Event| catalog.applies(event).is_some();
                let shown = |person: &'_ DuePerson<'p>| showable(&person.wanted, caps, applies);
                let shown: Vec<_> = due.iter().map(|of| (&of.user.id, shown(of))).collect();
                Some(self.sender.compose.reasons(&shown, catalog).await?)
            }
            false => None,
        };
        let mut left = Vec::with_capacity(due.len());
        for person in due {
            let told = |event: &Event| catalog.told(event);
            let Some(mut content) = assemble(&person.wanted, policies, caps, told) else {
                report.users.withdrawn += 1;
                continue;
            };
            if let Some(reasons) = &reasons {
                content.because = reasons.because(&person.user.id, &content);
            }
            left.push((person, content));
        }
        Ok(left)
    }
}
