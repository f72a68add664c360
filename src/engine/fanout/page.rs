//! Reads audiences, and builds the pages of a group: which users get which entries.
//!
//! A page of an audience contains users after a cursor, ascending, each once, so a cursor is one id
//! that survives a crash. A page of a group covers all users up to the merge bound: the lowest id
//! at which the read part of an audience ends. Each user gets one push. Start with
//! [`AudiencePage::cut`].

use std::collections::HashMap;
use std::iter::repeat_n;

use crate::domain::{
    Audience, Day, Defect, DefectiveStack, Fanout, FanoutCounts, FanoutProgress, FollowKey,
    Selector, UserId, distinct,
};
use crate::store::{Directory, PushOutcome, PushRequest, Result, UserFilter};

/// A fan-out and its position in its audience.
pub(super) struct AudienceScan {
    pub fanout: Fanout,
    /// Users that were read and not pushed yet, ascending.
    pub users: Vec<UserId>,
    /// The last user that was read, if there are more.
    read_until: Option<UserId>,
    /// Whether all users of the audience were read.
    pub is_read: bool,
    /// All users up to this one were pushed and counted.
    cursor: Option<UserId>,
    /// The counts since the last save.
    pub unsaved: FanoutCounts,
}

impl AudienceScan {
    pub(super) fn new(fanout: Fanout) -> Self {
        let cursor = fanout.progress.cursor.clone();
        Self {
            users: Vec::new(),
            read_until: cursor.clone(),
            is_read: false,
            cursor,
            unsaved: FanoutCounts::default(),
            fanout,
        }
    }

    /// Reads pages until one contains users, or until there are no more.
    pub(super) async fn fetch(&mut self, directory: &dyn Directory, limit: usize) -> Result<()> {
        while self.users.is_empty() && !self.is_read {
            let (audience, after) = (&self.fanout.audience, self.read_until.as_ref());
            (self.users, self.read_until) =
                read_audience(directory, audience, after, limit).await?;
            self.is_read = self.read_until.is_none();
        }
        Ok(())
    }

    fn take_until(&mut self, bound: Option<&UserId>) -> Vec<UserId> {
        let end = bound
            .map_or(self.users.len(), |bound| self.users.partition_point(|user| user <= bound));
        let rest = self.users.split_off(end);
        std::mem::replace(&mut self.users, rest)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_read && self.users.is_empty()
    }

    pub(super) fn progress(&self) -> FanoutProgress {
        FanoutProgress {
            // A finished fan-out needs no cursor. Equal progress records are saved together.
            cursor: self.cursor.clone().filter(|_| !self.is_finished()),
            counts: self.fanout.progress.counts,
            done: self.is_finished(),
        }
    }
}

/// The pushes between two saves of the cursors, for all users up to the merge bound.
pub(super) struct AudiencePage {
    pub pushes: PushRequest,
    /// For each list, in the order of its entries: the index of a scan, and the number of entries
    /// from it.
    pub origins: Vec<Vec<(usize, usize)>>,
    /// The number of users, by fan-out.
    served: Vec<u64>,
    /// The merge bound; `None` if every audience was read to its end.
    bound: Option<UserId>,
}

impl AudiencePage {
    /// Takes the users up to the merge bound from each fan-out, and merges them into one push per
    /// user.
    pub(super) fn cut(scans: &mut [AudienceScan]) -> Self {
        let unfinished = scans.iter().filter(|scan| !scan.is_read);
        let bound = unfinished.filter_map(|scan| scan.users.last()).min().cloned();
        let mut served = Vec::with_capacity(scans.len());
        let mut users_with_scan: Vec<(UserId, usize)> = Vec::new();
        for (index, scan) in scans.iter_mut().enumerate() {
            let users = scan.take_until(bound.as_ref());
            served.push(users.len() as u64);
            users_with_scan.extend(users.into_iter().map(|user| (user, index)));
        }
        // The sort is stable, so a user's fan-outs stay in order. It is fast, because the input
        // consists of ascending runs.
        users_with_scan.sort_by(|(user, _), (other, _)| user.cmp(other));
        let (mut pushes, mut origins) = (PushRequest::default(), Vec::new());
        // One list for each combination of fan-outs that share a user.
        let mut lists: HashMap<Vec<usize>, usize> = HashMap::new();
        for same_user in users_with_scan.chunk_by(|(user, _), (next, _)| user == next) {
            let scan_indices: Vec<usize> = same_user.iter().map(|(_, index)| *index).collect();
            let list = *lists.entry(scan_indices).or_insert_with_key(|indices| {
                let fanouts = || indices.iter().map(|index| (*index, &scans[*index].fanout));
                let events = fanouts().flat_map(|(_, fanout)| fanout.entries_per_user());
                pushes.lists.push(events.collect());
                let counts = fanouts().map(|(index, fanout)| (index, fanout.objects.len()));
                origins.push(counts.collect());
                pushes.lists.len() - 1
            });
            pushes.users.push((same_user[0].0.clone(), list));
        }
        Self { pushes, origins, served, bound }
    }

    /// Returns the documents that could not take entries.
    pub(super) fn bad_stacks(&self, day: Day, pushed: &PushOutcome) -> Vec<DefectiveStack> {
        let bad_stack = |(user_index, reason): &(usize, Defect)| DefectiveStack {
            user: self.pushes.users[*user_index].0.clone(),
            day,
            reason: *reason,
        };
        pushed.defects.iter().map(bad_stack).collect()
    }

    /// Adds the result of the push to each fan-out, and moves the cursors.
    pub(super) fn record_push(self, scans: &mut [AudienceScan], pushed: &PushOutcome) {
        let mut capped_entries = vec![0u64; scans.len()];
        for (user_index, entries) in &pushed.capped {
            let origins = &self.origins[self.pushes.users[*user_index].1];
            let scan_of_entry: Vec<usize> =
                origins.iter().flat_map(|(scan, count)| repeat_n(*scan, *count)).collect();
            entries.iter().for_each(|entry| capped_entries[scan_of_entry[*entry]] += 1);
        }
        for (index, scan) in scans.iter_mut().enumerate() {
            let (people, capped) = (self.served[index], capped_entries[index]);
            let entries = people * scan.fanout.objects.len() as u64;
            let counts = FanoutCounts { people, pushed: entries - capped, capped };
            scan.unsaved += counts;
            scan.fanout.progress.counts += counts;
            // `None` is below every bound.
            if self.bound > scan.cursor {
                scan.cursor = self.bound.clone();
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
    let (mut users, next) = match &audience.to {
        Selector::Users(named) => {
            let from = after.map_or(0, |after| named.partition_point(|user| user <= after));
            let until = named.len().min(from + limit);
            audience_part(named[from..until].to_vec(), until < named.len())
        }
        Selector::FollowersOf(keys) => followers(directory, keys, after, limit).await?,
        Selector::Near { point, km } => {
            let near = UserFilter::Near(*point, *km);
            let users = directory.find_users(&near, after, limit).await?;
            let has_more = users.len() == limit;
            audience_part(users, has_more)
        }
    };
    if !audience.except.is_empty() {
        users.retain(|user| !audience.excludes(user));
    }
    Ok((users, next))
}

fn audience_part(users: Vec<UserId>, has_more: bool) -> AudiencePart {
    let next = users.last().filter(|_| has_more).cloned();
    (users, next)
}

/// Returns the followers of any of these keys. Reads one page per key and merges them up to the
/// lowest last user of a page that is not its key's last.
async fn followers(
    directory: &dyn Directory,
    keys: &[FollowKey],
    after: Option<&UserId>,
    limit: usize,
) -> Result<AudiencePart> {
    let page =
        |key| async move { directory.find_users(&UserFilter::Follow(key), after, limit).await };
    let pages = futures::future::try_join_all(keys.iter().map(page)).await?;
    let unfinished = pages.iter().filter(|users| users.len() == limit);
    let bound = unfinished.filter_map(|users| users.last()).min().cloned();
    let mut users = distinct(pages.into_iter().flatten());
    users.retain(|user| bound.as_ref().is_none_or(|bound| user <= bound));
    Ok((users, bound))
}
