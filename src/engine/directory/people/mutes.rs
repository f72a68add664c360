//! What people mute, and unmute.
//!
//! The rule (P7): to mute something is heard at once, by mails that are about to leave as well; to
//! unmute it mails nothing older ([`crate::domain::Mutes`]). What ended so long ago that nothing of
//! it can be mailed any more is forgotten with the next change.

use chrono::{DateTime, Utc};

use super::{Bound, MuteInput, PeopleService};
use crate::domain::{Poke, Subject, User, UserId};
use crate::engine::Result;

impl PeopleService {
    /// Mutes a subject for somebody, or changes for how long; their record as it is now, or nothing
    /// where there is none.
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

    /// Ends a mute; one that is not there is no error. Their record as it is now, or nothing where
    /// there is none.
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
        let now = self.context.clock.now();
        self.change(
            vec![id.clone()],
            |_, before| {
                let mut user = before.filter(|user| check(user))?.clone();
                user.mutes.forget(self.forgets_before(now));
                change(&mut user, now);
                Some(user)
            },
            Bound::Choices,
        )
        .await?;
        // Whoever polls this process next sees it, before the store tells.
        self.polls.hear(&Poke::people([id.as_str()]));
        self.get(id).await
    }
}
