//! Sends emails to the provider, call by call, a few at a time.
//!
//! `sending` and the reference of the call are durable before the call (P4). Each call is settled
//! when it is answered, and leases are renewed meanwhile. A call starts at most [`FRESH`] after its
//! users and objects were checked (P6, P7): emails are built in small portions, and waiting emails
//! are built again.

use std::collections::{HashSet, VecDeque};

use chrono::{DateTime, Utc};
use futures::FutureExt;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::super::compose::{Mail, Room};
use super::super::gate::{FRESH, GateState};
use super::super::retry::{Attempt, RowDecision};
use super::super::tally::Concluded;
use super::{Sender, Turn};
use crate::domain::delivery::{Handover, Transition};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Suppression};
use crate::email::{Certainty, Message, Outcome, Permit};
use crate::engine::{Result, came_to, crash};
use crate::store::SuppressionChange;

/// The state that a sender keeps from one portion to the next.
struct Progress {
    /// When the leases of all rows were last renewed.
    renewed: Instant,
    /// Whether the rate limit has permitted a call that is not made yet.
    has_permit: bool,
}

impl Sender {
    /// Builds and sends pending rows. Rows that may not be sent now are deferred.
    ///
    /// Without a turn, while another task makes calls at the account, this builds the first
    /// portion, if its rows are alone. Later ones are built in their turn, so that their checks
    /// stay fresh.
    pub(super) async fn send(
        &self,
        mut rest: Vec<Delivery>,
        turn: Option<Turn<'_>>,
        is_alone: bool,
    ) -> Result<()> {
        let mut progress = Progress {
            renewed: Instant::now(),
            has_permit: false,
        };
        let mut takes_turn = turn.is_none() && !is_alone;
        let mut turn: Option<Turn<'_>> = turn;
        // The number of emails that `delivery.mails_per_hour` still allows.
        let mut allowed = 0;
        while !rest.is_empty() {
            self.gate.check_reports().await?;
            // Emails within that limit are only blocked by the shared state.
            let state = match allowed {
                0 => self.gate.before_chunk().await?,
                _ => self.gate.before_call().await?,
            };
            if state != GateState::Open {
                return self.put_back(rest.iter(), &state).await;
            }
            if takes_turn {
                // Waiting tasks go first, so that a long list of rows does not delay them.
                drop(turn.take());
                turn = Some(self.wait_for_turn(&rest).await);
            }
            takes_turn = true;
            if turn.is_some() {
                self.wait_for_rate(&mut progress).await;
            }
            let at = self.context.clock.now();
            let portion = self.gate.account.state().portion.unwrap_or(usize::MAX);
            let most = if allowed > 0 { allowed } else { usize::MAX };
            let portion = &rest[..rest.len().min(portion).min(most)];
            let built = self.compose.build(portion, at, Room::Bounded);
            let built = built.boxed().await?;
            // When the checks began. A single email is sent right after its checks, so their
            // duration does not matter.
            let checked = match portion.len() {
                1 => self.context.clock.now(),
                _ => at,
            };
            let ended = built
                .settlements
                .into_iter()
                .map(RowDecision::Settle)
                .collect();
            let concluded = self.ledger.conclude(portion, ended).await?;
            self.gate.watch(&concluded).await?;
            self.defer_misrouted(built.misrouted).await?;
            let (mails, mut unbuilt) = (built.mails, rest.split_off(built.rows));
            if turn.is_none() && !mails.is_empty() {
                let rows = mails.iter().map(|mail| &mail.row).chain(&unbuilt);
                turn = Some(self.wait_for_turn(rows).await);
                if self.is_stale(checked) {
                    // The wait was long. Only emails that are built again reflect later changes.
                    rest = mails.into_iter().map(|mail| mail.row).collect();
                    rest.append(&mut unbuilt);
                    takes_turn = false;
                    continue;
                }
            }
            if allowed == 0 && !mails.is_empty() {
                if let Some(later) = self.gate.pace(mails.len()).await? {
                    let why = GateState::ClosedUntil(later);
                    let rows = mails.iter().map(|mail| &mail.row).chain(&unbuilt);
                    return self.put_back(rows, &why).await;
                }
                if self.gate.settings.mails_per_hour > 0 {
                    allowed = mails.len();
                }
            }
            let all = mails.len();
            let calls = self.make_calls(mails, (at, checked), &unbuilt, &mut progress);
            rest = calls.boxed().await?;
            let sent = all - rest.len();
            self.gate.account.state().record_portion(sent, all);
            allowed = allowed.saturating_sub(sent);
            rest.append(&mut unbuilt);
        }
        drop(turn);
        self.gate.share_all().await
    }

    /// Makes the calls for emails that were built `at` that time, after they were `checked`.
    /// Returns the rows whose checks became stale before their call. The leases of `further` rows
    /// are renewed meanwhile.
    ///
    /// Each call runs in its own task. A future that is not polled would keep its place in the
    /// queue for a lock or a connection, and block others.
    async fn make_calls(
        &self,
        mails: Vec<Mail>,
        (at, checked): (DateTime<Utc>, DateTime<Utc>),
        further: &[Delivery],
        progress: &mut Progress,
    ) -> Result<Vec<Delivery>> {
        let mut calls = self.group(mails);
        let mut running = JoinSet::new();
        let (mut state, mut stale, mut failure) = (GateState::Open, false, None);
        loop {
            while let Some(next) = calls.front()
                && running.len() < self.width(next)
                && !stale
                && failure.is_none()
                && state == GateState::Open
            {
                self.wait_for_rate(progress).await;
                match self.gate.before_call().await {
                    Ok(found) => state = found,
                    Err(error) => failure = Some(error),
                }
                stale = self.is_stale(checked);
                if failure.is_none()
                    && state == GateState::Open
                    && !stale
                    && let Some(mut call) = calls.pop_front()
                {
                    let is_risky = self.is_careful() || self.gate.account.state().last_is_lost;
                    if call.len() > 1 && is_risky {
                        // The last outcome is unknown, or another server may be answering. Risk
                        // only one email.
                        let others = call.split_off(1);
                        calls.push_front(others);
                    }
                    progress.has_permit = false;
                    let sender = self.clone();
                    running.spawn(async move { sender.call(call, at, checked).await }.boxed());
                }
            }
            if progress.renewed.elapsed() >= self.ledger.third_of_lease() {
                let waiting = calls.iter().flatten().map(|mail| &mail.row).chain(further);
                let waiting: Vec<DeliveryId> = waiting.map(|row| row.id.clone()).collect();
                if let Err(error) = self.ledger.renew(&waiting).await {
                    failure = failure.or(Some(error));
                }
                progress.renewed = Instant::now();
            }
            // Let running calls finish, even if one fails.
            let until = progress.renewed + self.ledger.third_of_lease();
            let next = timeout_at(until, running.join_next()).await;
            match next.map(|next| next.map(came_to)) {
                Err(_) => {}
                Ok(None) => break,
                Ok(Some(Err(error))) => failure = failure.or(Some(error)),
                Ok(Some(Ok((concluded, alone)))) => {
                    calls.extend(alone.into_iter().map(|mail| vec![mail]));
                    if let Err(error) = self.gate.watch(&concluded).await {
                        failure = failure.or(Some(error));
                    }
                }
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let rest: Vec<Delivery> = calls.into_iter().flatten().map(|mail| mail.row).collect();
        if state == GateState::Open {
            return Ok(rest);
        }
        self.put_back(rest.iter(), &state).await?;
        Ok(Vec::new())
    }

    /// Waits until the rate limit permits a call, unless it already has.
    async fn wait_for_rate(&self, progress: &mut Progress) {
        if !progress.has_permit {
            self.gate.account.wait_for_rate().await;
            progress.has_permit = true;
        }
    }

    /// Waits for the right to make calls at the account, and renews the leases of these rows
    /// meanwhile. The right ends when the guard is dropped.
    async fn wait_for_turn<'a>(&self, rows: impl IntoIterator<Item = &'a Delivery>) -> Turn<'_> {
        let ids: Vec<DeliveryId> = rows.into_iter().map(|row| row.id.clone()).collect();
        self.ledger
            .holding(&ids, self.gate.account.turn.lock())
            .await
    }

    /// Returns whether emails with checks of that time must be built again. The other half of
    /// [`FRESH`] is for the call itself.
    fn is_stale(&self, checked: DateTime<Utc>) -> bool {
        self.context.clock.now() - checked > FRESH / 2
    }

    /// Returns whether the next call must contain a single email: the first call after a while, if
    /// a lost outcome would stay unknown.
    fn is_careful(&self) -> bool {
        let now = self.context.clock.now();
        self.retry.certainty == Certainty::Never && self.gate.account.state().is_unproven(now)
    }

    /// Returns how many calls may run at a time, including this one.
    fn width(&self, next: &[Mail]) -> usize {
        match next.len() > 1 && self.is_careful() {
            true => 1,
            false => self
                .gate
                .account
                .state()
                .width(self.gate.settings.in_flight),
        }
    }

    /// Groups the emails into calls as the mailer requires.
    fn group(&self, mails: Vec<Mail>) -> VecDeque<Vec<Mail>> {
        let messages: Vec<Message> = mails.iter().map(|mail| mail.message.clone()).collect();
        let mut mails: Vec<Option<Mail>> = mails.into_iter().map(Some).collect();
        let mut call = |places: Vec<usize>| -> Vec<Mail> {
            let mails = places.into_iter().filter_map(|place| mails[place].take());
            mails.collect()
        };
        let calls = self.mailer.calls(&messages).into_iter();
        calls.map(&mut call).collect()
    }

    /// Makes a call for the first time. Also returns the emails that must be sent alone.
    async fn call(
        &self,
        mails: Vec<Mail>,
        at: DateTime<Utc>,
        checked: DateTime<Utc>,
    ) -> Result<(Concluded, Vec<Mail>)> {
        let permit = self.gate.fresh_permit(self.gate.send_permit(at), checked);
        if permit.withheld().is_some() {
            // Marking the rows as `sending` would count an attempt. Stale emails are built again.
            return Ok((Concluded::default(), mails));
        }
        let reference = self.reference(&mails);
        let handover = |mail: &Mail| Handover {
            id: mail.row.id.clone(),
            call: reference.clone(),
            items: mail.items,
        };
        crash::point("before-sending");
        let ours = self
            .ledger
            .hand_over(mails.iter().map(handover), at)
            .await?;
        crash::point("after-sending");
        let sending = |mut mail: Mail| {
            mail.row.state = DeliveryState::Sending;
            mail.row.attempts.made += 1;
            mail.row.attempts.call = Some(reference.clone());
            mail.row.attempts.called_at = Some(at);
            mail
        };
        let ours = mails.into_iter().zip(ours).filter(|(_, ours)| *ours);
        let mails: Vec<Mail> = ours.map(|(mail, _)| sending(mail)).collect();
        let concluded = self
            .make(&reference, &mails, Attempt::First, &permit)
            .boxed()
            .await?;
        if concluded.alone.is_empty() {
            return Ok((concluded, Vec::new()));
        }
        // Their call was rejected. Record that, or a later worker would treat the outcome as
        // unknown.
        crash::point("before-recall");
        let alone: HashSet<usize> = concluded.alone.iter().copied().collect();
        let alone = mails
            .into_iter()
            .enumerate()
            .filter(|(place, _)| alone.contains(place));
        let mut alone: Vec<Mail> = alone.map(|(_, mail)| mail).collect();
        let recall = |mail: &Mail| Transition::Recall(mail.row.id.clone());
        let recalls = alone.iter().map(recall).collect();
        let mut recalled = self.ledger.advance(recalls).await?.into_iter();
        crash::point("after-recall");
        alone.retain(|_| recalled.next().unwrap_or(false));
        for mail in &mut alone {
            mail.row.state = DeliveryState::Pending;
        }
        Ok((concluded, alone))
    }

    /// Makes a call whose rows are `sending`, and writes the outcomes.
    pub(super) async fn make(
        &self,
        reference: &str,
        mails: &[Mail],
        attempt: Attempt,
        permit: &Permit,
    ) -> Result<Concluded> {
        if mails.is_empty() {
            return Ok(Concluded::default());
        }
        let messages: Vec<Message> = mails.iter().map(|mail| mail.message.clone()).collect();
        let ids: Vec<DeliveryId> = mails.iter().map(|mail| mail.row.id.clone()).collect();
        let call = async {
            if attempt == Attempt::Repeated {
                self.gate.account.wait_for_rate().await;
            }
            match self.gate.before_send(permit).await {
                Ok(()) => {
                    let began = Instant::now();
                    let outcomes = self.mailer.send(reference, &messages, permit).await;
                    let names = outcomes.iter().map(Outcome::as_str);
                    self.context.metrics.called(began.elapsed(), names);
                    (outcomes, None)
                }
                Err((reason, until)) => (vec![Outcome::Withheld { reason }; messages.len()], until),
            }
        };
        let (outcomes, until) = self.ledger.holding(&ids, call).await;
        crash::point("after-send");
        let is_accepted = |outcome: &Outcome| matches!(outcome, Outcome::Accepted { .. });
        let all_accepted = outcomes.iter().all(is_accepted);
        let (now, provider) = (self.context.clock.now(), self.mailer.name());
        let mut decisions = self.retry.decide(mails, outcomes, attempt, provider, now);
        for deferral in &mut decisions.deferrals {
            deferral.not_before = until.unwrap_or(deferral.not_before);
        }
        if decisions.begun {
            let retry_after = self.gate.settings.retry_after;
            let mut account = self.gate.account.state();
            // Without a known loss, a loss that becomes known later is newer than this answer.
            decisions.answered &= !all_accepted || account.last_is_lost;
            account.record_call(&decisions.summary, retry_after, now);
        }
        let stop = decisions.stop.take();
        let undeliverable = decisions.undeliverable.iter();
        let suppressions: Vec<Suppression> = undeliverable.map(|(_, one)| one.clone()).collect();
        let rows = mails.iter().map(|mail| &mail.row);
        let concluded = self.ledger.conclude(rows, decisions).await;
        if let Some(reason) = stop {
            self.gate.pause(reason).await?;
        }
        self.gate.share_wait().await?;
        if !suppressions.is_empty() {
            // If the process dies before this, the next email to the address is rejected again.
            let suppress = SuppressionChange::Suppress(&suppressions);
            self.context.store.change_suppressions(&suppress).await?;
        }
        concluded
    }

    /// Defers rows that may not be sent now.
    async fn put_back<'a>(
        &self,
        rows: impl Iterator<Item = &'a Delivery>,
        state: &GateState,
    ) -> Result<()> {
        let (reason, until) = state.deferral();
        let not_before = until.unwrap_or(self.context.clock.now());
        let wait = |row| RowDecision::defer(row, DeliveryState::Pending, not_before, &reason);
        self.ledger
            .conclude([], rows.map(wait).collect())
            .await
            .map(drop)
    }

    /// Returns the reference of a call: the account's prefix and a hash of its deliveries and their
    /// attempts. A new attempt has a new reference. A repeated call has its old one, from the
    /// ledger.
    fn reference(&self, mails: &[Mail]) -> String {
        let mut hash = Sha256::new();
        for mail in mails {
            hash.update(mail.row.id.as_str().as_bytes());
            hash.update([0]);
            hash.update(mail.row.attempts.made.to_be_bytes());
        }
        self.gate.account_prefix.clone() + &hex::encode(&hash.finalize()[..20])
    }
}
