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
    /// When their checks began, or ended where it is a single email.
    checked: DateTime<Utc>,
}

/// What a sender has in hand from one portion to the next.
struct InHand {
    turn: Option<Turn>,
    /// When the leases of all rows were extended last.
    held: Instant,
    /// Whether the rate limit permits a call that is not made yet.
    permitted: bool,
}

impl Sender {
    /// Builds pending rows and hands them over. What may not leave now goes back into the ledger,
    /// and waits there.
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
        // How many emails the operator's limit still allows.
        let (mut allowed, mut is_further) = (0, false);
        while !rest.is_empty() {
            self.gate.heed_reports().await?;
            // Once it has leave, only what concerns everybody can hold a mail up.
            let state = match allowed {
                0 => self.gate.before_chunk().await?,
                _ => self.gate.before_call().await?,
            };
            if state != GateState::Open {
                return self.put_back(rest.iter(), &state).await;
            }
            if is_further {
                // Others come first, so that a long list of rows delays none of them for long.
                hand.turn = None;
                hand.turn = Some(self.turn_of(&rest).await);
            }
            is_further = true;
            if hand.turn.is_some() {
                // Before anything is built, which would wait for it.
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
            // A single email leaves right after its checks, however long they took.
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
                    // Others took long: what has changed since is seen only if it is built again.
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

    /// Makes the calls of these mails; answers with the rows whose turn did not come while their
    /// checks were fresh. `further` are ours as well, and held meanwhile.
    ///
    /// Each call goes on in a task of its own: none waits for what is done here, and none keeps a
    /// place in anybody's queue while nobody asks for it. The turn ends when the last call was
    /// answered, if all mails were taken and no earlier call is in doubt; else when all is written
    /// down.
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
                        // The last outcome is unknown, or a gateway may answer.
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
                // Each call has its own.
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
            // Calls that are under way are seen through, whatever became of another.
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

    /// Waits until the rate limit permits a call, unless it did so before.
    async fn permit(&self, hand: &mut InHand) {
        if !hand.permitted {
            self.gate.permit().await;
            hand.permitted = true;
        }
    }

    /// Whether what was checked then is built again: half of the time is for the call's way.
    fn is_stale(&self, checked: DateTime<Utc>) -> bool {
        self.context.clock.now() - checked > FRESH / 2
    }

    /// Whether the next call risks a single email: the first of a run, where a lost outcome stays
    /// unknown.
    fn is_careful(&self) -> bool {
        let now = self.context.clock.now();
        self.retry.certainty == Certainty::Never && self.gate.pacer.is_unproven(now)
    }

    /// How many calls may be under way at a time with this one.
    fn width(&self, next: &[Mail]) -> usize {
        match next.len() > 1 && self.is_careful() {
            true => 1,
            false => self.gate.pacer.width(self.gate.settings.in_flight),
        }
    }

    /// The calls that the mailer wants these mails in.
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

    /// Makes a call for the first time; answers also with the mails that are to be sent alone, and
    /// with the turn, if that has not ended.
    async fn call(
        &self,
        mails: Vec<Mail>,
        (at, checked): (DateTime<Utc>, DateTime<Utc>),
        turn: Option<Turn>,
    ) -> Result<(Concluded, Vec<Mail>, Option<Turn>)> {
        let mut turn = turn;
        let leave = self.gate.fresh(self.gate.leave(at), checked);
        if leave.withheld().is_some() {
            // Noting the rows as `sending` would count an attempt. Stale emails are built again.
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
            mail.row.attempts += 1;
            mail.row.call = Some(reference.clone());
            mail.row.tried = Some(at);
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
        // Their call was refused. That is written down, or whoever finds them later would take it
        // for one nobody saw the end of.
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

    /// Makes a call whose rows are noted as `sending`, and writes down what became of it; answers
    /// also with the places of those that are to be sent alone.
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
        // What is left is to write it down, which keeps nobody from making calls.
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
        // A call of the next turn that went astray meanwhile is newer than this answer.
        concluded.answered = answered && !ends_turn;
        concluded.astray = astray;
        Ok((concluded, alone))
    }

    /// What may not leave now waits in the ledger.
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
    /// Waits for its turn to make calls, and extends the leases of these rows meanwhile.
    pub(super) async fn turn_of<'a>(&self, rows: impl IntoIterator<Item = &'a Delivery>) -> Turn {
        let ids: Vec<DeliveryId> = rows.into_iter().map(|row| row.id.clone()).collect();
        self.ledger.holding(&ids, self.gate.turn()).await
    }

    /// What a call is known by: hexadecimal digits that stand for the account it is made at, and
    /// for its deliveries and how often each was tried. So a new attempt has a new one, and whoever
    /// makes the same attempt again has the old one from the ledger.
    fn reference(&self, mails: &[Mail]) -> String {
        let mut hash = Sha256::new();
        for mail in mails {
            hash.update(mail.row.id.as_str().as_bytes());
            hash.update([0]);
            hash.update(mail.row.attempts.to_be_bytes());
        }
        self.gate.account_prefix.clone() + &hex::encode(&hash.finalize()[..20])
    }
}
