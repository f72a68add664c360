//! Fans accepted events out to the people they concern.
//!
//! The rule (P1, P2): a page is pushed, and its events have joined the batches of whoever gets them
//! so, before the cursor moves past it; both are harmless again, so a crash at any point loses
//! nothing and doubles nothing. Fan-outs claimed together walk their audiences together, in the
//! order of user ids: what goes to the same person is one push. Nobody waits for a longer audience
//! than their own for more than a few pages. A page is cut in [`page`].

use std::collections::VecDeque;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::batches::{Join, Joiner};
use super::crash;
use super::owed::OwedDays;
use super::polls::Polls;
use crate::clock::Clock;
use crate::domain::batch::{AccumulatorId, Item};
use crate::domain::{BatchPolicy, Day, Fanout, Id, Poke, Policies, Progress, Route, User, UserId};
use crate::store::{Claimed, Directory, Journal, Result, Stacks};
use crate::wire::round::FannedOut;

mod page;

use page::{Page, Walk};

/// How the work is cut.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The most entries of a person's day (`fanout.day_cap`); what does not fit is counted.
    pub day_cap: usize,
    /// People between two saves of the cursors.
    pub page: usize,
    /// Fan-outs done together.
    pub merge: usize,
    /// How long a fan-out is held after it was claimed, or its cursor saved.
    pub lease: TimeDelta,
}

/// Fans accepted events out to everybody they concern.
pub struct Fanouts {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) stacks: Arc<dyn Stacks>,
    pub(crate) directory: Arc<dyn Directory>,
    /// Lets events join the batches of those who get them so.
    pub joiner: Joiner,
    pub(crate) policies: Arc<Policies>,
    pub(crate) clock: Arc<dyn Clock>,
    /// This process, as its leases name it.
    pub owner: String,
    /// Told when a day that has left the window is written to.
    pub owed: OwedDays,
    pub(crate) polls: Arc<Polls>,
    /// The sizes of pages and groups, and how long leases last.
    pub settings: Settings,
}

impl Fanouts {
    /// Claims what is pending and finishes it; `None` if there was nothing to claim. What takes
    /// longer takes turns, a page each, with what came meanwhile.
    pub async fn step(&self, progress: &dyn super::Watcher) -> Result<Option<FannedOut>> {
        let mut done = FannedOut::default();
        let mut lanes: VecDeque<Lane> = self.claim(&mut done).await?.into();
        if lanes.is_empty() && done.is_whole() {
            return Ok(None);
        }
        while !progress.stopping()
            && let Some(mut lane) = lanes.pop_front()
        {
            done += self.fan_out(&mut lane, progress).await?;
            if !lane.walks.is_empty() {
                lanes.push_back(lane);
                if lanes.len() < LANES {
                    // They come first: their first page may be all there is of them.
                    let came = self.claim(&mut done).await?;
                    came.into_iter()
                        .rev()
                        .for_each(|lane| lanes.push_front(lane));
                }
            }
        }
        Ok(Some(done))
    }

    /// Claims what is pending and finds its first people. Whom that is all of go by themselves:
    /// they wait for nobody's longer audience. What cannot be read is noted.
    async fn claim(&self, done: &mut FannedOut) -> Result<Vec<Lane>> {
        let now = self.clock.now();
        let Claimed { fanouts, bad } = self
            .journal
            .claim_fanouts(
                &self.owner,
                now,
                now + self.settings.lease,
                self.settings.merge,
            )
            .await?;
        done.bad_fanouts.note(bad);
        let (mut short, mut long) = (Vec::new(), Vec::new());
        for (day, group) in self.groups(fanouts) {
            let mut walks: Vec<Walk> = group.into_iter().map(Walk::new).collect();
            let limit = (self.settings.page / walks.len()).max(500);
            self.fill(&mut walks, limit).await?;
            let (whole, more): (Vec<_>, Vec<_>) =
                walks.into_iter().partition(|walk| walk.exhausted);
            for (lanes, walks) in [(&mut short, whole), (&mut long, more)] {
                if !walks.is_empty() {
                    lanes.push(Lane { day, walks });
                }
            }
        }
        short.append(&mut long);
        Ok(short)
    }

    /// Steps until nothing is left, or until somebody wants it to stop.
    pub async fn drain(&self, progress: &dyn super::Watcher) -> Result<FannedOut> {
        let mut all = FannedOut::default();
        while !progress.stopping()
            && let Some(done) = self.step(progress).await?
        {
            all += done;
        }
        Ok(all)
    }

    /// What can be fanned out together: the same day, and no more entries a person than a day can
    /// take.
    fn groups(&self, claimed: Vec<Fanout>) -> Vec<(Day, Vec<Fanout>)> {
        let mut groups: Vec<(Day, Vec<Fanout>, usize)> = Vec::new();
        for fanout in claimed {
            let entries = fanout.objects.len();
            let fits = |group: &&mut (Day, Vec<Fanout>, usize)| {
                group.0 == fanout.day && group.2 + entries <= self.settings.day_cap
            };
            match groups.iter_mut().rev().find(fits) {
                Some(group) => {
                    group.2 += entries;
                    group.1.push(fanout);
                }
                None => groups.push((fanout.day, vec![fanout], entries)),
            }
        }
        groups
            .into_iter()
            .map(|(day, fanouts, _)| (day, fanouts))
            .collect()
    }

    /// Walks the audiences of a lane's fan-outs side by side, for a page.
    async fn fan_out(&self, lane: &mut Lane, progress: &dyn super::Watcher) -> Result<FannedOut> {
        let Lane { day, walks } = lane;
        let limit = (self.settings.page / walks.len()).max(500);
        let page = Page::cut(walks);
        let people = page.pushes.people.iter();
        let people: Vec<UserId> = people.map(|(user, _)| user.clone()).collect();
        // Their records and the next pages are fetched while this one is pushed.
        let (pushed, users, ()) = futures::try_join!(
            self.stacks.push(*day, self.settings.day_cap, &page.pushes),
            self.directory.users(&people),
            self.fill(walks, limit)
        )?;
        crash::point("after-push");
        // Whoever polls this process next sees it, before the store tells.
        self.polls
            .hear(&Poke::people(people.iter().map(UserId::as_str)));
        // Of a day that has left the window it may be noted that nobody is owed anything.
        let now = self.clock.now();
        if *day < self.owed.days_read(now).window.first() {
            self.owed.disturb(*day, now).await?;
        }
        let joins = self.joins(walks, &page, users);
        if !joins.is_empty() {
            self.joiner.join(joins).await?;
            crash::point("after-join");
        }
        progress.advance(page.pushes.people.len() as u64);
        let mut done = FannedOut::default();
        done.bad_stacks.note(page.bad_stacks(*day, &pushed));
        page.count(walks, &pushed);
        done += self.save(walks).await?;
        Ok(done)
    }

    /// Who of this page gets its events in batches, or each at once, and how.
    fn joins(&self, walks: &[Walk], page: &Page, users: Vec<Option<User>>) -> Vec<Join> {
        let mut items: Vec<Option<Arc<[Item]>>> = vec![None; walks.len()];
        let mut joins = Vec::new();
        for ((_, list), user) in page.pushes.people.iter().zip(users) {
            // Of whom nothing is known, no address is known either.
            let Some(user) = user else { continue };
            for (walk, _) in &page.origins[*list] {
                let fanout = &walks[*walk].fanout;
                let Some(policy) = self.batched(&user, fanout) else {
                    continue;
                };
                let items = items[*walk].get_or_insert_with(|| brings(fanout));
                joins.push(Join {
                    accumulator: AccumulatorId {
                        user: user.id.clone(),
                        key: fanout.batch_key(&self.policies),
                    },
                    items: Arc::clone(items),
                    policy,
                });
            }
        }
        joins
    }

    /// How a person's batches of this fan-out's type gather, if they get it so.
    fn batched(&self, user: &User, fanout: &Fanout) -> Option<BatchPolicy> {
        match user.route(&fanout.kind, fanout.at, &self.policies) {
            Route::Immediate => Some(BatchPolicy::IMMEDIATE),
            Route::Batch => Some(user.batch_policy(&fanout.kind, &self.policies)),
            Route::Never | Route::Digest => None,
        }
    }

    /// Fetches a page for every walk that has run out of people and has more.
    async fn fill(&self, walks: &mut [Walk], limit: usize) -> Result<()> {
        let hungry = walks
            .iter_mut()
            .filter(|walk| walk.people.is_empty() && !walk.exhausted);
        futures::future::try_join_all(hungry.map(|walk| walk.fetch(&self.directory, limit)))
            .await?;
        Ok(())
    }

    /// Saves all cursors; lets go of walks that are finished, or that somebody else has taken over.
    async fn save(&self, walks: &mut Vec<Walk>) -> Result<FannedOut> {
        let until: DateTime<Utc> = self.clock.now() + self.settings.lease;
        let progress: Vec<(Id, Progress)> = walks
            .iter()
            .map(|walk| (walk.fanout.id, walk.progress()))
            .collect();
        let saved = self
            .journal
            .save_fanouts(&self.owner, until, &progress)
            .await?;
        let mut done = FannedOut::default();
        let mut held = saved.into_iter();
        walks.retain_mut(|walk| {
            let held = held.next().unwrap_or(false);
            if held {
                done.counts += std::mem::take(&mut walk.unsaved);
                done.done += u64::from(walk.finished());
            }
            held && !walk.finished()
        });
        Ok(done)
    }
}

/// So many groups take turns at most; who comes later waits until one of them is finished.
const LANES: usize = 4;

/// Fan-outs that walk their audiences together.
struct Lane {
    day: Day,
    walks: Vec<Walk>,
}

/// What a fan-out brings to a batch.
fn brings(fanout: &Fanout) -> Arc<[Item]> {
    let item = |o: &_| Item {
        i: fanout.id,
        t: fanout.kind.clone(),
        o: Clone::clone(o),
    };
    fanout.objects.iter().map(item).collect()
}
