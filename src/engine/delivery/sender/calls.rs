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

use super::super::compose::{Mail, Room, Spread};
use super::super::gate::{FRESH, GateState, Held, Turn};
use super::super::retry::{Attempt, Verdicts, deferral};
use super::super::tally::Concluded;
use super::Sender;
use crate::domain::delivery::{Handover, Transition};
use crate::domain::{Delivery, DeliveryId, DeliveryState};
use crate::email::{Certainty, Leave, Message, Outcome};
use crate::engine::{Result, came_to, crash};

/// Emails that were checked and built together.
struct Portion {
    mails: Vec<Mail>,
    /// When they were built; the time that they show.
    at: DateTime<Utc>,
    /// When their checks began. For a single email, when they ended.
    checked: DateTime<Utc>,
}

/// The state that a sender keeps from one portion to the next.
struct InHand {
    turn: Option<Turn>,
    /// When the leases of all rows were last renewed.
    held: Instant,
    /// Whether the rate limit has permitted a call that is not made yet.
    permitted: bool,
}

impl Sender {
    /// Builds and sends pending rows. Rows that may not be sent now are deferred.
    pub(super) async fn send(
        &self,
        mut rest: Vec<Delivery>,
        spread: Spread,
        turn: Option<Turn>,
    ) -> Result<()> {
        let mut hand = InHand {
            turn,
            held: Instant::now(),
            permitted: false,
        };
        // The number of emails that `delivery.mails_per_hour` still allows.
        let (mut allowed, mut is_further) = (0, false);
        while !rest.is_empty() {
            self.gate.heed_reports().await?;
            // Emails within that limit are only blocked by the shared state.
            let state = match allowed {
                0 => self.gate.before_chunk().await?,
                _ => self.gate.before_call().await?,
            };
            if state != GateState::Open {
                return self.put_back(rest.iter(), &state).await;
            }
            if is_further {
                // Waiting tasks go first, so that a long list of rows does not delay them.
                hand.turn = None;
                hand.turn = Some(self.turn_of(&rest).await);
            }
            is_further = true;
            if hand.turn.is_some() {
                // Wait before the emails are built, so that their checks stay fresh.
                self.permit(&mut hand).await;
            }
            let at = self.context.clock.now();
            let reach = self.gate.pacer.reach();
            let most = if allowed > 0 {
                reach.min(allowed)
            } else {
                reach
            };
            let portion = &rest[..rest.len().min(most)];
            let built = self
                .compose
                .build(portion, spread, at, Room::Bounded)
                .boxed()
                .await?;
            // A single email is sent right after its checks, so their duration does not matter.
            let checked = match portion.len() {
                1 => self.context.clock.now(),
                _ => at,
            };
            let rows: Vec<&Delivery> = portion.iter().collect();
            let ended = Verdicts {
                settlements: built.settlements,
                ..Verdicts::default()
            };
            let concluded = self.ledger.conclude(&rows, ended).await?;
            self.gate.watch(&concluded).await?;
            self.put_aside(built.strays).await?;
            let mails = built.mails;
            let mut unbuilt = rest.split_off(built.rows);
            if hand.turn.is_none() && !mails.is_empty() {
                let ours: Vec<&Delivery> = mails.iter().map(|mail| &mail.row).collect();
                hand.turn = Some(self.turn_of(ours.into_iter().chain(&unbuilt)).await);
                if self.is_stale(checked) {
                    // The wait was long. Only emails that are built again reflect later changes.
                    rest = mails.into_iter().map(|mail| mail.row).collect();
                    rest.append(&mut unbuilt);
                    rest = self.ledger.still_ours(rest).await?;
                    is_further = false;
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
            let portion = Portion { mails, at, checked };
            rest = self
                .make_calls(portion, &unbuilt, &mut hand)
                .boxed()
                .await?;
            let left = all - rest.len();
            match rest.is_empty() {
                true => self.gate.pacer.reached(all),
                false => self.gate.pacer.fell_short(left, all),
            }
            allowed = allowed.saturating_sub(left);
            rest.append(&mut unbuilt);
        }
        self.gate.tell_all().await
    }

    /// Makes the calls for these emails. Returns the rows whose checks became stale before their
    /// call. The leases of `further` rows are renewed meanwhile.
    ///
    /// Each call runs in its own task. A future that is not polled would keep its place in the
    /// queue for a lock or a connection, and block others. The turn ends when the last call is
    /// answered, if all emails were accepted and no earlier outcome is unknown. Otherwise it ends
    /// when all outcomes are written.
    async fn make_calls(
        &self,
        portion: Portion,
        further: &[Delivery],
        hand: &mut InHand,
    ) -> Result<Vec<Delivery>> {
        let Portion { mails, at, checked } = portion;
        let mut calls = self.cut(mails);
        let mut flying = JoinSet::new();
        let (mut state, mut stale, mut failure) = (GateState::Open, false, None);
        loop {
            while let Some(next) = calls.front()
                && flying.len() < self.width(next)
                && !stale
                && failure.is_none()
                && state == GateState::Open
            {
                self.permit(hand).await;
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
                    if call.len() > 1 && (self.gate.pacer.probes() || self.is_careful()) {
                        // The last outcome is unknown, or another server may be answering. Risk
                        // only one email.
                        let others = call.split_off(1);
                        calls.push_front(others);
                    }
                    hand.permitted = false;
                    let (sender, turn) = (self.clone(), hand.turn.clone());
                    let call = async move { sender.call(call, (at, checked), turn).await };
                    flying.spawn(call.boxed());
                }
            }
            if calls.is_empty() && further.is_empty() {
                // Each call holds a clone of the turn.
                hand.turn = None;
            }
            if hand.held.elapsed() >= self.ledger.third_of_lease() {
                let waiting = calls.iter().flatten().map(|mail| &mail.row).chain(further);
                let waiting: Vec<DeliveryId> = waiting.map(|row| row.id.clone()).collect();
                if let Err(error) = self.ledger.hold(&waiting).await {
                    failure = failure.or(Some(error));
                }
                hand.held = Instant::now();
            }
            // Let running calls finish, even if one fails.
            let next = timeout_at(hand.held + self.ledger.third_of_lease(), flying.join_next());
            match next.await.map(|next| next.map(came_to)) {
                Err(_) => {}
                Ok(None) => break,
                Ok(Some(Err(error))) => failure = failure.or(Some(error)),
                Ok(Some(Ok((concluded, alone, kept)))) => {
                    if !alone.is_empty() {
                        hand.turn = hand.turn.take().or(kept);
                    }
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
    async fn permit(&self, hand: &mut InHand) {
        if !hand.permitted {
            self.gate.permit().await;
            hand.permitted = true;
        }
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
        self.retry.certainty == Certainty::Never && self.gate.pacer.is_unproven(now)
    }

    /// Returns how many calls may run at a time, including this one.
    fn width(&self, next: &[Mail]) -> usize {
        match next.len() > 1 && self.is_careful() {
            true => 1,
            false => self.gate.pacer.width(self.gate.settings.in_flight),
        }
    }

    /// Groups the emails into calls as the mailer requires.
    fn cut(&self, mails: Vec<Mail>) -> VecDeque<Vec<Mail>> {
        let messages: Vec<Message> = mails.iter().map(|mail| mail.message.clone()).collect();
        let mut mails: Vec<Option<Mail>> = mails.into_iter().map(Some).collect();
        self.mailer
            .calls(&messages)
            .into_iter()
            .map(|places| {
                places
                    .into_iter()
                    .filter_map(|place| mails[place].take())
                    .collect()
            })
            .collect()
    }

    /// Makes a call for the first time. Also returns the emails that must be sent alone, and the
    /// turn if it has not ended.
    async fn call(
        &self,
        mails: Vec<Mail>,
        (at, checked): (DateTime<Utc>, DateTime<Utc>),
        turn: Option<Turn>,
    ) -> Result<(Concluded, Vec<Mail>, Option<Turn>)> {
        let mut turn = turn;
        let leave = self.gate.fresh(self.gate.leave(at), checked);
        if leave.withheld().is_some() {
            // Marking the rows as `sending` would count an attempt. Stale emails are built again.
            return Ok((Concluded::default(), mails, turn));
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
        let noted = |mut mail: Mail| {
            mail.row.state = DeliveryState::Sending;
            mail.row.attempts.made += 1;
            mail.row.attempts.call = Some(reference.clone());
            mail.row.attempts.called_at = Some(at);
            mail
        };
        let mails: Vec<Mail> = mails
            .into_iter()
            .zip(ours)
            .filter_map(|(mail, ours)| ours.then(|| noted(mail)))
            .collect();
        let (concluded, alone) = self
            .make(&reference, &mails, Attempt::First, &leave, &mut turn)
            .boxed()
            .await?;
        if alone.is_empty() {
            return Ok((concluded, Vec::new(), turn));
        }
        // Their call was rejected. Record that, or a later worker would treat the outcome as
        // unknown.
        crash::point("before-recall");
        let alone: HashSet<usize> = alone.into_iter().collect();
        let mut alone: Vec<Mail> = mails
            .into_iter()
            .enumerate()
            .filter_map(|(place, mail)| alone.contains(&place).then_some(mail))
            .collect();
        let recall = |mail: &Mail| Transition::Recall(mail.row.id.clone());
        let recalls = alone.iter().map(recall).collect();
        let mut recalled = self.ledger.advance(recalls).await?.into_iter();
        crash::point("after-recall");
        alone.retain(|_| recalled.next().unwrap_or(false));
        Ok((concluded, alone, turn))
    }

    /// Makes a call whose rows are `sending`, and writes the outcomes. Also returns the indices of
    /// the emails that must be sent alone.
    pub(super) async fn make(
        &self,
        reference: &str,
        mails: &[Mail],
        attempt: Attempt,
        leave: &Leave,
        turn: &mut Option<Turn>,
    ) -> Result<(Concluded, Vec<usize>)> {
        if mails.is_empty() {
            return Ok(<_>::default());
        }
        let messages: Vec<Message> = mails.iter().map(|mail| mail.message.clone()).collect();
        let ids: Vec<DeliveryId> = mails.iter().map(|mail| mail.row.id.clone()).collect();
        let call = async {
            if attempt == Attempt::Repeated {
                self.gate.permit().await;
            }
            match self.gate.before_send(leave).await {
                Ok(()) => (self.mailer.send(reference, &messages, leave).await, None),
                Err(Held { until, reason }) => {
                    (vec![Outcome::Withheld { reason }; messages.len()], until)
                }
            }
        };
        let (outcomes, until) = self.ledger.holding(&ids, call).await;
        crash::point("after-send");
        let now = self.context.clock.now();
        let begun = outcomes.iter().any(Outcome::is_shown);
        let taken = |outcome: &Outcome| matches!(outcome, Outcome::Accepted { .. });
        let all_taken = outcomes.iter().all(taken);
        let astray = self.retry.astray(&outcomes);
        let silent = |outcome: &Outcome| {
            matches!(
                outcome,
                Outcome::Unknown { .. } | Outcome::TryLater { .. } | Outcome::Unreachable { .. }
            )
        };
        let mut shown = outcomes.iter().filter(|outcome| outcome.is_shown());
        let answered = shown.any(|outcome| !silent(outcome));
        let mut verdicts = self.retry.weigh(mails, outcomes, attempt, now);
        for deferral in &mut verdicts.deferrals {
            deferral.not_before = until.unwrap_or(deferral.not_before);
        }
        if begun {
            self.gate
                .pacer
                .heard(&verdicts, self.gate.settings.retry_after, now);
        }
        // Only writing the outcomes is left, so the next task may make calls.
        let ends_turn = turn.is_some() && all_taken && !self.gate.pacer.probes();
        if ends_turn {
            *turn = None;
        }
        let (stop, alone) = (verdicts.stop.take(), std::mem::take(&mut verdicts.alone));
        let rows: Vec<&Delivery> = mails.iter().map(|mail| &mail.row).collect();
        let undeliverable = verdicts.undeliverable.clone();
        let concluded = self.ledger.conclude(&rows, verdicts).await;
        if let Some(reason) = stop {
            self.gate.pause(&reason).await?;
        }
        self.gate.share_wait().await?;
        self.ledger
            .suppress(mails, &undeliverable, self.mailer.name(), now)
            .await?;
        let mut concluded = concluded?;
        // Another task's call may have ended meanwhile, and its unknown outcome is newer than this
        // answer.
        concluded.answered = answered && !ends_turn;
        concluded.astray = astray;
        Ok((concluded, alone))
    }

    /// Defers rows that may not be sent now.
    async fn put_back<'a>(
        &self,
        rows: impl Iterator<Item = &'a Delivery>,
        why: &GateState,
    ) -> Result<()> {
        let now = self.context.clock.now();
        let Held { until, reason } = why.holds();
        let not_before = until.unwrap_or(now);
        let deferrals = rows
            .map(|row| deferral(row, DeliveryState::Pending, not_before, &reason))
            .collect();
        let waiting = Verdicts {
            deferrals,
            ..Verdicts::default()
        };
        self.ledger.conclude(&[], waiting).await?;
        Ok(())
    }
}

impl Sender {
    /// Waits for the right to make calls, and renews the leases of these rows meanwhile.
    pub(super) async fn turn_of<'a>(&self, rows: impl IntoIterator<Item = &'a Delivery>) -> Turn {
        let ids: Vec<DeliveryId> = rows.into_iter().map(|row| row.id.clone()).collect();
        self.ledger.holding(&ids, self.gate.turn()).await
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
