//! Finds the users of a chunk whose digest is due, and counts why the others get none.

use chrono::{DateTime, Utc};

use super::{DueUser, Run};
use crate::domain::digest_content::{
    build_digest_content, digest_events, events_to_show, next_retry_at,
};
use crate::domain::user::UnmailableReason;
use crate::domain::{
    Cadence, Day, Delivery, DeliveryId, DeliveryState, EmailContent, EmailScope, Event, User,
    UserStacks,
};
use crate::engine::Result;
use crate::engine::feedback::suppressions::SuppressedAddresses;

impl Run<'_> {
    /// Returns the users whose digest is due and not empty, with its content. `users` are the
    /// records in the order of the stacks.
    pub(super) async fn find_due<'s>(
        &mut self,
        all_stacks: &'s [UserStacks],
        users: Vec<Option<User>>,
    ) -> Result<Vec<(DueUser<'s>, EmailContent)>> {
        let store = &*self.digests.context.store;
        let suppressed = SuppressedAddresses::load_for(store, users.iter().flatten()).await?;
        let (backlog, window_start) = (&self.digests.backlog, self.backlog_totals.window_start);
        let is_older = |day: Day| day < window_start;
        let user_backlogs = backlog
            .user_backlogs(all_stacks, &users, &suppressed, &mut self.event_facts, is_older)
            .await?;
        user_backlogs.iter().for_each(|user| self.backlog_totals.add(user));
        let mut candidates = Vec::new();
        for (stacks, user) in all_stacks.iter().zip(users) {
            candidates.extend(self.check_due(stacks, user, &suppressed));
        }
        let candidates = self.exclude_existing(candidates).await?;
        let mut due = self.with_content(candidates).await?;
        let report = &mut *self.report;
        let room = self.request.limit.map_or(usize::MAX, |limit| {
            limit.saturating_sub(report.due.users - report.due.busy) as usize
        });
        report.is_limited = due.len() > room;
        due.truncate(room);
        report.due.users += due.len() as u64;
        report.due.events += due.iter().map(|(_, content)| content.total).sum::<u64>();
        Ok(due)
    }

    /// Returns the user if their digest is due. Otherwise counts the reason, unless the user has no
    /// wanted event or another cadence than the requested one.
    fn check_due<'s>(
        &mut self,
        stacks: &'s UserStacks,
        user: Option<User>,
        suppressed: &SuppressedAddresses,
    ) -> Option<DueUser<'s>> {
        let (context, request) = (&self.digests.context, self.request);
        let counts = &mut self.report.users;
        let Some(user) = user else {
            let unknown = UnmailableReason::Unknown.as_str();
            *counts.unmailable.entry(unknown).or_default() += 1;
            return None;
        };
        let default = &context.config.digest.schedule;
        let (schedule, _) = user.digest_schedule(default);
        let wanted_in = |scope| digest_events(stacks, &user, scope, &context.policies);
        let mandatory = match suppressed.digest_schedule(&user, default) {
            Some((_, EmailScope::MandatoryOnly)) => wanted_in(EmailScope::MandatoryOnly),
            _ => Vec::new(),
        };
        let is_mandatory_only = !mandatory.is_empty();
        let wants_none = user.schedule(default).cadence == Cadence::Never && !is_mandatory_only;
        if !wants_none && request.cadence.is_some_and(|cadence| cadence != schedule.cadence) {
            return None;
        }
        let wanted = if is_mandatory_only { mandatory } else { wanted_in(EmailScope::All) };
        let oldest = wanted.iter().map(|pending| pending.at).min()?;
        if wants_none {
            let is_unsubscribed = user.unsubscribed.is_some();
            let count =
                if is_unsubscribed { &mut counts.unsubscribed } else { &mut counts.turned_off };
            *count += 1;
            return None;
        }
        counts.pending += 1;
        if let Err(why) = suppressed.check_mailable(&user)
            && !is_mandatory_only
        {
            *counts.unmailable.entry(why.as_str()).or_default() += 1;
            return None;
        }
        let due = schedule.last_due(self.at).filter(|due| request.ignore_hours || oldest < due.at);
        let Some(due) = due else {
            counts.waiting += 1;
            let next = schedule.next_due(self.at).map(|due| due.at);
            counts.next_due = counts.next_due.into_iter().chain(next).min();
            return None;
        };
        Some(DueUser {
            id: DeliveryId::digest(&user.id, schedule.cadence, &due.period),
            failed: None,
            user,
            stacks,
            cadence: schedule.cadence,
            period: due.period,
            wanted,
        })
    }

    /// Excludes users who have a row for this period, unless its retry is due. Counts the others.
    async fn exclude_existing<'s>(&mut self, due: Vec<DueUser<'s>>) -> Result<Vec<DueUser<'s>>> {
        let now = self.digests.context.clock.now();
        let ids: Vec<DeliveryId> = due.iter().map(|due_user| due_user.id.clone()).collect();
        let existing = self.digests.context.store.deliveries(&ids).await?;
        let mut remaining = Vec::with_capacity(due.len());
        for (mut due_user, row) in due.into_iter().zip(existing) {
            if let Some(row) = &row {
                let next_retry = next_retry_at(row);
                if !next_retry.is_some_and(|at| at <= now || self.request.ignore_hours) {
                    self.count_existing(row, next_retry);
                    continue;
                }
            }
            due_user.failed = row;
            remaining.push(due_user);
        }
        Ok(remaining)
    }

    /// Counts a user who has a row for the period. If it failed, `next_retry` is the time of its
    /// retry.
    fn count_existing(&mut self, row: &Delivery, next_retry: Option<DateTime<Utc>>) {
        let (request, report) = (self.request, &mut *self.report);
        let tally = &self.sender.ledger.tally;
        if row.state == DeliveryState::Failed {
            let users = &mut report.users;
            users.failed_already += 1;
            users.next_retry = users.next_retry.into_iter().chain(next_retry).min();
        } else if row.state.is_settled() {
            report.users.emailed_already += 1;
        } else if !request.dry_run && (row.lease.is_none() || request.patience.is_some()) {
            // The leaseholder may be dead, so a run that waits also finishes such rows.
            report.left_over += tally.record_started(std::slice::from_ref(row));
        } else {
            report.due.users += 1;
            report.due.busy += 1;
        }
    }

    /// Excludes users without any event that still applies, and returns the others with the content
    /// of their digests.
    async fn with_content<'s>(
        &mut self,
        due: Vec<DueUser<'s>>,
    ) -> Result<Vec<(DueUser<'s>, EmailContent)>> {
        let (event_facts, report) = (&mut self.event_facts, &mut *self.report);
        let context = &self.digests.context;
        let (policies, caps) = (&context.policies, context.config.digest.caps);
        let events =
            || due.iter().flat_map(|due_user| &due_user.wanted).map(|pending| pending.event);
        event_facts.load_objects_and_retractions(events()).await?;
        for event in events() {
            report.unknown_names.add_unknown(event, event_facts, policies);
        }
        // Only a dry run shows these emails. Sending builds them again, and loads the reasons then.
        let reasons = if self.on_digest.is_some() {
            let applies = |event: &Event| event_facts.applicable_object(event).is_some();
            let shown = |due_user: &'_ DueUser<'s>| events_to_show(&due_user.wanted, caps, applies);
            let shown: Vec<_> =
                due.iter().map(|due_user| (&due_user.user.id, shown(due_user))).collect();
            Some(self.sender.compose.load_reasons(&shown, event_facts).await?)
        } else {
            None
        };
        let mut with_content = Vec::with_capacity(due.len());
        for due_user in due {
            let event_data = |event: &Event| event_facts.event_data(event);
            let Some(mut content) =
                build_digest_content(&due_user.wanted, policies, caps, event_data)
            else {
                report.users.withdrawn += 1;
                continue;
            };
            if let Some(reasons) = &reasons {
                content.follow_reasons = reasons.followed_things(&due_user.user.id, &content);
            }
            with_content.push((due_user, content));
        }
        Ok(with_content)
    }
}
