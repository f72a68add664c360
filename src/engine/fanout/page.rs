//! Reads audiences, and builds the pages of a group: which users get which entries.
//!
//! A page of an audience contains users after a cursor, ascending, each once, so a cursor is one id
//! that survives a crash. A page of a group covers all users up to the merge bound: the lowest id
//! at which the read part of an audience ends. Each user gets one push. Start with [`AudiencePage::cut`].

use std::collections::HashMap;

use crate::domain::{
    Audience, BadStack, Day, Defect, FanOutCounts, FanOutProgress, Fanout, FollowKey, Selector,
    UserId, distinct,
};
use crate::store::{Directory, PeopleFilter, Pushed, Pushes, Result};

/// A fan-out and its position in its audience.
pub(super) struct AudienceScan {
    pub fanout: Fanout,
    /// Users that were read and not pushed yet, ascending.
    pub people: Vec<UserId>,
    /// Where the next page of the audience starts.
    next: Option<UserId>,
    pub exhausted: bool,
    /// All users up to this one were pushed and counted.
    cursor: Option<UserId>,
    /// The counts since the last save.
    pub unsaved: FanOutCounts,
}

impl AudienceScan {
    pub(super) fn new(fanout: Fanout) -> Self {
        let cursor = fanout.progress.cursor.clone();
        Self {
            people: Vec::new(),
            next: cursor.clone(),
            exhausted: false,
            cursor,
            unsaved: FanOutCounts::default(),
            fanout,
        }
    }

    /// Reads pages until one contains users, or until there are no more.
    pub(super) async fn fetch(&mut self, directory: &dyn Directory, limit: usize) -> Result<()> {
        while self.people.is_empty() && !self.exhausted {
            let (audience, after) = (&self.fanout.audience, self.next.as_ref());
            let (people, next) = read_audience(directory, audience, after, limit).await?;
            self.people = people;
            self.exhausted = next.is_none();
            self.next = next;
        }
        Ok(())
    }

    fn take_until(&mut self, bound: Option<&UserId>) -> Vec<UserId> {
        let end = bound
            .map_or(self.people.len(), |bound| self.people.partition_point(|user| user <= bound));
        let rest = self.people.split_off(end);
        std::mem::replace(&mut self.people, rest)
    }

    pub(super) fn finished(&self) -> bool {
        self.exhausted && self.people.is_empty()
    }

    pub(super) fn progress(&self) -> FanOutProgress {
        FanOutProgress {
            // A finished fan-out needs no cursor. Equal progress records are saved together.
            cursor: self.cursor.clone().filter(|_| !self.finished()),
            counts: self.fanout.progress.counts,
            done: self.finished(),
        }
    }
}

/// The pushes between two saves of the cursors, for all users up to the merge bound.
pub(super) struct AudiencePage {
    pub pushes: Pushes,
    /// For each list, the origin of its entries: (fan-out, number of entries).
    pub origins: Vec<Vec<(usize, usize)>>,
    /// The number of users, by fan-out.
    served: Vec<u64>,
    bound: Option<UserId>,
}

impl AudiencePage {
    /// Takes the users up to the merge bound from each fan-out, and merges them into one push per
    /// user.
    pub(super) fn cut(scans: &mut [AudienceScan]) -> Self {
        let unfinished = scans.iter().filter(|scan| !scan.exhausted);
        let ends = unfinished.filter_map(|scan| scan.people.last());
        let bound = ends.min().cloned();
        let (mut users, mut served) = (Vec::new(), Vec::with_capacity(scans.len()));
        for (index, scan) in scans.iter_mut().enumerate() {
            let people = scan.take_until(bound.as_ref());
            served.push(people.len() as u64);
            users.extend(people.into_iter().map(|user| (user, index)));
        }
        // The sort is stable, so a user's fan-outs stay in order. The input consists of ascending
        // runs.
        users.sort_by(|(user, _), (other, _)| user.cmp(other));
        let (mut pushes, mut origins) = (Pushes::default(), Vec::new());
        // One list for each combination of fan-outs that share a user.
        let mut lists: HashMap<Vec<usize>, usize> = HashMap::new();
        for chunk in users.chunk_by(|(user, _), (next, _)| user == next) {
            let of_user: Vec<usize> = chunk.iter().map(|(_, scan)| *scan).collect();
            let list = *lists.entry(of_user).or_insert_with_key(|of_user| {
                let fanouts = || of_user.iter().map(|scan| (*scan, &scans[*scan].fanout));
                let events = fanouts().flat_map(|(_, fanout)| fanout.events());
                pushes.lists.push(events.collect());
                let counts = fanouts().map(|(scan, fanout)| (scan, fanout.objects.len()));
                origins.push(counts.collect());
                pushes.lists.len() - 1
            });
            pushes.people.push((chunk[0].0.clone(), list));
        }
        Self { pushes, origins, served, bound }
    }

    /// Returns the documents that could not take entries.
    pub(super) fn bad_stacks(&self, day: Day, pushed: &Pushed) -> Vec<BadStack> {
        let bad = |(person, reason): &(usize, Defect)| BadStack {
            user: self.pushes.people[*person].0.clone(),
            day,
            reason: *reason,
        };
        pushed.bad.iter().map(bad).collect()
    }

    /// Adds the result of the push to each fan-out, and moves the cursors.
    pub(super) fn count(self, scans: &mut [AudienceScan], pushed: &Pushed) {
        let mut capped = vec![0u64; scans.len()];
        for (person, entries) in &pushed.capped {
            let list = self.pushes.people[*person].1;
            for entry in entries {
                let mut first = 0;
                for (scan, count) in &self.origins[list] {
                    if (first..first + count).contains(entry) {
                        capped[*scan] += 1;
                    }
                    first += count;
                }
            }
        }
        for (index, scan) in scans.iter_mut().enumerate() {
            let people = self.served[index];
            let all = people * scan.fanout.objects.len() as u64;
            let counts =
                FanOutCounts { people, pushed: all - capped[index], capped: capped[index] };
            scan.unsaved += counts;
            scan.fanout.progress.counts += counts;
            // Without a merge bound, every audience was read to its end.
            let bound = self.bound.as_ref();
            if let Some(bound) = bound.filter(|bound| scan.cursor.as_ref() < Some(bound)) {
                scan.cursor = Some(bound.clone());
            }
        }
    }
}

/// A part of an audience: users in ascending order, and where the next part starts; `None` if this
/// is the last. It may start beyond the last of the users, if later ones are excluded.
type AudiencePart = (Vec<UserId>, Option<UserId>);

/// Returns about `limit` users of the audience after `after`.
async fn read_audience(
    directory: &dyn Directory,
    audience: &Audience,
    after: Option<&UserId>,
    limit: usize,
) -> Result<AudiencePart> {
    let (mut people, next) = match &audience.to {
        Selector::Users(users) => {
            let from = after.map_or(0, |after| users.partition_point(|user| user <= after));
            let until = users.len().min(from + limit);
            full(users[from..until].to_vec(), until < users.len())
        }
        Selector::FollowersOf(keys) => followers(directory, keys, after, limit).await?,
        Selector::Near { point, km } => {
            let (point, km) = (*point, *km);
            let near = PeopleFilter::Near(point, km);
            let people = directory.find_people(&near, after, limit).await?;
            let more = people.len() == limit;
            full(people, more)
        }
    };
    if !audience.except.is_empty() {
        people.retain(|user| !audience.excludes(user));
    }
    Ok((people, next))
}

fn full(people: Vec<UserId>, more: bool) -> AudiencePart {
    let next = people.last().filter(|_| more).cloned();
    (people, next)
}

/// Returns the followers of any of these keys. Merges one page of each, up to the lowest end of a
/// page that is not its key's last.
async fn followers(
    directory: &dyn Directory,
    keys: &[FollowKey],
    after: Option<&UserId>,
    limit: usize,
) -> Result<AudiencePart> {
    let page = |key| async move {
        let following = PeopleFilter::Follow(key);
        directory.find_people(&following, after, limit).await
    };
    let pages = futures::future::try_join_all(keys.iter().map(page)).await?;
    let unfinished = pages.iter().filter(|people| people.len() == limit);
    let ends = unfinished.filter_map(|people| people.last());
    let known = ends.min().cloned();
    let mut people = distinct(pages.into_iter().flatten());
    people.retain(|user| known.as_ref().is_none_or(|end| user <= end));
    Ok((people, known))
}
