//! Creates, replaces and changes users' records, and their follows and mutes.
//!
//! A record replaces the earlier one, except for omitted preferences, `suppressed` and
//! `unsubscribed` (P7). Turning something on again emails no earlier events. Concurrent changes are
//! not lost: each write replaces exactly the record that was read, or reads it again.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::input::{FollowInput, MuteInput, PreferencesChange, UserInput};
use crate::context::Context;
use crate::domain::user::check_choices;
use crate::domain::{
    Address, ChangeNotice, FollowKey, InvalidValue, Schedule, StopAction, Subject, User, UserId,
    distinct,
};
use crate::engine::Result;
use crate::engine::batches::BatchService;
use crate::engine::feed::cache::FeedCache;
use crate::store::{self, FollowChange, UserFilter};

/// How often a change is tried if other processes change the record at the same moment. In each
/// attempt at least one of them succeeds.
const MAX_ATTEMPTS: usize = 100;

/// Changes users' records and follows, and exports and erases users ([`super::personal`]).
pub struct UserService {
    pub(crate) context: Arc<Context>,
    /// Cancels the batches of erased users.
    pub(crate) batches: BatchService,
    /// Invalidates cached feeds of changed users.
    pub(crate) feed_cache: Arc<FeedCache>,
}

/// Checks a change of a record.
type Check = fn(Option<&User>, &User) -> Result<()>;

/// Rejects a change that adds choices beyond the limit. A user above it can change existing ones.
fn check_growth(before: Option<&User>, after: &User) -> Result<()> {
    let sizes = |user: &User| (user.types.len(), user.mutes.len());
    let (types, mutes) = before.map_or((0, 0), sizes);
    if after.types.len() > types && after.unsubscribed.is_none() {
        check_choices(after.types.len())?;
    }
    if after.mutes.len() > mutes {
        after.mutes.check()?;
    }
    Ok(())
}

impl UserService {
    /// Checks that the configuration has the brand of a record and allows its routes.
    pub fn check(&self, input: &UserInput) -> Result<(), InvalidValue> {
        input.check_configured(&self.context.config, &self.context.policies)
    }

    /// Creates or replaces records. The last record of an id counts.
    pub async fn put_users(&self, inputs: Vec<UserInput>) -> Result<()> {
        let (now, policies) = (self.context.clock.now(), &self.context.policies);
        let mut inputs_by_id: HashMap<UserId, UserInput> = HashMap::with_capacity(inputs.len());
        for input in inputs {
            self.check(&input)?;
            inputs_by_id.insert(input.check()?.clone(), input);
        }
        let mut ids: Vec<UserId> = inputs_by_id.keys().cloned().collect();
        ids.sort_unstable();
        let change = |id: &UserId, before: Option<&User>| {
            let user = inputs_by_id[id].to_record(id.clone(), before, policies, now);
            Some(user.into_replacement_of(before, self.schedule(), policies, now))
        };
        self.change(ids, check_growth, change).await
    }

    /// Returns the schedule of users who chose no cadence, weekday, hour or time zone.
    fn schedule(&self) -> &Schedule {
        &self.context.config.digest.schedule
    }

    /// Replaces each record by what `change` returns for the stored one, if `check` permits it.
    /// Repeats this for records that another process changed meanwhile. `None` or an equal record
    /// changes nothing.
    async fn change(
        &self,
        mut ids: Vec<UserId>,
        check: Check,
        change: impl Fn(&UserId, Option<&User>) -> Option<User>,
    ) -> Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.context.store.users(&ids).await?;
            let new = ids.iter().zip(&stored).filter(|(_, user)| user.is_none());
            let new_ids: Vec<UserId> = new.map(|(id, _)| id.clone()).collect();
            let starts = self.starts(&new_ids).await?;
            let mut changed = Vec::new();
            for (id, before) in ids.iter().zip(&stored) {
                let before = before.as_ref();
                let after = change(id, before).filter(|after| before != Some(after));
                let Some(mut after) = after else { continue };
                if before.is_none() {
                    after.start = starts.get(id).copied();
                }
                check(before, &after)?;
                changed.push(after);
            }
            if changed.is_empty() {
                return Ok(());
            }
            let is_stored = self.context.store.put_users(&changed).await?;
            let conflicts = changed.into_iter().zip(is_stored).filter(|(_, is_stored)| !is_stored);
            ids = conflicts.map(|(user, _)| user.id).collect();
            // The next poll of this process sees it before the store's change notice arrives.
            self.feed_cache.apply_notice(&ChangeNotice::users(starts.keys().map(UserId::as_str)));
            if ids.is_empty() {
                return Ok(());
            }
        }
        let why = format!("other processes changed them first, {MAX_ATTEMPTS} times");
        Err(store::Error::database("changing users", why).into())
    }

    /// Returns the record of a user.
    pub async fn user(&self, id: &UserId) -> Result<Option<User>> {
        Ok(self.context.store.users(std::slice::from_ref(id)).await?.pop().flatten())
    }

    /// Changes a user's preferences. Returns the record after it, or `None` if there is none.
    pub async fn change_preferences(
        &self,
        id: &UserId,
        change: PreferencesChange,
    ) -> Result<Option<User>> {
        let (default, policies) = (self.schedule(), &self.context.policies);
        change.check()?;
        change.check_optional(policies)?;
        change.check_routes(policies)?;
        let edit = |user: &mut User, _| {
            change.apply(user);
            if change.resubscribes(user, default, policies) {
                user.unsubscribed = None;
            }
        };
        self.edit(id, check_growth, edit).await
    }

    /// Changes some fields of a user's record. Returns it after that, or `None` if there is none.
    pub async fn patch(&self, id: &UserId, patch: UserInput) -> Result<Option<User>> {
        self.check(&patch)?;
        patch.check_patch()?;
        let edit = |user: &mut User, now| patch.apply(user, &self.context.policies, now);
        self.edit(id, check_growth, edit).await
    }

    /// Edits the record of a user. Returns it after that, or `None` if there is none.
    async fn edit(
        &self,
        id: &UserId,
        check: Check,
        edit: impl Fn(&mut User, DateTime<Utc>),
    ) -> Result<Option<User>> {
        let (now, policies) = (self.context.clock.now(), &self.context.policies);
        let change = |_: &UserId, before: Option<&User>| {
            let mut user = before?.clone();
            edit(&mut user, now);
            Some(user.into_replacement_of(before, self.schedule(), policies, now))
        };
        self.change(vec![id.clone()], check, change).await?;
        self.user(id).await
    }

    /// Returns a page of the records after this id, ascending by id, and the `after` of the next
    /// page if there may be one.
    pub async fn users_page(
        &self,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<(Vec<User>, Option<UserId>)> {
        let mut ids = self.context.store.find_users(&UserFilter::All, after, limit).await?;
        let users = self.context.store.users(&ids).await?;
        let next = ids.pop().filter(|_| users.len() == limit);
        Ok((users.into_iter().flatten().collect(), next))
    }

    /// Returns the users whose record has this address, ascending by id, at most `limit`.
    pub async fn find_by_address(&self, address: &Address, limit: usize) -> Result<Vec<UserId>> {
        let filter = UserFilter::Address(address);
        Ok(self.context.store.find_users(&filter, None, limit).await?)
    }

    /// Returns the keys after this one that a user follows, ascending.
    pub async fn follows(
        &self,
        id: &UserId,
        after: Option<&FollowKey>,
        limit: usize,
    ) -> Result<Vec<FollowKey>> {
        Ok(self.context.store.follows(id, after, limit).await?)
    }

    /// Unsubscribes a user from everything, at their own wish. A repeated call changes nothing.
    /// Returns the record after it, or `None` if there is none.
    pub async fn unsubscribe(&self, id: &UserId) -> Result<Option<User>> {
        self.stop_emails(id, &StopAction::All).await
    }

    /// Stops what a link stops, at the user's own wish. A repeated call changes nothing. Returns
    /// the record after it, or `None` if there is none.
    pub async fn stop_emails(&self, id: &UserId, stop: &StopAction) -> Result<Option<User>> {
        if let StopAction::Follow(key) = stop {
            let follows = [(key.clone(), id.clone())];
            self.context.store.change_follows(FollowChange::Unfollow, &follows).await?;
            return self.user(id).await;
        }
        let edit = |user: &mut User, now| user.apply_stop(stop, &self.context.policies, now);
        if let StopAction::Subject(..) = stop {
            return self.change_mutes(id, edit).await;
        }
        // A user can always stop emails, with any number of choices.
        self.edit(id, |_, _| Ok(()), edit).await
    }

    /// Returns whether a user follows this key.
    pub async fn is_following(&self, id: &UserId, key: &FollowKey) -> Result<bool> {
        Ok(self.context.store.following(&[(key.clone(), id.clone())]).await? == [true])
    }

    /// Lets users follow keys. Existing follows stay.
    pub async fn follow(&self, follows: Vec<FollowInput>) -> Result<()> {
        self.change_follows(FollowChange::Follow, follows).await
    }

    /// Ends follows. A missing one is no error.
    pub async fn unfollow(&self, follows: Vec<FollowInput>) -> Result<()> {
        self.change_follows(FollowChange::Unfollow, follows).await
    }

    async fn change_follows(&self, change: FollowChange, follows: Vec<FollowInput>) -> Result<()> {
        let pairs = distinct(follows.into_iter().map(|follow| (follow.key, follow.user)));
        Ok(self.context.store.change_follows(change, &pairs).await?)
    }

    /// Mutes a subject for a user, or changes for how long. The mute takes effect at once, also for
    /// emails that are about to be sent (P7). Returns the record after it, or `None` if there is
    /// none.
    pub async fn mute(
        &self,
        id: &UserId,
        subject: &Subject,
        input: MuteInput,
    ) -> Result<Option<User>> {
        let mute = |user: &mut User, now| {
            let MuteInput { until, title } = input.clone();
            user.mutes.mute(subject.clone(), until, title, now);
        };
        self.change_mutes(id, mute).await
    }

    /// Ends a mute, if there is one. Emails no earlier events ([`crate::domain::Mutes`]). Returns
    /// the record after it, or `None` if there is none.
    pub async fn unmute(&self, id: &UserId, subject: &Subject) -> Result<Option<User>> {
        let unmute = |user: &mut User, now| user.mutes.unmute(subject, now);
        self.change_mutes(id, unmute).await
    }

    /// Also drops the ended mutes whose events can no longer be emailed.
    async fn change_mutes(
        &self,
        id: &UserId,
        change: impl Fn(&mut User, DateTime<Utc>),
    ) -> Result<Option<User>> {
        let edit = |user: &mut User, now: DateTime<Utc>| {
            let oldest = now.checked_sub_signed(self.context.config.max_event_age());
            user.mutes.remove_ended(oldest.unwrap_or(DateTime::<Utc>::MIN_UTC));
            change(user, now);
        };
        let edited = self.edit(id, check_growth, edit).await;
        // The next poll of this process sees it before the store's change notice arrives.
        self.feed_cache.apply_notice(&ChangeNotice::users([id.as_str()]));
        edited
    }
}
