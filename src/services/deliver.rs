//! Takes ledger rows to their end: built, checked again, sent, settled, flushed, closed.
//!
//! The rule (P2–P7): the row came first and is ours by a lease. What it mails is read again here, between the markers that stand now and the
//! reach the row notes, so nothing is told twice and nothing that arrived since is lost. `sending` is durable before the provider hears
//! of the mail; the row stays open until its markers stand. Whoever dies here, the next run finishes.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest as _, Sha256};

use super::Result;
use super::catalogue::Catalogue;
use crate::clock::Clock;
use crate::domain::delivery::Settlement;
use crate::domain::digest::{Caps, Digest, assemble, wanted};
use crate::domain::{
    Cadence, Delivery, DeliveryId, DeliveryState, PersonStacks, Policies, Schedule, User, UserId,
    Window,
};
use crate::mail::{Certainty, Content, Mailer, Message, Outcome};
use crate::render::{DigestMail, Links, Renderer};
use crate::store::{Deliveries, Directory, Mark, Objects, People, Stacks};

/// How mails are cut and held.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub chunk: usize,
    pub lease: TimeDelta,
    pub retry_after: TimeDelta,
    pub caps: Caps,
    pub schedule: Schedule,
}

pub struct Deliver {
    pub deliveries: Arc<dyn Deliveries>,
    pub stacks: Arc<dyn Stacks>,
    pub directory: Arc<dyn Directory>,
    pub objects: Arc<dyn Objects>,
    pub policies: Arc<Policies>,
    pub mailer: Arc<dyn Mailer>,
    pub renderer: Arc<Renderer>,
    pub clock: Arc<dyn Clock>,
    pub owner: String,
    pub settings: Settings,
}

/// What became of deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Tally {
    pub sent: u64,
    /// Events in the mails that were sent.
    pub events: u64,
    pub failed: u64,
    pub canceled: u64,
    pub unknown: u64,
    /// Not taken by the provider now; they wait in the ledger.
    pub deferred: u64,
    /// Why mails failed or wait: the first few reasons, with how many there were of each.
    pub reasons: Vec<(String, u64)>,
}

impl Tally {
    pub fn settled(&self) -> u64 {
        self.sent + self.failed + self.canceled + self.unknown
    }

    /// Whether anything went wrong.
    pub fn troubled(&self) -> bool {
        self.failed + self.unknown + self.deferred > 0
    }

    fn note(&mut self, reason: &str, times: u64) {
        const KINDS: usize = 5;
        if let Some((_, count)) = self.reasons.iter_mut().find(|(known, _)| known == reason) {
            *count += times;
        } else if self.reasons.len() < KINDS {
            self.reasons.push((reason.to_owned(), times));
        }
    }

    fn settle(&mut self, settlement: &Settlement) {
        match settlement.state {
            DeliveryState::Sent => {
                self.sent += 1;
                self.events += u64::from(settlement.items);
            }
            DeliveryState::Failed => self.failed += 1,
            DeliveryState::Canceled => self.canceled += 1,
            DeliveryState::Unknown => self.unknown += 1,
            DeliveryState::Pending | DeliveryState::Sending => {}
        }
        if matches!(
            settlement.state,
            DeliveryState::Failed | DeliveryState::Unknown
        ) && let Some(reason) = &settlement.reason
        {
            self.note(reason, 1);
        }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.events += other.events;
        self.failed += other.failed;
        self.canceled += other.canceled;
        self.unknown += other.unknown;
        self.deferred += other.deferred;
        for (reason, count) in other.reasons {
            self.note(&reason, count);
        }
    }
}

/// How close together the people of some rows stand in the stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Most people between the first and the last are wanted.
    Dense,
    Sparse,
}

impl Deliver {
    /// Claims open rows that nobody works on, and finishes them; `None` if there were none.
    pub async fn step(&self) -> Result<Option<Tally>> {
        let now = self.clock.now();
        let rows = self
            .deliveries
            .claim(
                &self.owner,
                now,
                now + self.settings.lease,
                self.settings.chunk,
            )
            .await?;
        if rows.is_empty() {
            Ok(None)
        } else {
            Ok(Some(self.finish(rows, Spread::Sparse).await?))
        }
    }

    /// Steps until nothing is left to claim.
    pub async fn drain(&self) -> Result<Tally> {
        let mut all = Tally::default();
        while let Some(tally) = self.step().await? {
            all += tally;
        }
        Ok(all)
    }

    /// Finishes rows that this worker holds; ascending by user where they are dense.
    pub async fn finish(&self, rows: Vec<Delivery>, spread: Spread) -> Result<Tally> {
        let now = self.clock.now();
        let mut tally = Tally::default();
        let (settled, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.state.settled());
        let (lost, mut rows): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .partition(|row| row.state == DeliveryState::Sending && !self.repeats_safely());
        rows.sort_unstable_by(|a, b| a.user.cmp(&b.user));

        let (mails, mut settlements) = self.build(&rows, spread, now).await?;
        settlements.extend(lost.iter().map(|row| {
            settlement(
                row,
                DeliveryState::Unknown,
                row.items,
                Some("the worker that sent it died before it saw the answer"),
            )
        }));
        settlements.extend(self.send(mails, now, &mut tally).await?);

        let done = self
            .deliveries
            .settle(&self.owner, now, &settlements)
            .await?;
        let mut closing: HashMap<&DeliveryId, DeliveryState> =
            settled.iter().map(|row| (&row.id, row.state)).collect();
        for (settlement, _) in settlements.iter().zip(done).filter(|(_, done)| *done) {
            tally.settle(settlement);
            closing.insert(&settlement.id, settlement.state);
        }
        self.close(settled.iter().chain(&lost).chain(&rows), &closing)
            .await?;
        Ok(tally)
    }

    /// Reads again what each row may tell, checks everything again, and renders what is left.
    async fn build(
        &self,
        rows: &[Delivery],
        spread: Spread,
        now: DateTime<Utc>,
    ) -> Result<(Vec<Mail>, Vec<Settlement>)> {
        let users: Vec<UserId> = rows.iter().map(|row| row.user.clone()).collect();
        let stacks = self.read(rows, &users, spread).await?;
        let people = self.directory.users(&users).await?;
        let pending: Vec<_> = rows
            .iter()
            .zip(&stacks)
            .map(|(row, stacks)| stacks.pending_within(&row.covers))
            .collect();
        let mut catalogue = Catalogue::new(Arc::clone(&self.objects), Arc::clone(&self.policies));
        catalogue
            .load(pending.iter().flatten().map(|pending| pending.event))
            .await?;

        let (mut mails, mut settlements) = (Vec::new(), Vec::new());
        for ((row, person), pending) in rows.iter().zip(&people).zip(&pending) {
            let user = match self.allowed(row, person.as_ref()) {
                Ok(user) => user,
                Err(reason) => {
                    settlements.push(settlement(row, DeliveryState::Canceled, 0, Some(&reason)));
                    continue;
                }
            };
            let wanted = wanted(pending, user, &self.policies);
            let Some(digest) = assemble(&wanted, &self.policies, self.settings.caps, |event| {
                catalogue.applies(event)
            }) else {
                settlements.push(settlement(
                    row,
                    DeliveryState::Canceled,
                    0,
                    Some("nothing is left that applies"),
                ));
                continue;
            };
            match self.render(row, user, &digest, now) {
                Ok(message) => mails.push(Mail {
                    row: row.clone(),
                    items: digest.total as u32,
                    message,
                }),
                Err(reason) => {
                    settlements.push(settlement(row, DeliveryState::Failed, 0, Some(&reason)))
                }
            }
        }
        Ok((mails, settlements))
    }

    async fn read(
        &self,
        rows: &[Delivery],
        users: &[UserId],
        spread: Spread,
    ) -> Result<Vec<PersonStacks>> {
        let days = || {
            rows.iter()
                .flat_map(|row| &row.covers)
                .map(|(stack, _)| stack.day)
        };
        let (Some(first), Some(last)) = (days().min(), days().max()) else {
            return Ok(users
                .iter()
                .map(|user| PersonStacks {
                    user: user.clone(),
                    stacks: Vec::new(),
                })
                .collect());
        };
        let window = Window::between(first, last);
        let people = match spread {
            Spread::Dense => People::Between(users),
            Spread::Sparse => People::Each(users),
        };
        Ok(self.stacks.windows(window, people).await?)
    }

    /// Whether this person may still be mailed this (P7).
    fn allowed<'a>(
        &self,
        row: &Delivery,
        person: Option<&'a User>,
    ) -> std::result::Result<&'a User, String> {
        let user = person.ok_or("the person's record is gone")?;
        user.mailable()
            .map_err(|why| format!("the person is {}", why.as_str()))?;
        match user.schedule(&self.settings.schedule).cadence {
            Cadence::Never => Err("the person wants no digest any more".into()),
            Cadence::Daily | Cadence::Weekly if row.covers.is_empty() => {
                Err("the row covers nothing".into())
            }
            Cadence::Daily | Cadence::Weekly => Ok(user),
        }
    }

    fn render(
        &self,
        row: &Delivery,
        user: &User,
        digest: &Digest,
        now: DateTime<Utc>,
    ) -> std::result::Result<Message, String> {
        let to = user
            .mailable()
            .map_err(|why| why.as_str().to_owned())?
            .clone();
        let mail = DigestMail {
            user,
            digest,
            cadence: row.cadence,
            period: &row.period,
            at: now,
            tz: user.schedule(&self.settings.schedule).tz,
            links: Links::default(),
        };
        let rendered = self
            .renderer
            .digest(&mail)
            .map_err(|error| format!("the mail cannot be rendered: {error:#}"))?;
        Ok(Message {
            delivery: row.id.clone(),
            to,
            to_name: user.name.clone(),
            content: Arc::new(Content {
                subject: rendered.subject,
                html: rendered.html,
                text: rendered.text,
            }),
            personal: None,
            further: Vec::new(),
            at: now,
        })
    }

    /// Whether a mail whose outcome nobody saw can be sent again.
    fn repeats_safely(&self) -> bool {
        matches!(self.mailer.certainty(), Certainty::Repeat { .. })
    }

    /// Notes `sending`, then hands over; says how each mail ended that did.
    async fn send(
        &self,
        mails: Vec<Mail>,
        now: DateTime<Utc>,
        tally: &mut Tally,
    ) -> Result<Vec<Settlement>> {
        let ids: Vec<_> = mails.iter().map(|mail| mail.row.id.clone()).collect();
        let until = self.clock.now() + self.settings.lease;
        let ours = self.deliveries.sending(&self.owner, until, &ids).await?;
        let mails: Vec<Mail> = mails
            .into_iter()
            .zip(ours)
            .filter_map(|(mail, ours)| ours.then_some(mail))
            .collect();
        let messages: Vec<Message> = mails.iter().map(|mail| mail.message.clone()).collect();
        let (mut settlements, mut later) = (Vec::new(), Vec::new());
        for (mail, outcome) in mails.iter().zip(self.hand_over(&messages).await) {
            let ended =
                |state, reason: Option<&str>| settlement(&mail.row, state, mail.items, reason);
            match outcome {
                Outcome::Accepted { provider_id } => {
                    settlements.push(Settlement {
                        provider_id: Some(provider_id),
                        ..ended(DeliveryState::Sent, None)
                    });
                }
                Outcome::Refused { reason }
                | Outcome::RefusedTogether { reason }
                | Outcome::Undeliverable { reason } => {
                    settlements.push(ended(DeliveryState::Failed, Some(&reason)))
                }
                Outcome::Unknown { reason } => {
                    settlements.push(ended(DeliveryState::Unknown, Some(&reason)))
                }
                Outcome::TryLater { reason, .. } | Outcome::Stop { reason } => {
                    tally.deferred += 1;
                    tally.note(&reason, 1);
                    later.push(mail.row.id.clone());
                }
            }
        }
        if !later.is_empty() {
            self.deliveries
                .defer(&self.owner, now + self.settings.retry_after, &later)
                .await?;
        }
        Ok(settlements)
    }

    /// Makes the calls; the outcomes are in the messages' order.
    async fn hand_over(&self, messages: &[Message]) -> Vec<Outcome> {
        let nobody = || Outcome::Unknown {
            reason: "the mailer did not answer for it".into(),
        };
        let mut outcomes: Vec<Outcome> = messages.iter().map(|_| nobody()).collect();
        for call in self.mailer.calls(messages) {
            let together: Vec<Message> =
                call.iter().map(|place| messages[*place].clone()).collect();
            let answers = self.mailer.send(&reference(&together), &together).await;
            for (place, answer) in call.into_iter().zip(answers) {
                outcomes[place] = match answer {
                    Outcome::RefusedTogether { .. } => {
                        let alone = std::slice::from_ref(&messages[place]);
                        let answers = self.mailer.send(&reference(alone), alone).await;
                        answers.into_iter().next().unwrap_or_else(nobody)
                    }
                    answer => answer,
                };
            }
        }
        outcomes
    }

    /// Writes the markers of what was mailed, or may have been, and closes the rows.
    async fn close<'a>(
        &self,
        rows: impl Iterator<Item = &'a Delivery>,
        settled: &HashMap<&DeliveryId, DeliveryState>,
    ) -> Result<()> {
        let (mut marks, mut ids) = (Vec::new(), Vec::new());
        for row in rows {
            let Some(state) = settled.get(&row.id) else {
                continue;
            };
            if state.flushes() {
                marks.push(Mark {
                    user: row.user.clone(),
                    marker: row.marker,
                    covers: row.covers.clone(),
                });
            }
            ids.push(row.id.clone());
        }
        if !marks.is_empty() {
            self.stacks.mark(&marks).await?;
        }
        if !ids.is_empty() {
            self.deliveries.close(&ids).await?;
        }
        Ok(())
    }
}

/// What a call is known by: forty hexadecimal digits that stand for its deliveries.
fn reference(messages: &[Message]) -> String {
    let mut hash = Sha256::new();
    for message in messages {
        hash.update(message.delivery.as_str().as_bytes());
        hash.update([0]);
    }
    hash.finalize()[..20]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A mail that is ready to leave.
struct Mail {
    row: Delivery,
    items: u32,
    message: Message,
}

fn settlement(
    row: &Delivery,
    state: DeliveryState,
    items: u32,
    reason: Option<&str>,
) -> Settlement {
    Settlement {
        id: row.id.clone(),
        state,
        items,
        provider_id: None,
        reason: reason.map(str::to_owned),
    }
}
