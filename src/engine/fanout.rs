//! Fans accepted events out to their audiences.
//!
//! A page is pushed, and its events join batches, before the cursor moves past it. Both steps can
//! be repeated, so a crash loses and duplicates nothing (P1, P2). Fan-outs of one group share an
//! audience scan, and each user gets one push. While one page is saved, the next is pushed. Start
//! with [`Fanouts::drain`]; [`page`] reads and merges audiences.
//! Long because claims, waits, pushes and saves of fan-outs depend on each other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use super::batches::{BatchService, Join};
use super::crash;
use super::digest::old_days::BacklogDays;
use super::feed::cache::FeedCache;
use crate::config;
use crate::context::Context;
use crate::domain::batch::{AccumulatorId, BatchItem};
use crate::domain::{
    BatchPolicy, ChangeNotice, Day, FanOutProgress, Fanout, Id, Route, User, UserId,
};
use crate::store::{AtMost, Claimed, Pushed, Result};
use crate::wire::run_report::FannedOut;

mod page;

use page::{AudiencePage, AudienceScan};

/// Fans accepted events out to their audiences.
pub struct Fanouts {
    pub(crate) context: Arc<Context>,
    /// Adds events to the batches of users who get them by batch or at once.
    pub batches: BatchService,
    /// Notes that a day outside the window has changed.
    pub backlog: BacklogDays,
    pub(crate) feed_cache: Arc<FeedCache>,
    /// Large audiences that wait for further events.
    pub lingering: Lingering,
}

impl Fanouts {
    fn settings(&self) -> &config::Fanout {
        &self.context.config.fanout
    }

    /// Claims pending fan-outs and finishes them; `None` if none could be claimed. Large audiences
    /// take turns, one page each, with fan-outs that arrive meanwhile. Those in quick succession
    /// wait up to `linger`.
    async fn step(
        &self,
        linger: TimeDelta,
        watcher: &dyn super::Watcher,
    ) -> Result<Option<FannedOut>> {
        let mut done = FannedOut::default();
        let none = HashSet::new();
        let mut queue: VecDeque<FanOutGroup> = self.next(linger, &none, &mut done).await?.into();
        if queue.is_empty() && done.is_whole() {
            return Ok(None);
        }
        let (mut pushed_page, mut claims_next): (Option<PushedPage>, _) = (None, false);
        loop {
            let claims = claims_next || queue.is_empty();
            let mut under_way = HashSet::new();
            if claims {
                let saving = pushed_page.as_ref().map(|pushed_page| &pushed_page.group);
                under_way.extend(queue.iter().chain(saving).flat_map(FanOutGroup::ids));
            }
            let ahead = async {
                if watcher.stopping() {
                    return Ok(None);
                }
                if claims {
                    // New fan-outs go first: a single page may finish them.
                    let came = self.next(linger, &under_way, &mut done).await?;
                    came.into_iter().rev().for_each(|group| queue.push_front(group));
                }
                match queue.pop_front() {
                    Some(group) => Ok(Some(self.push(group).await?)),
                    None => Ok(None),
                }
            };
            let behind = async {
                match pushed_page {
                    Some(pushed_page) => Ok(Some(self.settle(pushed_page, watcher).await?)),
                    None => Ok(None),
                }
            };
            // Let both finish, even if one fails.
            let (ahead, behind): (Result<_>, Result<_>) = futures::join!(ahead, behind);
            let (ahead, behind) = (ahead?, behind?);
            if ahead.is_none() && behind.is_none() {
                return Ok(Some(done));
            }
            pushed_page = ahead;
            claims_next = false;
            if let Some((group, counted)) = behind {
                done += counted;
                if !group.scans.is_empty() {
                    queue.push_back(group);
                    // Claim at most once per page.
                    claims_next = !claims && queue.len() < MAX_GROUPS;
                }
            }
        }
    }

    /// Returns the groups to process now: new ones with short audiences, and large audiences whose
    /// wait is over.
    async fn next(
        &self,
        linger: TimeDelta,
        under_way: &HashSet<Id>,
        done: &mut FannedOut,
    ) -> Result<Vec<FanOutGroup>> {
        // Computed before the claim, so no later than the end of the leases.
        let leased = self.context.clock.now() + self.settings().lease;
        let (mut short, mut long) = self.claim(under_way, done).await?;
        let came = long.iter().map(|group| group.scans.len()).sum();
        let (now, most) = (self.context.clock.now(), self.settings().merge);
        let begins = self.lingering.begins(came, linger, most, now);
        match begins {
            Some(held) if held.is_empty() => short.append(&mut long),
            Some(held) => {
                let came = long.into_iter().flat_map(FanOutGroup::fanouts);
                for (day, fanouts) in self.groups(held.into_iter().chain(came).collect(), most) {
                    short.push(self.open_group(day, fanouts).await?);
                }
            }
            None => {
                let came = long.into_iter().flat_map(FanOutGroup::fanouts);
                self.lingering.hold(came, leased);
            }
        }
        Ok(short)
    }

    /// Claims pending fan-outs and reads the first users of each. Returns the groups with short
    /// audiences, which the first page contains, and those with long ones. Unreadable fan-outs are
    /// counted.
    ///
    /// Fan-outs whose whole audience was read form groups of their own, so they do not wait for
    /// longer audiences. If the lease of a fan-out in progress here had expired, the claim renews
    /// it. If its save then fails because another process had taken it over, it waits until this
    /// lease expires.
    async fn claim(
        &self,
        under_way: &HashSet<Id>,
        done: &mut FannedOut,
    ) -> Result<(Vec<FanOutGroup>, Vec<FanOutGroup>)> {
        let now = self.context.clock.now();
        let lease = self.context.lease_until(now + self.settings().lease);
        let any = self.settings().merge;
        let most = AtMost { any, small: MAX_SMALL };
        let store = &self.context.store;
        let claimed = store.claim_fanouts(&lease, now, most);
        let Claimed { mut fanouts, bad } = claimed.await?;
        done.bad_fanouts.note(bad);
        let (mut short, mut long) = (Vec::new(), Vec::new());
        fanouts.retain(|fanout| !under_way.contains(&fanout.id));
        // Small fan-outs go after all older ones.
        let are_small = fanouts.iter().take(any).all(|of| of.audience.is_small());
        let small = fanouts.split_off(if are_small { 0 } else { any.min(fanouts.len()) });
        for (day, group) in self.groups(fanouts, any) {
            let FanOutGroup { day, scans } = self.open_group(day, group).await?;
            let (whole, more): (Vec<_>, Vec<_>) =
                scans.into_iter().partition(|scan| scan.exhausted);
            for (groups, scans) in [(&mut short, whole), (&mut long, more)] {
                if !scans.is_empty() {
                    groups.push(FanOutGroup { day, scans });
                }
            }
        }
        for (day, group) in self.groups(small, MAX_SMALL) {
            short.push(self.open_group(day, group).await?);
        }
        Ok((short, long))
    }

    /// Forms a group and reads its first users.
    async fn open_group(&self, day: Day, fanouts: Vec<Fanout>) -> Result<FanOutGroup> {
        let mut scans: Vec<AudienceScan> = fanouts.into_iter().map(AudienceScan::new).collect();
        self.fill(&mut scans).await?;
        Ok(FanOutGroup { day, scans })
    }

    /// Steps until nothing is pending, or until the watcher asks to stop.
    pub async fn drain(&self, watcher: &dyn super::Watcher) -> Result<FannedOut> {
        self.drain_within(TimeDelta::zero(), watcher).await
    }

    /// Like [`Self::drain`], but large audiences in quick succession wait up to `linger`: see
    /// [`Lingering`].
    pub async fn drain_within(
        &self,
        linger: TimeDelta,
        watcher: &dyn super::Watcher,
    ) -> Result<FannedOut> {
        let mut all = FannedOut::default();
        while !watcher.stopping()
            && let Some(done) = self.step(linger, watcher).await?
        {
            all += done;
        }
        Ok(all)
    }

    /// Groups fan-outs of the same day: at most `most` of them, with at most `day_cap` entries for
    /// a user. The small ones name at most a page of users.
    fn groups(&self, claimed: Vec<Fanout>, most: usize) -> Vec<(Day, Vec<Fanout>)> {
        let config::Fanout { day_cap, page, .. } = *self.settings();
        // The last two are the entries that every user may get, and those of each named user.
        type Group = (Day, Vec<Fanout>, usize, HashMap<UserId, usize>);
        let mut groups: Vec<Group> = Vec::new();
        for fanout in claimed {
            let entries = fanout.objects.len();
            let small = fanout.audience.is_small();
            let named = if small { fanout.audience.named() } else { &[] };
            // A fan-out joins only its day's last group, so that a user's events stay in order.
            let last = groups.iter().rposition(|(day, ..)| *day == fanout.day);
            let last = last.filter(|last| {
                let (_, all, shared, own) = &groups[*last];
                let busiest = match small {
                    true => named.iter().filter_map(|user| own.get(user)).max(),
                    false => own.values().max(),
                };
                let busiest = shared + busiest.unwrap_or(&0) + entries;
                all.len() < most && busiest <= day_cap && own.len() + named.len() <= page
            });
            let last = last.unwrap_or_else(|| {
                groups.push((fanout.day, Vec::new(), 0, HashMap::new()));
                groups.len() - 1
            });
            let (_, fanouts, shared, own) = &mut groups[last];
            for user in named {
                *own.entry(user.clone()).or_default() += entries;
            }
            *shared += if small { 0 } else { entries };
            fanouts.push(fanout);
        }
        let groups = groups.into_iter();
        groups.map(|(day, fanouts, ..)| (day, fanouts)).collect()
    }

    /// Pushes the next page of a group.
    async fn push(&self, mut group: FanOutGroup) -> Result<PushedPage> {
        let FanOutGroup { day, scans } = &mut group;
        let page = AudiencePage::cut(scans);
        let people = page.pushes.people.iter();
        let people: Vec<UserId> = people.map(|(user, _)| user.clone()).collect();
        // Their records and the next pages are read during the push.
        let (pushed, users, ()) = futures::try_join!(
            self.context.store.push(*day, self.settings().day_cap, &page.pushes),
            self.context.store.users(&people),
            self.fill(scans)
        )?;
        crash::point("after-push");
        // Polls of this process see the events before the store sends a change notice.
        self.feed_cache.apply(&ChangeNotice::people(people.iter().map(UserId::as_str)));
        // The note of a day outside the window may say that nothing is left to email.
        let now = self.context.clock.now();
        if *day < self.backlog.days_read(now).window.first() {
            self.backlog.disturb(*day, now).await?;
        }
        Ok(PushedPage { group, page, pushed, users })
    }

    /// Adds the events of a pushed page to batches and saves the cursors. Returns the rest of the
    /// group.
    async fn settle(
        &self,
        pushed_page: PushedPage,
        watcher: &dyn super::Watcher,
    ) -> Result<(FanOutGroup, FannedOut)> {
        let PushedPage { mut group, page, pushed, users } = pushed_page;
        let joins = self.joins(&group.scans, &page, users);
        if !joins.is_empty() {
            self.batches.join(joins).await?;
            crash::point("after-join");
        }
        watcher.advance(page.pushes.people.len() as u64);
        let mut done = FannedOut::default();
        done.bad_stacks.note(page.bad_stacks(group.day, &pushed));
        page.count(&mut group.scans, &pushed);
        done += self.save(&mut group.scans).await?;
        Ok((group, done))
    }

    /// Returns the users of the page who get its events by batch or at once, with their policies.
    fn joins(
        &self,
        scans: &[AudienceScan],
        page: &AudiencePage,
        users: Vec<Option<User>>,
    ) -> Vec<Join> {
        let mut items: Vec<Option<Arc<[BatchItem]>>> = vec![None; scans.len()];
        let mut joins = Vec::new();
        for ((_, list), user) in page.pushes.people.iter().zip(users) {
            // A user without a record has no address.
            let Some(user) = user else { continue };
            for (scan, _) in &page.origins[*list] {
                let fanout = &scans[*scan].fanout;
                let Some(policy) = self.batched(&user, fanout) else {
                    continue;
                };
                let items = items[*scan].get_or_insert_with(|| brings(fanout));
                joins.push(Join {
                    accumulator: AccumulatorId {
                        user: user.id.clone(),
                        key: fanout.batch_key(&self.context.policies),
                    },
                    items: Arc::clone(items),
                    policy,
                });
            }
        }
        joins
    }

    /// Returns the user's batch policy for the type; `None` if it is not emailed by batch or at
    /// once.
    fn batched(&self, user: &User, fanout: &Fanout) -> Option<BatchPolicy> {
        if user.start.is_some_and(|start| start.is_after(fanout.id)) {
            return None;
        }
        let policy = match user.route(&fanout.kind, fanout.at, &self.context.policies) {
            Route::Immediate => BatchPolicy::IMMEDIATE,
            Route::Batch => user.batch_policy(&fanout.kind, &self.context.policies),
            Route::Never | Route::Digest => return None,
        };
        let default = self.context.config.digest.schedule.tz;
        let now = self.context.clock.now();
        let held_until = user.quiet_until([&fanout.kind], now, default, &self.context.policies);
        Some(BatchPolicy { held_until, ..policy })
    }

    /// Reads a page for each audience that has no users left and has more. They share the size of a
    /// page, but each reads at least 500 users.
    async fn fill(&self, scans: &mut [AudienceScan]) -> Result<()> {
        let limit = (self.settings().page / scans.len()).max(500);
        let empty = scans.iter_mut().filter(|scan| scan.people.is_empty() && !scan.exhausted);
        futures::future::try_join_all(empty.map(|scan| scan.fetch(&*self.context.store, limit)))
            .await?;
        Ok(())
    }

    /// Saves all cursors. Removes fan-outs that are finished or that another process has taken
    /// over.
    async fn save(&self, scans: &mut Vec<AudienceScan>) -> Result<FannedOut> {
        let until = self.context.clock.now() + self.settings().lease;
        let lease = self.context.lease_until(until);
        let progress = scans.iter().map(|scan| (scan.fanout.id, scan.progress()));
        let progress: Vec<(Id, FanOutProgress)> = progress.collect();
        let store = &self.context.store;
        let saved = store.save_fanouts(&lease, &progress).await?;
        let mut done = FannedOut::default();
        let mut saved = saved.into_iter();
        scans.retain_mut(|scan| {
            let is_saved = saved.next().unwrap_or(false);
            if is_saved {
                done.counts += std::mem::take(&mut scan.unsaved);
                done.done += u64::from(scan.finished());
            }
            is_saved && !scan.finished()
        });
        Ok(done)
    }
}

/// The most small fan-outs that a claim takes in addition.
const MAX_SMALL: usize = 2_048;
/// With this number of groups in progress, no more fan-outs are claimed.
const MAX_GROUPS: usize = 4;

/// A group: fan-outs that read their audiences together.
struct FanOutGroup {
    day: Day,
    scans: Vec<AudienceScan>,
}

/// A pushed page whose events have not joined batches and whose cursors are not saved.
struct PushedPage {
    group: FanOutGroup,
    page: AudiencePage,
    pushed: Pushed,
    users: Vec<Option<User>>,
}

impl FanOutGroup {
    fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.scans.iter().map(|scan| scan.fanout.id)
    }

    /// Returns the fan-outs without the users that were read, which would use memory.
    fn fanouts(self) -> impl Iterator<Item = Fanout> {
        self.scans.into_iter().map(|scan| scan.fanout)
    }
}

fn brings(fanout: &Fanout) -> Arc<[BatchItem]> {
    let item = |o: &_| BatchItem { i: fanout.id, t: fanout.kind.clone(), o: Clone::clone(o) };
    fanout.objects.iter().map(item).collect()
}

/// The large audiences that a process delays, so that events in quick succession are pushed
/// together.
///
/// Updating a stack costs the server nearly as much for one event as for ten. After a large
/// audience has started, later ones wait for `fanout.linger` or until arrivals stop, and then start
/// together. The first never waits, nor do small audiences. Waiting fan-outs are leased; if their
/// process dies, they can be claimed when the leases expire.
#[derive(Debug, Default)]
pub struct Lingering(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// The waiting fan-outs, each with the end of its lease.
    fanouts: Vec<(Fanout, DateTime<Utc>)>,
    begun: Option<DateTime<Utc>>,
    /// The number of arrivals since `begun`, and the time of the last.
    came: usize,
    last: Option<DateTime<Utc>>,
}

/// Arrivals can count as stopped only after `fanout.linger` divided by this.
const QUIET: i32 = 5;

impl Lingering {
    /// Returns the waiting fan-outs, if they start now together with `came` new ones. `None` if
    /// they wait, or if there are none.
    ///
    /// They start if none has started within `linger`, if arrivals have stopped, or if there are
    /// `most` of them.
    fn begins(
        &self,
        came: usize,
        linger: TimeDelta,
        most: usize,
        now: DateTime<Utc>,
    ) -> Option<Vec<Fanout>> {
        let mut held = self.held();
        held.fanouts.retain(|(_, until)| now < *until);
        let all = held.fanouts.len() + came;
        if came > 0 {
            held.came += came;
            held.last = Some(now);
        }
        if all == 0 || (held.waits(linger, now) && all < most) {
            return None;
        }
        (held.begun, held.came, held.last) = (Some(now), 0, None);
        let all = std::mem::take(&mut held.fanouts).into_iter();
        Some(all.map(|(fanout, _)| fanout).collect())
    }

    /// Adds fan-outs to the waiting ones. They are leased until `until`.
    fn hold(&self, came: impl Iterator<Item = Fanout>, until: DateTime<Utc>) {
        self.held().fanouts.extend(came.map(|fanout| (fanout, until)));
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Returns whether further fan-outs may arrive soon.
    fn waits(&self, linger: TimeDelta, now: DateTime<Utc>) -> bool {
        // After the clock was set back, nothing waits.
        let Some(begun) = self.begun.filter(|begun| *begun <= now) else {
            return false;
        };
        let come_no_more = |last: DateTime<Utc>| {
            let came = i32::try_from(self.came).unwrap_or(i32::MAX);
            let apart = (last - begun) / came.max(1);
            now - last >= (apart * 2).max(linger / QUIET)
        };
        now - begun < linger && !self.last.is_some_and(come_no_more)
    }
}

#[cfg(test)]
#[path = "fanout/tests.rs"]
mod tests;
