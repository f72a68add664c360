//! Fans accepted events out to their audiences.
//!
//! A page is pushed, and its events join batches, before the cursor moves past it. Both steps can
//! be repeated, so a crash loses and duplicates nothing (P1, P2). Fan-outs of one group share an
//! audience scan, and each user gets one push. While one page is saved, the next is pushed. Start
//! with [`FanOutService::drain`]; [`page`] reads and merges audiences.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use chrono::TimeDelta;

use super::batches::{BatchService, Join};
use super::digest::backlog::BacklogService;
use super::feed::cache::FeedCache;
use super::{Progress, crash};
use crate::config;
use crate::context::Context;
use crate::domain::batch::{AccumulatorId, BatchItem};
use crate::domain::{
    BatchPolicy, ChangeNotice, Day, Fanout, FanoutProgress, Id, ObjectId, Route, User, UserId,
};
use crate::store::{ClaimLimit, ClaimedFanouts, PushOutcome, Result};
use crate::wire::run_report::FannedOut;

mod linger;
mod page;

pub use linger::WaitingFanouts;
use page::{AudiencePage, AudienceScan};

/// The most small fan-outs that a claim returns in addition.
const MAX_SMALL: usize = 2_048;
/// With this number of groups in progress, no more fan-outs are claimed.
const MAX_GROUPS: usize = 4;

/// Fans accepted events out to their audiences.
pub struct FanOutService {
    pub(crate) context: Arc<Context>,
    /// Adds events to the batches of users who get them by batch or at once.
    pub batches: BatchService,
    /// Notes that a day outside the window has changed.
    pub backlog: BacklogService,
    pub(crate) feed_cache: Arc<FeedCache>,
    /// Large audiences that wait for further events.
    pub waiting_fanouts: WaitingFanouts,
}

/// Fan-outs that will form a group.
struct GroupDraft {
    day: Day,
    fanouts: Vec<Fanout>,
    /// The entries that every user may get, from fan-outs that are not small.
    shared_entries: usize,
    /// The further entries of each user that a small fan-out names.
    named_entries: HashMap<UserId, usize>,
}

/// A group: fan-outs that read their audiences together.
struct FanOutGroup {
    day: Day,
    scans: Vec<AudienceScan>,
}

/// A pushed page whose events have not joined batches and whose cursors are not saved.
struct PushedPage {
    group: FanOutGroup,
    page: AudiencePage,
    pushed: PushOutcome,
    users: Vec<Option<User>>,
}

impl GroupDraft {
    fn new(day: Day) -> Self {
        Self { day, fanouts: Vec::new(), shared_entries: 0, named_entries: HashMap::new() }
    }

    /// Returns whether the group stays within its limits with this fan-out: `max` fan-outs,
    /// `day_cap` entries for a user, and a page of named users.
    fn fits(&self, fanout: &Fanout, max: usize, settings: &config::FanoutSettings) -> bool {
        let named = named_users(fanout);
        let most_named_entries = if fanout.audience.is_small() {
            named.iter().filter_map(|user| self.named_entries.get(user)).max()
        } else {
            self.named_entries.values().max()
        };
        let earlier_entries = self.shared_entries + most_named_entries.unwrap_or(&0);
        self.fanouts.len() < max
            && earlier_entries + fanout.objects.len() <= settings.day_cap
            && self.named_entries.len() + named.len() <= settings.page
    }

    fn add(&mut self, fanout: Fanout) {
        let entries = fanout.objects.len();
        for user in named_users(&fanout) {
            *self.named_entries.entry(user.clone()).or_default() += entries;
        }
        self.shared_entries += if fanout.audience.is_small() { 0 } else { entries };
        self.fanouts.push(fanout);
    }
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

impl FanOutService {
    fn settings(&self) -> &config::FanoutSettings {
        &self.context.config.fanout
    }

    /// Steps until nothing is pending, or until `progress` asks to stop.
    pub async fn drain(&self, progress: &dyn Progress) -> Result<FannedOut> {
        self.drain_within(TimeDelta::zero(), progress).await
    }

    /// Like [`Self::drain`], but large audiences in quick succession wait up to `linger`: see
    /// [`linger`].
    pub async fn drain_within(
        &self,
        linger: TimeDelta,
        progress: &dyn Progress,
    ) -> Result<FannedOut> {
        let mut total = FannedOut::default();
        while !progress.should_stop()
            && let Some(done) = self.step(linger, progress).await?
        {
            total += done;
        }
        Ok(total)
    }

    /// Claims pending fan-outs and finishes them; `None` if none could be claimed. Large audiences
    /// take turns, one page each, with fan-outs that arrive meanwhile.
    async fn step(&self, linger: TimeDelta, progress: &dyn Progress) -> Result<Option<FannedOut>> {
        let mut done = FannedOut::default();
        let groups = self.next_groups(linger, &HashSet::new(), &mut done).await?;
        if groups.is_empty() && done.is_complete() {
            return Ok(None);
        }
        let mut queue = VecDeque::from(groups);
        let (mut pushed_page, mut claims_next): (Option<PushedPage>, _) = (None, false);
        loop {
            let claims = claims_next || queue.is_empty();
            let mut under_way = HashSet::new();
            if claims {
                let saving = pushed_page.as_ref().map(|pushed_page| &pushed_page.group);
                under_way.extend(queue.iter().chain(saving).flat_map(FanOutGroup::ids));
            }
            let push_next = async {
                if progress.should_stop() {
                    return Ok(None);
                }
                if claims {
                    // New fan-outs go first: a single page may finish them.
                    let groups = self.next_groups(linger, &under_way, &mut done).await?;
                    groups.into_iter().rev().for_each(|group| queue.push_front(group));
                }
                match queue.pop_front() {
                    Some(group) => Ok(Some(self.push(group).await?)),
                    None => Ok(None),
                }
            };
            let settle_previous = async {
                match pushed_page {
                    Some(pushed_page) => Ok(Some(self.settle(pushed_page, progress).await?)),
                    None => Ok(None),
                }
            };
            // Let both finish, even if one fails.
            let (next, previous): (Result<_>, Result<_>) =
                futures::join!(push_next, settle_previous);
            let (next, previous) = (next?, previous?);
            if next.is_none() && previous.is_none() {
                return Ok(Some(done));
            }
            pushed_page = next;
            claims_next = false;
            if let Some((group, counted)) = previous {
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
    async fn next_groups(
        &self,
        linger: TimeDelta,
        under_way: &HashSet<Id>,
        done: &mut FannedOut,
    ) -> Result<Vec<FanOutGroup>> {
        // Computed before the claim, so no later than the end of the leases.
        let lease_end = self.context.clock.now() + self.settings().lease;
        let (mut short, mut long) = self.claim(under_way, done).await?;
        let arrivals = long.iter().map(|group| group.scans.len()).sum();
        let (now, max) = (self.context.clock.now(), self.settings().merge);
        match self.waiting_fanouts.take_if_due(arrivals, linger, max, now) {
            None => {
                let arrived = long.into_iter().flat_map(FanOutGroup::fanouts);
                self.waiting_fanouts.delay(arrived, lease_end);
            }
            Some(waiting) if waiting.is_empty() => short.append(&mut long),
            Some(waiting) => {
                let arrived = long.into_iter().flat_map(FanOutGroup::fanouts);
                for draft in self.draft_groups(waiting.into_iter().chain(arrived), max) {
                    short.push(self.open_group(draft).await?);
                }
            }
        }
        Ok(short)
    }

    /// Claims pending fan-outs and reads the first users of each. Returns the groups with short
    /// audiences, which were read completely, and those with long ones. Unreadable fan-outs are
    /// counted. Short and long audiences are in different groups, so that short ones do not wait.
    ///
    /// A claim may also return a fan-out that this process is still working on, if its lease
    /// expired. It is skipped (`under_way`). If another process took it over meanwhile, saving it
    /// fails, and it is claimed again when the new lease expires.
    async fn claim(
        &self,
        under_way: &HashSet<Id>,
        done: &mut FannedOut,
    ) -> Result<(Vec<FanOutGroup>, Vec<FanOutGroup>)> {
        let now = self.context.clock.now();
        let lease = self.context.lease_until(now + self.settings().lease);
        let any = self.settings().merge;
        let limit = ClaimLimit { any, small: MAX_SMALL };
        let claimed = self.context.store.claim_fanouts(&lease, now, limit).await?;
        let ClaimedFanouts { mut fanouts, bad } = claimed;
        done.bad_fanouts.add(bad);
        fanouts.retain(|fanout| !under_way.contains(&fanout.id));
        // The store returns up to `any` fan-outs of any size, then small ones. If one of the first
        // `any` is large, only the rest are known to be small.
        let are_small = fanouts.iter().take(any).all(|fanout| fanout.audience.is_small());
        let small = fanouts.split_off(if are_small { 0 } else { any.min(fanouts.len()) });
        let (mut short, mut long) = (Vec::new(), Vec::new());
        for draft in self.draft_groups(fanouts, any) {
            let FanOutGroup { day, scans } = self.open_group(draft).await?;
            let (whole, partial): (Vec<_>, Vec<_>) =
                scans.into_iter().partition(|scan| scan.is_read);
            for (groups, scans) in [(&mut short, whole), (&mut long, partial)] {
                if !scans.is_empty() {
                    groups.push(FanOutGroup { day, scans });
                }
            }
        }
        for draft in self.draft_groups(small, MAX_SMALL) {
            short.push(self.open_group(draft).await?);
        }
        Ok((short, long))
    }

    /// Groups fan-outs of the same day, with at most `max` in a group.
    fn draft_groups(
        &self,
        fanouts: impl IntoIterator<Item = Fanout>,
        max: usize,
    ) -> Vec<GroupDraft> {
        let mut drafts: Vec<GroupDraft> = Vec::new();
        for fanout in fanouts {
            // A fan-out joins only its day's last group, so that a user's events stay in order.
            let last = drafts.iter_mut().rfind(|draft| draft.day == fanout.day);
            match last.filter(|draft| draft.fits(&fanout, max, self.settings())) {
                Some(draft) => draft.add(fanout),
                None => {
                    let mut draft = GroupDraft::new(fanout.day);
                    draft.add(fanout);
                    drafts.push(draft);
                }
            }
        }
        drafts
    }

    /// Forms a group and reads its first users.
    async fn open_group(&self, draft: GroupDraft) -> Result<FanOutGroup> {
        let mut scans: Vec<_> = draft.fanouts.into_iter().map(AudienceScan::new).collect();
        self.fetch_users(&mut scans).await?;
        Ok(FanOutGroup { day: draft.day, scans })
    }

    /// Pushes the next page of a group.
    async fn push(&self, mut group: FanOutGroup) -> Result<PushedPage> {
        let FanOutGroup { day, scans } = &mut group;
        let page = AudiencePage::cut(scans);
        let user_ids: Vec<UserId> =
            page.pushes.users.iter().map(|(user, _)| user.clone()).collect();
        // Their records and the next pages are read during the push.
        let (pushed, users, ()) = futures::try_join!(
            self.context.store.push(*day, self.settings().day_cap, &page.pushes),
            self.context.store.users(&user_ids),
            self.fetch_users(scans)
        )?;
        crash::point("after-push");
        // Polls of this process see the events before the store sends a change notice.
        self.feed_cache.apply_notice(&ChangeNotice::users(user_ids.iter().map(UserId::as_str)));
        // The note of a day outside the window may say that nothing is left to email.
        let now = self.context.clock.now();
        if *day < self.backlog.days_to_read(now).window.first() {
            self.backlog.reset_note(*day, now).await?;
        }
        Ok(PushedPage { group, page, pushed, users })
    }

    /// Adds the events of a pushed page to batches and saves the cursors. Returns the rest of the
    /// group.
    async fn settle(
        &self,
        pushed_page: PushedPage,
        progress: &dyn Progress,
    ) -> Result<(FanOutGroup, FannedOut)> {
        let PushedPage { mut group, page, pushed, users } = pushed_page;
        let joins = self.joins(&group.scans, &page, users);
        if !joins.is_empty() {
            self.batches.join(joins).await?;
            crash::point("after-join");
        }
        progress.advance(page.pushes.users.len() as u64);
        let mut done = FannedOut::default();
        done.bad_stacks.add(page.bad_stacks(group.day, &pushed));
        page.record_push(&mut group.scans, &pushed);
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
        for ((_, list), user) in page.pushes.users.iter().zip(users) {
            // A user without a record has no address.
            let Some(user) = user else { continue };
            for (scan_index, _) in &page.origins[*list] {
                let fanout = &scans[*scan_index].fanout;
                let Some(policy) = self.batch_policy(&user, fanout) else {
                    continue;
                };
                let items = items[*scan_index].get_or_insert_with(|| batch_items(fanout));
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

    /// Returns the user's batch policy for the event; `None` if it is not emailed by batch or at
    /// once.
    fn batch_policy(&self, user: &User, fanout: &Fanout) -> Option<BatchPolicy> {
        if user.start.is_some_and(|start| start.is_after(fanout.id)) {
            return None;
        }
        let policies = &self.context.policies;
        let policy = match user.route(&fanout.kind, fanout.at, policies) {
            Route::Immediate => BatchPolicy::IMMEDIATE,
            Route::Batch => user.batch_policy(&fanout.kind, policies),
            Route::Never | Route::Digest => return None,
        };
        let default_tz = self.context.config.digest.schedule.tz;
        let now = self.context.clock.now();
        let deferred_until = user.quiet_until([&fanout.kind], now, default_tz, policies);
        Some(BatchPolicy { deferred_until, ..policy })
    }

    /// Reads the next users of each unfinished audience whose users so far were all pushed. The
    /// audiences share the size of a page, but at least 500 users of each are read.
    async fn fetch_users(&self, scans: &mut [AudienceScan]) -> Result<()> {
        let limit = (self.settings().page / scans.len()).max(500);
        let empty = scans.iter_mut().filter(|scan| scan.users.is_empty() && !scan.is_read);
        futures::future::try_join_all(empty.map(|scan| scan.fetch(&*self.context.store, limit)))
            .await?;
        Ok(())
    }

    /// Saves all cursors. Removes fan-outs that are finished or that another process has taken
    /// over.
    async fn save(&self, scans: &mut Vec<AudienceScan>) -> Result<FannedOut> {
        let lease_end = self.context.clock.now() + self.settings().lease;
        let lease = self.context.lease_until(lease_end);
        let progress: Vec<(Id, FanoutProgress)> =
            scans.iter().map(|scan| (scan.fanout.id, scan.progress())).collect();
        let mut are_saved = self.context.store.save_fanouts(&lease, &progress).await?.into_iter();
        let mut done = FannedOut::default();
        scans.retain_mut(|scan| {
            let is_saved = are_saved.next().unwrap_or(false);
            if is_saved {
                done.counts += std::mem::take(&mut scan.unsaved);
                done.completed += u64::from(scan.is_finished());
            }
            is_saved && !scan.is_finished()
        });
        Ok(done)
    }
}

/// Returns the users that a small fan-out names; none for other fan-outs.
fn named_users(fanout: &Fanout) -> &[UserId] {
    if fanout.audience.is_small() { fanout.audience.named_users() } else { &[] }
}

/// Returns the events of a fan-out, one for each object, as they join batches.
fn batch_items(fanout: &Fanout) -> Arc<[BatchItem]> {
    let item = |object: &ObjectId| {
        let (kind, object) = (fanout.kind.clone(), object.clone());
        BatchItem { fanout_id: fanout.id, kind, object }
    };
    fanout.objects.iter().map(item).collect()
}
