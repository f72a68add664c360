//! Whether a person may be mailed what a row would tell, and how much of it.
//!
//! The rule (P7): somebody who unsubscribed, wants no digest, or said so at the provider is told
//! what is mandatory and nothing else. A mail of that alone offers no unsubscribing, which would
//! not stop the next one; its reader can still look at the preferences page, which says why.

use super::Compose;
use crate::domain::EmailScope;
use crate::domain::{Cadence, Delivery, Occasion, User};
use crate::engine::feedback::suppressions::Suppressed;

/// Whom a row's mail may go to.
pub(super) struct Allowed<'a> {
    pub user: &'a User,
    /// Why they are told what is mandatory alone, if so.
    pub barred: Option<String>,
}

/// How much a row may tell; of one that may tell nothing, what it would.
pub(super) fn scope(allowed: &Result<Allowed<'_>, String>) -> EmailScope {
    match allowed {
        Ok(Allowed {
            barred: Some(_), ..
        }) => EmailScope::MandatoryOnly,
        _ => EmailScope::All,
    }
}

impl Compose {
    /// Whether this person may still be mailed this.
    pub(super) fn allowed<'a>(
        &self,
        row: &Delivery,
        person: Option<&'a User>,
        suppressed: &Suppressed,
    ) -> Result<Allowed<'a>, String> {
        let user = person.ok_or("the person's record is gone")?;
        if user.start.is_some_and(|start| start.is_after(row.marker)) {
            return Err("the user of this id was deleted since".into());
        }
        let barred = suppressed.mailable(user).err();
        let mut barred = barred.map(|why| format!("the person is {}", why.as_str()));
        if let (Err(_), Some(why)) = (suppressed.scope(user), &barred) {
            return Err(why.clone());
        }
        if matches!(row.occasion, Occasion::Digest { .. }) {
            let (schedule, scope) = user.digests(&self.schedule);
            if scope == EmailScope::MandatoryOnly {
                barred.get_or_insert_with(|| "the person wants no digest any more".into());
            }
            match (schedule.cadence, &barred) {
                (Cadence::Never, Some(why)) => return Err(why.clone()),
                _ if row.watermarks.is_empty() => return Err("the row covers nothing".into()),
                _ => {}
            }
        }
        Ok(Allowed { user, barred })
    }
}
