//! Decides whether a user may get a row's email, and which types it may include.
//!
//! Users who unsubscribed here or at the provider, or want no digests, get mandatory types only
//! (P7). An email of those alone has no unsubscribe link, which would not stop the next one. Its
//! link to the preferences page remains, which explains this.

use super::Compose;
use crate::domain::EmailScope;
use crate::domain::{Cadence, Delivery, Occasion, User};
use crate::engine::feedback::suppressions::Suppressed;

/// A user who may get a row's email.
pub(super) struct Allowed<'a> {
    pub user: &'a User,
    /// The reason why they get mandatory types only, if they do.
    pub barred: Option<String>,
}

/// Returns the scope of a row's email; for a row that may not be sent, the full scope.
pub(super) fn scope(allowed: &Result<Allowed<'_>, String>) -> EmailScope {
    match allowed {
        Ok(Allowed {
            barred: Some(_), ..
        }) => EmailScope::MandatoryOnly,
        _ => EmailScope::All,
    }
}

impl Compose {
    /// Checks whether this user may still get the row's email. The error is the reason why not.
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
