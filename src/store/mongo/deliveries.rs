//! The ledger, with one row per email.
//!
//! Two unique keys guarantee P2: the row's id, and the slot, which only open rows have. Every state
//! change is a conditional write that leaves its revision ([`super::leases`]). So a repeated change
//! is neither made twice nor reported as failed.

use std::collections::HashSet;

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};

use super::bulk::Verb;
use super::grouped::{self, Change};
use super::reads::{at_once, records};
use super::{DELIVERIES, Mongo, date, in_order, lease, put};
use crate::domain::coordination::{furthest_lease, furthest_wait};
use crate::domain::delivery::{
    Corrected, Correction, Handover, OperatorDecision, Transition, digest_slot,
};
use crate::domain::{Delivery, DeliveryId, DeliveryState, ReportKind, StackId, Tag};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::{Claim, Deliveries, DeliveryFilter, Result};

/// The number of rows that are corrected at the same time.
const CORRECTED: usize = 8;

#[async_trait]
impl Deliveries for Mongo {
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>> {
        let doing = "opening deliveries";
        let records = rows.iter().map(DeliveryRecord::document);
        let inserted = self.write(doing, Verb::Insert, DELIVERIES, records);
        let refused = inserted.await?.duplicates(doing)?;
        let mut opened = vec![true; rows.len()];
        let mut doubtful = Vec::new();
        for refused in refused {
            opened[refused.item] = false;
            // If the insert was sent twice, it may have conflicted with its own row.
            if refused.resent {
                doubtful.push(refused.item);
            }
        }
        let ids: Vec<DeliveryId> = doubtful.iter().map(|item| rows[*item].id.clone()).collect();
        let stored = self.deliveries(&ids).await?;
        for (item, stored) in doubtful.into_iter().zip(stored) {
            let row = &rows[item];
            let is_ours =
                |stored: Delivery| stored.marker == row.marker && stored.lease == row.lease;
            opened[item] = stored.is_some_and(is_ours);
        }
        Ok(opened)
    }

    async fn claim(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        which: &Claim<'_>,
    ) -> Result<Vec<Delivery>> {
        let (rows, limit) = match *which {
            Claim::Free { now, limit } => {
                // Every open row has a lease, even if it has expired. No closed row has one.
                let over = doc! {"lease.until": {"$lte": date(now)}};
                // No lease and no wait can end this late, so these rows are free.
                let unbelieved = doc! {"lease.until": {"$gt": date(furthest_lease(now))}, "$or": [
                    {"lease.owner": {"$exists": true}},
                    {"lease.until": {"$gt": date(furthest_wait(now))}},
                ]};
                let free = doc! {"$or": [over, unbelieved], "slot": {"$exists": true}};
                (free, limit)
            }
            Claim::Call(call) => {
                let sending = DeliveryState::Sending.as_str();
                let of_call = doc! {"call": call, "slot": {"$exists": true}, "state": sending};
                (of_call, usize::MAX)
            }
        };
        let lease = doc! {"owner": owner, "until": date(until)};
        let (doing, order) = ("claiming deliveries", doc! {"slot": 1});
        let claimed = self.claim_raw(doing, DELIVERIES, &rows, order.clone(), lease, || {
            self.find_ids(doing, DELIVERIES, &rows, order.clone(), limit)
        });
        records::<DeliveryRecord>(doing, &claimed.await?).collect()
    }

    async fn advance(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        transitions: &[Transition],
    ) -> Result<Vec<bool>> {
        let change = |transition: &Transition, revision: Oid| {
            let mut change = Change {
                when: held(owner),
                set: doc! {"stamp": revision},
                ..Change::default()
            };
            let Change {
                when,
                set,
                unset,
                add,
                own,
            } = &mut change;
            match transition {
                Transition::HandOver(Handover { call, items, .. }) => {
                    // Another task of its owner may have claimed and handed it over meanwhile.
                    when.insert("state", DeliveryState::Pending.as_str());
                    // A repeated command must not count the attempt again.
                    when.insert("stamp", doc! {"$ne": revision});
                    set.insert("state", DeliveryState::Sending.as_str());
                    set.insert("lease.until", date(until));
                    set.insert("call", call);
                    set.insert("tried", date(now));
                    own.insert("items", i64::from(*items));
                    add.insert("attempts", 1);
                }
                Transition::Recall(_) => {
                    let sending = doc! {"state": DeliveryState::Sending.as_str()};
                    when.insert("$or", vec![sending, doc! {"stamp": revision}]);
                    set.insert("state", DeliveryState::Pending.as_str());
                    unset.insert("call", "");
                }
                Transition::Hold(_) => {
                    when.remove("state");
                    set.insert("lease.until", date(until));
                }
                Transition::Defer(deferral) => {
                    require(when, deferral.from);
                    set.insert("state", deferral.state.as_str());
                    // A lease without an owner blocks claims until then, and the release of an
                    // owner's leases does not end it.
                    set.insert("lease", doc! {"until": date(deferral.not_before)});
                    put(set, "reason", deferral.reason.as_deref());
                    // The owner loses the lease here, so a repeated command counts nothing.
                    if deferral.has_failed {
                        add.insert("refusals", 1);
                    }
                }
                Transition::Settle(settlement) | Transition::Conclude(settlement) => {
                    require(when, settlement.from);
                    set.insert("state", settlement.state.as_str());
                    set.insert("settled", date(now));
                    own.insert("items", i64::from(settlement.items));
                    put(own, "provider_id", settlement.provider_id.as_deref());
                    put(set, "reason", settlement.reason.as_deref());
                    // The reason for an earlier deferral no longer applies.
                    if settlement.reason.is_none() {
                        unset.insert("reason", "");
                    }
                    if matches!(transition, Transition::Conclude(_)) {
                        unset.extend(open());
                    }
                }
            }
            (Bson::from(transition.id().as_str()), change)
        };
        self.change_each("changing deliveries", DELIVERIES, transitions, change)
            .await
    }

    async fn close(&self, ids: &[DeliveryId]) -> Result<()> {
        let doing = "closing deliveries";
        let settled = DeliveryState::ALL
            .into_iter()
            .filter(|state| state.settled());
        let settled: Vec<&str> = settled.map(DeliveryState::as_str).collect();
        let close = |id: &DeliveryId| {
            let change = Change {
                when: doc! {"state": {"$in": &settled}},
                unset: open(),
                ..Change::default()
            };
            (Bson::from(id.as_str()), change)
        };
        let closings: Vec<_> = ids.iter().map(close).collect();
        let closings = grouped::statements(doing, &closings)?;
        let closed = self.write(doing, Verb::Update, DELIVERIES, closings);
        closed.await?.complete(doing).map(drop)
    }

    async fn correct(
        &self,
        now: DateTime<Utc>,
        corrections: &[Correction],
    ) -> Result<Vec<Corrected>> {
        let ids: Vec<DeliveryId> = corrections.iter().map(|one| one.id().clone()).collect();
        let stored = self.deliveries(&ids).await?;
        let mut answers = vec![Corrected::OtherState; corrections.len()];
        let correct = |place: usize| {
            let (correction, stored) = (&corrections[place], stored[place].as_ref());
            async move {
                let answer = match stored.map(Delivery::slot) {
                    Some(slot) => self.correct_one(now, correction, slot).await?,
                    None => Corrected::OtherState,
                };
                Ok((place, answer))
            }
        };
        let answer = |(place, answer): (usize, Corrected)| answers[place] = answer;
        at_once(CORRECTED, 0..corrections.len(), correct, answer).await?;
        if answers.contains(&Corrected::Done) {
            // Emails are built from the next reads, as after a claim, so these must be current.
            self.caught_up().await?;
        }
        Ok(answers)
    }

    async fn find_deliveries(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        let found = self.newest(filter, limit).await?;
        // The caller treats a report without a row as unknown, so the read must be current.
        let missing = match filter {
            DeliveryFilter::Tags(tags) => found.len() < tags.len(),
            DeliveryFilter::ProviderIds(ids) => {
                let known = found
                    .iter()
                    .filter_map(|row| row.outcome.provider_id.as_ref());
                known.collect::<HashSet<_>>().len() < ids.len()
            }
            _ => false,
        };
        if !missing {
            return Ok(found);
        }
        self.caught_up().await?;
        self.newest(filter, limit).await
    }
}

/// Selects rows that are not settled and that this owner has leased.
fn held(owner: &str) -> Document {
    let open = [
        DeliveryState::Pending.as_str(),
        DeliveryState::Sending.as_str(),
    ];
    doc! {"slot": {"$exists": true}, "state": {"$in": open.as_slice()}, "lease.owner": owner}
}

/// Requires that a row in no call is still in none.
fn require(when: &mut Document, from: DeliveryState) {
    if from == DeliveryState::Pending {
        when.insert("state", from.as_str());
    }
}

/// The fields that only open rows have.
fn open() -> Document {
    doc! {"slot": "", "lease": ""}
}

impl Mongo {
    async fn correct_one(
        &self,
        now: DateTime<Utc>,
        correction: &Correction,
        slot: String,
    ) -> Result<Corrected> {
        let revision = Oid::new();
        let (pending, sent) = (DeliveryState::Pending, DeliveryState::Sent);
        let (from, mut set, unset) = match correction {
            Correction::Cancel { reason, .. } => {
                let canceled = DeliveryState::Canceled.as_str();
                let set = doc! {"state": canceled, "settled": date(now), "reason": reason};
                (pending, set, open())
            }
            Correction::Judge {
                decision, reason, ..
            } => {
                let (set, unset) = match decision {
                    OperatorDecision::Sent => (
                        doc! {"state": sent.as_str(), "settled": date(now), "reason": reason},
                        Document::new(),
                    ),
                    OperatorDecision::NotSent => (
                        doc! {"state": pending.as_str(), "slot": slot, "lease": lease(None), "reason": reason},
                        doc! {"settled": ""},
                    ),
                };
                (DeliveryState::Unknown, set, unset)
            }
            Correction::Reopen(row) => {
                let mut set = doc! {
                    "state": pending.as_str(),
                    "slot": slot,
                    "lease": lease(row.lease.as_ref()),
                    "created": date(now),
                    "refusals": 0,
                    "reopened": i64::from(row.reopened),
                };
                if let Some(reach) = &row.watermarks {
                    let cover = |(stack, n): &(StackId, u32)| doc! {"s": stack.to_string(), "n": i64::from(*n)};
                    set.insert("covers", reach.iter().map(cover).collect::<Vec<_>>());
                }
                let unset = doc! {"settled": "", "call": "", "tried": "", "provider_id": ""};
                (DeliveryState::Failed, set, unset)
            }
        };
        set.insert("stamp", revision);
        let update = grouped::operators([("$set", set), ("$unset", unset)]);
        // With its own revision, it was corrected by an attempt whose reply was lost.
        let is_open = from == pending;
        let before = doc! {"state": from.as_str(), "slot": {"$exists": is_open}};
        let which = [before, doc! {"stamp": revision}];
        let which = doc! {"_id": correction.id().as_str(), "$or": which.as_slice()};
        let doing = "correcting deliveries";
        let updated = self.update_one(doing, DELIVERIES, &which, &update, false);
        Ok(match updated.await? {
            Some(1) => Corrected::Done,
            Some(_) => Corrected::OtherState,
            None => Corrected::Busy,
        })
    }

    async fn newest(&self, filter: &DeliveryFilter<'_>, limit: usize) -> Result<Vec<Delivery>> {
        let rows = match *filter {
            DeliveryFilter::Ids(ids) => {
                let (doing, names) = ("reading deliveries", ids.iter().map(DeliveryId::as_str));
                return self
                    .records_by_id::<DeliveryRecord>(doing, DELIVERIES, names)
                    .await;
            }
            DeliveryFilter::State(state) => doc! {"state": state.as_str()},
            DeliveryFilter::StateSince(state, since) => doc! {
                "state": state.as_str(), "created": {"$gte": date(since)},
            },
            DeliveryFilter::StateWithin(state, span, feedback) => {
                let mut rows = doc! {"state": state.as_str()};
                let mut created = Document::new();
                created.extend(span.since.map(|since| ("$gte".to_owned(), date(since))));
                created.extend(span.until.map(|until| ("$lt".to_owned(), date(until))));
                if !created.is_empty() {
                    rows.insert("created", created);
                }
                put(&mut rows, "feedback.news", feedback.map(ReportKind::as_str));
                rows
            }
            DeliveryFilter::User(user) => doc! {"user": user.as_str()},
            DeliveryFilter::OpenDigests(users) => {
                let slots: Vec<String> = users.iter().map(digest_slot).collect();
                doc! {"slot": {"$in": slots}}
            }
            DeliveryFilter::Tags(tags) => {
                let tags: Vec<&str> = tags.iter().map(Tag::as_str).collect();
                doc! {"tag": {"$in": tags}}
            }
            DeliveryFilter::ProviderIds(ids) => doc! {"provider_id": {"$in": ids}},
        };
        let options = in_order(doc! {"created": -1, "_id": -1}, limit);
        let doing = "looking for deliveries";
        self.find_records::<DeliveryRecord>(doing, DELIVERIES, &rows, options)
            .await
    }
}
