//! Mutes subjects for users, and unmutes them.
//!
//! A mute takes effect at once, also for emails that are about to be sent (P7). Unmuting emails no
//! earlier events ([`crate::domain::Mutes`]). Each change drops the ended mutes whose events can no
//! longer be emailed.

use chrono::{DateTime, Utc};

use super::{Bound, MuteInput, PeopleService};
use crate::domain::{Poke, Subject, User, UserId};
use crate::engine::Result;

impl PeopleService {
    /// Mutes a subject for a user, or changes for how long. Returns the record after it, or `None`
    /// if there is none.
    pub async fn mute(
        &self,
        id: &UserId,
        subject: &Subject,
        input: MuteInput,
    ) -> Result<Option<User>> {
        self.mute_if(id, subject, input, |_| true).await
    }

    /// Mutes a subject if the record passes `check` when it is written.
    pub(super) async fn mute_if(
        &self,
        id: &UserId,
        subject: &Subject,
        input: MuteInput,
        check: impl Fn(&User) -> bool,
    ) -> Result<Option<User>> {
        self.change_mutes(id, check, |user, now| {
            let MuteInput { until, title } = input.clone();
            user.mutes.mute(subject.clone(), until, title, now);
        })
        .await
    }

    /// Ends a mute, if there is one. Returns the record after it, or `None` if there is none.
    pub async fn unmute(&self, id: &UserId, subject: &Subject) -> Result<Option<User>> {
        let unmute = |user: &mut User, now| user.mutes.unmute(subject, now);
        self.change_mutes(id, |_| true, unmute).await
    }

    async fn change_mutes(
        &self,
        id: &UserId,
        check: impl Fn(&User) -> bool,
        change: impl Fn(&mut User, DateTime<Utc>),
    ) -> Result<Option<User>> {
        let edit = |user: &mut User, now| {
            user.mutes.forget(self.forgets_before(now));
            change(user, now);
        };
        let edited = self.edit(id, edit, check, Bound::Choices).await;
        // The next poll of this process sees it before the store's change notice arrives.
        self.polls.hear(&Poke::people([id.as_str()]));
        edited
    }
}
