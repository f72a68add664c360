//! Sends rows of several channels and brands, each through the provider account of its own.
//!
//! Each brand has its own sender with its theme, provider and limits. Accounts work concurrently,
//! so no brand waits for another's provider. Rows of an unconfigured brand stay pending until it is
//! configured or they expire. They are never sent as another brand's. Start with
//! [`Sender::send_each`].

use std::collections::BTreeMap;

use chrono::TimeDelta;
use futures::FutureExt;
use futures::future::join_all;

use super::super::compose::{Spread, Stray};
use super::super::gate::{Account, Gate, GateState, Turn};
use super::super::retry::{Retry, Verdicts, deferral};
use super::Sender;
use crate::domain::delivery::{Channel, Settlement};
use crate::domain::{BrandName, Delivery, DeliveryState};
use crate::engine::Result;

/// How soon rows of an unconfigured brand are tried again.
const LOOK: TimeDelta = TimeDelta::minutes(10);

impl Sender {
    /// Returns the sender for this channel and brand; `None` if the brand is not configured.
    fn sender_for(&self, channel: Channel, brand: Option<&BrandName>) -> Option<Self> {
        match channel {
            Channel::Email => self.of_brand(brand),
        }
    }

    fn of_brand(&self, brand: Option<&BrandName>) -> Option<Self> {
        if brand == self.compose.brand.as_ref() {
            return Some(self.clone());
        }
        let identity = self.compose.identities.brands.get(brand?)?.clone();
        Some(Self {
            compose: self.compose.of_brand(brand)?,
            gate: Gate {
                // Another owner, because the holder of a lease could extend it.
                owner: format!("{}-{}", self.gate.owner, identity.account_prefix),
                account_prefix: identity.account_prefix,
                account: identity.account,
                pacer: identity.pacer,
                ..self.gate.clone()
            },
            retry: Retry {
                certainty: identity.mailer.certainty(),
                ..self.retry
            },
            mailer: identity.mailer,
            ..self.clone()
        })
    }

    /// Returns whether work on new rows of any brand may start.
    pub async fn ready(&self) -> Result<GateState> {
        let mut state = self.gate.before_chunk().await?;
        for brand in self.compose.identities.brands.keys() {
            let (GateState::ClosedUntil(until), Some(sender)) =
                (&state, self.of_brand(Some(brand)))
            else {
                break;
            };
            state = match sender.gate.before_chunk().await? {
                GateState::ClosedUntil(theirs) => GateState::ClosedUntil(theirs.min(*until)),
                state => state,
            };
        }
        Ok(state)
    }

    /// Builds and sends pending rows, each through its brand's sender. Each account has its own
    /// turn; `turn` is one of this sender's account.
    pub(super) async fn send_each(
        &self,
        rows: Vec<Delivery>,
        spread: Spread,
        mut turn: Option<Turn>,
    ) -> Result<()> {
        let all = rows.len();
        if all == 0 {
            return self.gate.tell_all().await;
        }
        let brands = match self.compose.identities.brands.is_empty() {
            true => vec![None; all],
            false => self.compose.brands_of(&rows).await?,
        };
        let mut groups: BTreeMap<(Channel, Option<BrandName>), Vec<Delivery>> = BTreeMap::new();
        for (row, brand) in rows.into_iter().zip(brands) {
            groups.entry((row.channel, brand)).or_default().push(row);
        }
        let mut accounts: BTreeMap<Account, Vec<(Self, Vec<Delivery>)>> = BTreeMap::new();
        for ((channel, brand), rows) in groups {
            // For an unknown brand, this sender finds the rows misrouted and defers them.
            let sender = self.sender_for(channel, brand.as_ref());
            let sender = sender.unwrap_or_else(|| self.clone());
            let account = accounts.entry(sender.gate.account.clone()).or_default();
            account.push((sender, rows));
        }
        let mut sending = Vec::with_capacity(accounts.len());
        for (account, senders) in accounts {
            let mut turn = turn.take_if(|_| account == self.gate.account);
            let sends = async move {
                for (first, (sender, rows)) in senders.into_iter().enumerate() {
                    let rows = match first {
                        0 => rows,
                        _ => sender.ledger.still_ours(rows).await?,
                    };
                    // The users of a small brand are scattered.
                    let spread = if 2 * rows.len() > all {
                        spread
                    } else {
                        Spread::Sparse
                    };
                    sender.send(rows, spread, turn.take()).boxed().await?;
                }
                Ok(())
            };
            sending.push(sends.boxed());
        }
        // If the turn was not passed on, no row belongs to its account.
        drop(turn);
        // Let all accounts finish, even if one fails.
        let sent: Vec<Result<()>> = join_all(sending).await;
        sent.into_iter().collect()
    }

    /// Resolves calls with unknown outcomes, each through the sender that made it. The caller holds
    /// a turn of this sender's account. For other accounts, this waits for a turn.
    pub(super) async fn resolve_each(&self, rows: Vec<Delivery>) -> Result<()> {
        let mut groups: BTreeMap<(Channel, Option<&BrandName>), Vec<Delivery>> = BTreeMap::new();
        for row in rows {
            let call = row.attempts.call.as_deref().unwrap_or_default();
            let brand = self.compose.identities.brand_of_call(call);
            groups.entry((row.channel, brand)).or_default().push(row);
        }
        for ((channel, brand), rows) in groups {
            if let Some(sender) = self.sender_for(channel, brand) {
                let is_ours = sender.gate.account == self.gate.account;
                let _turn = match is_ours {
                    true => None,
                    false => Some(sender.turn_of(&rows).await),
                };
                sender.resolve(rows).boxed().await?;
            }
        }
        Ok(())
    }

    /// Defers rows that belong to another brand than they were built for. If that brand is
    /// configured, they can be claimed at once. Otherwise they are retried until it is, or until
    /// they expire.
    pub(super) async fn put_aside(&self, strays: Vec<Stray>) -> Result<()> {
        let (now, mut verdicts) = (self.context.clock.now(), Verdicts::default());
        for Stray {
            row,
            brand,
            has_markers,
        } in &strays
        {
            let known = brand
                .as_ref()
                .is_none_or(|brand| self.compose.identities.brands.contains_key(brand));
            if known {
                let reason = "its brand has changed";
                let waits = deferral(row, DeliveryState::Pending, now, reason);
                verdicts.deferrals.push(waits);
                continue;
            }
            let reason = brand.as_ref().map(BrandName::absent).unwrap_or_default();
            if now - row.created < self.retry.settings.give_up_after {
                let waits = deferral(row, DeliveryState::Pending, now + LOOK, &reason);
                verdicts.deferrals.push(waits);
            } else {
                let state = DeliveryState::not_taken(*has_markers);
                let reason = format!("given up: {reason}");
                let ended = Settlement::of(row, state, 0, Some(&reason));
                verdicts.settlements.push(ended.given_up());
            }
        }
        let rows: Vec<&Delivery> = strays.iter().map(|stray| &stray.row).collect();
        self.ledger.conclude(&rows, verdicts).await.map(drop)
    }
}
