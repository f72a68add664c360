//! Counts waiting emails by reason, so that operators see why emails are not sent.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::DeliveryService;
use crate::domain::{Delivery, DeliveryState, UserId};
use crate::engine::Result;
use crate::store::{Counted, DeliveryFilter};
use crate::wire::delivery::{WaitReason, Waiting};

/// The most deliveries in each state that are read. If there are more, the reasons cover the
/// newest.
const LOOKED_AT: usize = 10_000;

impl DeliveryService {
    /// Returns the number of waiting emails and their reasons, for these users or for all.
    pub async fn waiting(&self, users: Option<&[UserId]>) -> Result<Waiting> {
        let now = self.context.clock.now();
        let states = [DeliveryState::Pending, DeliveryState::Sending];
        let counted = states.map(Counted::Deliveries);
        let all: u64 = self.context.store.count(&counted).await?.iter().sum();
        if all == 0 {
            return Ok(Waiting::default());
        }
        let mut rows = Vec::new();
        for state in states {
            let of = DeliveryFilter::State(state);
            rows.extend(self.context.store.find_deliveries(&of, LOOKED_AT).await?);
        }
        rows.retain(|row| row.open);
        if let Some(users) = users {
            rows.retain(|row| users.contains(&row.user));
        }
        let mails = match users {
            Some(_) => rows.len() as u64,
            None => all,
        };
        Ok(Waiting {
            mails,
            reasons: reasons(&rows, now),
        })
    }
}

/// Why a delivery that is not settled waits.
pub(crate) struct Wait {
    /// The recorded reason, such as the provider's answer; otherwise the state in words.
    pub why: String,
    /// When it can be claimed again; `None` if it can be claimed now.
    pub until: Option<DateTime<Utc>>,
    /// The worker that holds it until then.
    pub held_by: Option<String>,
}

impl Wait {
    pub(crate) fn of(row: &Delivery, now: DateTime<Utc>) -> Self {
        let lease = row.lease.as_ref().filter(|lease| lease.until > now);
        let held_by = lease.map(|lease| lease.owner.clone());
        let why = match (&row.outcome.reason, row.state) {
            (Some(reason), _) => reason.clone(),
            (None, DeliveryState::Sending) => {
                "handed to the provider, and no answer recorded yet".into()
            }
            (None, _) if held_by.is_some() => "being built and sent".into(),
            (None, _) => "no worker has claimed it yet".into(),
        };
        let until = [lease.map(|lease| lease.until), row.attempts.not_before];
        let until = until.into_iter().flatten().filter(|until| *until > now);
        Self {
            why,
            until: until.max(),
            held_by,
        }
    }
}

fn reasons(rows: &[Delivery], now: DateTime<Utc>) -> Vec<WaitReason> {
    let mut of: BTreeMap<(String, Option<String>), WaitReason> = BTreeMap::new();
    for row in rows {
        let Wait {
            why,
            until,
            held_by,
        } = Wait::of(row, now);
        let reason = of
            .entry((why, held_by))
            .or_insert_with_key(|(why, held_by)| WaitReason {
                why: why.clone(),
                mails: 0,
                until,
                held_by: held_by.clone(),
            });
        reason.mails += 1;
        reason.until = reason.until.min(until);
    }
    let mut reasons: Vec<WaitReason> = of.into_values().collect();
    reasons.sort_by(|a, b| (b.mails, &a.why).cmp(&(a.mails, &b.why)));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Cadence, DeliveryId, Id, Lease, Occasion};

    #[test]
    fn waiting_emails_are_counted_by_reason_with_the_next_time_and_the_owner() {
        let now = DateTime::from_timestamp(1_398_072_600, 0).unwrap();
        let later = |minutes| now + chrono::TimeDelta::minutes(minutes);
        let row = |user: &str| {
            let user = UserId::stored(user);
            let occasion = Occasion::Digest {
                cadence: Cadence::Daily,
                period: "2014-04-21".into(),
            };
            let id = DeliveryId::stored("digest:x");
            Delivery::new(id, user, occasion, Id::at(now, [0; 8]), now)
        };
        let refused = |user, minutes| {
            let mut row = row(user);
            row.outcome.reason = Some("connection refused".into());
            row.attempts.not_before = Some(later(minutes));
            row
        };
        let held = Delivery {
            lease: Some(Lease {
                owner: "w1".into(),
                until: later(5),
            }),
            ..row("d")
        };

        let counted = reasons(&[refused("a", 3), refused("b", 2), held, row("e")], now);

        let counted: Vec<_> = counted
            .iter()
            .map(|one| {
                (
                    one.mails,
                    one.why.as_str(),
                    one.until,
                    one.held_by.as_deref(),
                )
            })
            .collect();
        assert_eq!(
            counted,
            [
                (2, "connection refused", Some(later(2)), None),
                (1, "being built and sent", Some(later(5)), Some("w1")),
                (1, "no worker has claimed it yet", None, None),
            ]
        );
    }
}
