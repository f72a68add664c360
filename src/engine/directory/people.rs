//! Creates, replaces and changes users' records, and their follows and mutes.
//!
//! A record replaces the earlier one, except for omitted preferences, `suppressed` and
//! `unsubscribed` (P7). Turning something on again emails no earlier events. Concurrent changes are
//! not lost: each write replaces exactly the record that was read, or reads it again.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::erasure::Eraser;
use super::input::{FollowInput, MuteInput, PreferencesChange, UserInput, UserPatch};
use crate::context::Context;
use crate::domain::user::check_choices;
use crate::domain::{
    Address, Brands, ChangeNotice, FollowKey, Invalid, Schedule, Start, Stop, Subject, User, UserId,
};
use crate::engine::Result;
use crate::engine::feed::cache::FeedCache;
use crate::store::{self, FollowChange, PeopleFilter};

/// How often a record is read again if other processes change it at the same moment. In each round
/// at least one of them succeeds.
const ROUNDS: usize = 100;

/// The number of records with one address that one read of the store returns.
const SHARED_PAGE: usize = 50;

/// The maximum number of such reads.
const SHARED_PAGES: usize = 4;

/// Changes users' records and follows.
pub struct PeopleService {
    pub(crate) context: Arc<Context>,
    /// The configured brands.
    pub brands: Brands,
    /// The schedule of users who chose no cadence, weekday, hour or time zone.
    pub schedule: Schedule,
    /// How long events may be emailed or shown in feeds. Mutes that ended longer ago are dropped.
    pub remembered: TimeDelta,
    /// Invalidates cached feeds of changed users.
    pub(crate) feed_cache: Arc<FeedCache>,
    /// Erases users, and knows where records with the ids of erased users begin.
    pub(crate) eraser: Eraser,
}

/// The limit of a change.
#[derive(Clone, Copy)]
enum Bound {
    /// The number of choices that a user can have.
    Choices,
    /// No limit, so that a user can always stop emails.
    None,
}

/// Rejects changes that add choices beyond the limit. A user above it can change existing ones.
fn grow_no_further(ids: &[UserId], stored: &[Option<User>], changed: &[User]) -> Result<()> {
    let sizes = |user: &User| (user.types.len(), user.mutes.len());
    let before: HashMap<&UserId, (usize, usize)> = ids
        .iter()
        .zip(stored)
        .map(|(id, user)| (id, user.as_ref().map_or((0, 0), sizes)))
        .collect();
    for user in changed {
        let (types, mutes) = before.get(&user.id).copied().unwrap_or_default();
        if user.types.len() > types && user.unsubscribed.is_none() {
            check_choices(user.types.len())?;
        }
        if user.mutes.len() > mutes {
            user.mutes.check()?;
        }
    }
    Ok(())
}

impl PeopleService {
    /// Checks that the configuration has the brand of a record and allows its routes.
    pub fn check(&self, input: &UserInput) -> std::result::Result<(), Invalid> {
        self.brands.check(input.brand.as_ref())?;
        PreferencesChange::from(input).check_routes(&self.context.policies)
    }

    /// Creates or replaces records. The last record of an id counts.
    pub async fn put(&self, inputs: Vec<UserInput>) -> Result<()> {
        let now = self.context.clock.now();
        let mut people: HashMap<UserId, UserInput> = HashMap::with_capacity(inputs.len());
        for input in inputs {
            self.check(&input)?;
            people.insert(input.check()?.clone(), input);
        }
        let mut ids: Vec<UserId> = people.keys().cloned().collect();
        ids.sort_unstable();
        self.change(
            ids,
            |id, before| {
                let user = people[id].user(id.clone(), before, &self.context.policies, now);
                Some(user.replacing(before, &self.schedule, &self.context.policies, now))
            },
            Bound::Choices,
        )
        .await
    }

    /// Replaces each record by what `change` returns for the stored one. Repeats this for records
    /// that another process changed meanwhile. `None` or an equal record changes nothing.
    async fn change(
        &self,
        mut ids: Vec<UserId>,
        change: impl Fn(&UserId, Option<&User>) -> Option<User>,
        bound: Bound,
    ) -> Result<()> {
        for _ in 0..ROUNDS {
            let stored = self.context.store.users(&ids).await?;
            let starts = self.starts(&ids, &stored).await?;
            let changed = ids.iter().zip(&stored).filter_map(|(id, before)| {
                let before = before.as_ref();
                let mut after = change(id, before).filter(|after| before != Some(after))?;
                if before.is_none() {
                    after.start = starts.get(id).copied();
                }
                Some(after)
            });
            let changed: Vec<User> = changed.collect();
            if changed.is_empty() {
                return Ok(());
            }
            if let Bound::Choices = bound {
                grow_no_further(&ids, &stored, &changed)?;
            }
            let put = self.context.store.put_users(&changed).await?;
            let missed = changed.into_iter().zip(put).filter(|(_, put)| !put);
            ids = missed.map(|(user, _)| user.id).collect();
            // The next poll of this process sees it before the store's change notice arrives.
            let begun: Vec<&str> = starts.keys().map(UserId::as_str).collect();
            self.feed_cache.apply(&ChangeNotice::people(begun));
            if ids.is_empty() {
                return Ok(());
            }
        }
        let why = format!("other processes changed them first, {ROUNDS} times");
        Err(store::Error::database("changing people", why).into())
    }

    /// Returns where the records begin that do not exist yet and had an earlier user.
    async fn starts(
        &self,
        ids: &[UserId],
        stored: &[Option<User>],
    ) -> Result<HashMap<UserId, Start>> {
        let pairs = ids.iter().zip(stored);
        let new = pairs.filter(|(_, user)| user.is_none());
        let new: Vec<UserId> = new.map(|(id, _)| id.clone()).collect();
        let starts = self.eraser.starts(&new).await?;
        let pairs = new.into_iter().zip(starts);
        Ok(pairs.filter_map(|(id, start)| Some((id, start?))).collect())
    }

    /// Returns the moment before which ended mutes are dropped.
    fn forgets_before(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now.checked_sub_signed(self.remembered)
            .unwrap_or(DateTime::<Utc>::MIN_UTC)
    }

    /// Returns the record of a user.
    pub async fn get(&self, id: &UserId) -> Result<Option<User>> {
        let found = self.context.store.users(std::slice::from_ref(id)).await?;
        Ok(found.into_iter().next().flatten())
    }

    /// Erases a user: see [`Eraser::erase`]. Returns whether anything was stored about them.
    pub async fn delete(&self, id: &UserId) -> Result<bool> {
        self.eraser.erase(id).await
    }

    /// Changes a user's preferences. Returns the record after it, or `None` if there is none.
    pub async fn prefer(&self, id: &UserId, change: PreferencesChange) -> Result<Option<User>> {
        let (default, policies) = (&self.schedule, &self.context.policies);
        change.check()?;
        change.check_optional(policies)?;
        change.check_routes(policies)?;
        let apply = |user: &mut User, _| {
            change.apply(user);
            if change.resubscribes(user, default, policies) {
                user.unsubscribed = None;
            }
        };
        self.edit(id, apply, |_| true, Bound::Choices).await
    }

    /// Changes some fields of a user's record. Returns it after that, or `None` if there is none.
    pub async fn patch(&self, id: &UserId, patch: UserPatch) -> Result<Option<User>> {
        let policies = &self.context.policies;
        patch.check(&self.brands, policies)?;
        let apply = |user: &mut User, now| patch.apply(user, policies, now);
        self.edit(id, apply, |_| true, Bound::Choices).await
    }

    /// Edits the record of a user if it passes `check` when it is written. Returns it after that,
    /// or `None` if there is none.
    async fn edit(
        &self,
        id: &UserId,
        edit: impl Fn(&mut User, DateTime<Utc>),
        check: impl Fn(&User) -> bool,
        bound: Bound,
    ) -> Result<Option<User>> {
        let now = self.context.clock.now();
        self.change(
            vec![id.clone()],
            |_, before| {
                let before = before.filter(|user| check(user))?;
                let mut user = before.clone();
                edit(&mut user, now);
                Some(user.replacing(Some(before), &self.schedule, &self.context.policies, now))
            },
            bound,
        )
        .await?;
        self.get(id).await
    }

    /// Returns a page of the records after this id, ascending by id, and the `after` of the next
    /// page if there may be one.
    pub async fn page(
        &self,
        after: Option<&UserId>,
        limit: usize,
    ) -> Result<(Vec<User>, Option<UserId>)> {
        let all = PeopleFilter::All;
        let mut ids = self.context.store.find_people(&all, after, limit).await?;
        let users = self.context.store.users(&ids).await?;
        let next = ids.pop().filter(|_| users.len() == limit);
        Ok((users.into_iter().flatten().collect(), next))
    }

    /// Returns the users whose record has this address, ascending by id, at most `limit`.
    pub async fn with_address(&self, address: &Address, limit: usize) -> Result<Vec<UserId>> {
        let at = PeopleFilter::Address(address);
        Ok(self.context.store.find_people(&at, None, limit).await?)
    }

    /// Returns the other users with this user's address whose emails `stop` would still stop.
    /// They are in ascending order of their ids, at most `limit`. Reads at most 200 records.
    pub async fn others_to_stop(
        &self,
        user: &User,
        stop: &Stop,
        limit: usize,
    ) -> Result<Vec<UserId>> {
        let Some(address) = &user.email else {
            return Ok(Vec::new());
        };
        let (default, policies) = (&self.schedule, &self.context.policies);
        // An unsubscribed user gets no email that a mute could stop.
        let needs_stop = |other: &User| {
            other.id != user.id
                && other.unsubscribed.is_none()
                && !stop.holds(other, false, default, policies)
        };
        let at = PeopleFilter::Address(address);
        let (mut others, mut after) = (Vec::new(), None);
        for _ in 0..SHARED_PAGES {
            let page = self
                .context
                .store
                .find_people(&at, after.as_ref(), SHARED_PAGE);
            let mut ids = page.await?;
            let users = self.context.store.users(&ids).await?.into_iter().flatten();
            others.extend(users.filter(&needs_stop).map(|other| other.id));
            let is_last = ids.len() < SHARED_PAGE;
            after = ids.pop();
            if is_last || others.len() >= limit {
                break;
            }
        }
        others.truncate(limit);
        Ok(others)
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
        self.stop(id, &Stop::All).await
    }

    /// Stops what a link stops, at the user's own wish. A repeated call changes nothing. Returns
    /// the record after it, or `None` if there is none.
    pub async fn stop(&self, id: &UserId, stop: &Stop) -> Result<Option<User>> {
        if let Stop::Follow(key) = stop {
            let follow = (key.clone(), id.clone());
            let unfollow = FollowChange::Unfollow;
            self.context
                .store
                .change_follows(unfollow, &[follow])
                .await?;
            return self.get(id).await;
        }
        self.stop_if(id, stop, |_| true).await
    }

    /// Does the same as [`Self::stop`], but changes nothing if the stored record has another
    /// address when the change is written. Never ends a follow, which belongs to one record.
    pub async fn stop_at(
        &self,
        id: &UserId,
        address: &Address,
        stop: &Stop,
    ) -> Result<Option<User>> {
        let address = address.folded();
        let has_address = |user: &User| {
            let email = user.email.as_ref().map(Address::folded);
            email.is_some_and(|email| email == address)
        };
        self.stop_if(id, stop, has_address).await
    }

    /// Stops something that is part of the record, if the record passes `check` when it is written.
    async fn stop_if(
        &self,
        id: &UserId,
        stop: &Stop,
        check: impl Fn(&User) -> bool,
    ) -> Result<Option<User>> {
        if let Stop::Subject(subject, title) = stop {
            let mute = MuteInput {
                until: None,
                title: title.clone(),
            };
            return self.mute_if(id, subject, mute, check).await;
        }
        let apply = |user: &mut User, now| user.stop(stop, &self.context.policies, now);
        self.edit(id, apply, check, Bound::None).await
    }

    /// Returns whether a user follows this key.
    pub async fn is_following(&self, id: &UserId, key: &FollowKey) -> Result<bool> {
        let follow = (key.clone(), id.clone());
        Ok(self.context.store.following(&[follow]).await? == [true])
    }

    /// Lets users follow keys. Existing follows stay.
    pub async fn follow(&self, follows: Vec<FollowInput>) -> Result<()> {
        let mut pairs: Vec<_> = follows
            .into_iter()
            .map(|follow| (follow.key, follow.user))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        let follow = FollowChange::Follow;
        Ok(self.context.store.change_follows(follow, &pairs).await?)
    }

    /// Ends follows. A missing one is no error.
    pub async fn unfollow(&self, follows: Vec<FollowInput>) -> Result<()> {
        let pairs: Vec<_> = follows
            .into_iter()
            .map(|follow| (follow.key, follow.user))
            .collect();
        let unfollow = FollowChange::Unfollow;
        Ok(self.context.store.change_follows(unfollow, &pairs).await?)
    }

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
    async fn mute_if(
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
        self.feed_cache.apply(&ChangeNotice::people([id.as_str()]));
        edited
    }
}
