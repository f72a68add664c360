//! The ledger, with one row per email.
//!
//! Two unique keys guarantee P2: the row's id, and the slot, which only open rows have. Every state
//! change is a conditional write by [`super::grouped_updates`] that leaves its revision. So a
//! repeated change is neither made twice nor reported as failed.

use std::collections::HashSet;

use async_trait::async_trait;
use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};

use super::bulk::{CommandKind, Update};
use super::grouped_updates::{Change, operators};
use super::reads::records;
use super::{DELIVERIES, Mongo, date, given, lease};
use crate::domain::coordination::{LONGEST_LEASE, LONGEST_WAIT};
use crate::domain::delivery::{
    Corrected, Correction, Handover, OperatorDecision, Transition, digest_slot,
};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Lease, ReportKind, StackId, Tag};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::traits::in_order_of;
use crate::store::{Claim, Deliveries, DeliveryFilter, Result};

#[async_trait]
impl Deliveries for Mongo {
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>> {
        let records = rows.iter().map(DeliveryRecord::document);
        let inserted = self.write(CommandKind::Insert, DELIVERIES, records).await?;
        let refused = inserted.duplicates()?;
        let mut opened = vec![true; rows.len()];
        for refused in &refused {
            opened[refused.item] = false;
        }
        // If the insert was sent twice, it may have conflicted with its own row.
        let doubtful = refused.iter().filter(|refused| refused.resent);
        let doubtful: Vec<usize> = doubtful.map(|refused| refused.item).collect();
        let ids: Vec<DeliveryId> = doubtful.iter().map(|item| rows[*item].id.clone()).collect();
        for (item, stored) in doubtful.into_iter().zip(self.deliveries(&ids).await?) {
            let (row, stored) = (&rows[item], stored.as_ref());
            opened[item] = stored.map(|stored| (stored.marker, &stored.lease))
                == Some((row.marker, &row.lease));
        }
        Ok(opened)
    }

    async fn claim(&self, lease: &Lease, which: &Claim<'_>) -> Result<Vec<Delivery>> {
        let (rows, limit) = match *which {
            Claim::Free(now, limit) => {
                // Every open row has a lease, even if it has expired. No closed row has one.
                let over = doc! {"lease.until": {"$lte": date(now)}};
                // No lease and no wait can end this late, so these rows are free.
                let unbelieved = doc! {"lease.until": {"$gt": date(now + LONGEST_LEASE)}, "$or": [
                    {"lease.owner": {"$exists": true}},
                    {"lease.until": {"$gt": date(now + LONGEST_WAIT)}},
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
        let order = doc! {"slot": 1};
        let find = || {
            let free = self.find(DELIVERIES, rows.clone()).sort(order.clone());
            free.limit(limit).ids()
        };
        let claimed = self.claim_raw(DELIVERIES, &rows, order.clone(), lease, find);
        records::<DeliveryRecord>(&claimed.await?)
    }

    async fn advance(
        &self,
        lease: &Lease,
        now: DateTime<Utc>,
        transitions: &[Transition],
    ) -> Result<Vec<bool>> {
        let change = |transition: &Transition, revision: Oid| {
            // Only rows that are not settled and that this owner has leased.
            let is_open = doc! {"$in": [
                DeliveryState::Pending.as_str(), DeliveryState::Sending.as_str(),
            ]};
            let mut change = Change {
                when: doc! {"slot": {"$exists": true}, "lease.owner": &lease.owner, "state": is_open},
                set: doc! {"stamp": revision},
                ..Change::default()
            };
            match transition {
                Transition::HandOver(Handover { call, items, .. }) => {
                    // Another task of its owner may have claimed and handed it over meanwhile.
                    change.when.insert("state", DeliveryState::Pending.as_str());
                    change.set.extend(doc! {
                        "state": DeliveryState::Sending.as_str(), "lease.until": date(lease.until),
                        "call": call, "tried": date(now),
                    });
                    change.own.insert("items", i64::from(*items));
                    change.add.insert("attempts", 1);
                }
                Transition::Recall(_) => {
                    change.when.insert("state", DeliveryState::Sending.as_str());
                    change.set.insert("state", DeliveryState::Pending.as_str());
                    change.unset.insert("call", "");
                }
                Transition::Hold(_) => {
                    change.when.remove("state");
                    change.set.insert("lease.until", date(lease.until));
                }
                Transition::Defer(deferral) => {
                    require(&mut change.when, deferral.from);
                    // A lease without an owner blocks claims until then, and the release of an
                    // owner's leases does not end it.
                    change.set.extend(given(doc! {
                        "state": deferral.state.as_str(),
                        "lease": {"until": date(deferral.not_before)},
                        "reason": deferral.reason.as_deref(),
                    }));
                    // The owner loses the lease here, so a repeated command counts nothing.
                    if deferral.has_failed {
                        change.add.insert("refusals", 1);
                    }
                }
                Transition::Settle(settlement) | Transition::Conclude(settlement) => {
                    require(&mut change.when, settlement.from);
                    change
                        .set
                        .extend(doc! {"state": settlement.state.as_str(), "settled": date(now)});
                    change.own.extend(given(doc! {
                        "items": i64::from(settlement.items),
                        "provider_id": settlement.provider_id.as_deref(),
                    }));
                    match &settlement.reason {
                        Some(reason) => change.set.insert("reason", reason),
                        // The reason for an earlier deferral no longer applies.
                        None => change.unset.insert("reason", ""),
                    };
                    if matches!(transition, Transition::Conclude(_)) {
                        change.unset.extend(open());
                    }
                }
            }
            (Bson::from(transition.id().as_str()), change)
        };
        self.change_each(DELIVERIES, transitions, change).await
    }

    async fn close(&self, ids: &[DeliveryId]) -> Result<()> {
        let settled = DeliveryState::ALL.into_iter().filter(|state| state.settled());
        let settled: Vec<&str> = settled.map(DeliveryState::as_str).collect();
        let close = |id: &DeliveryId| {
            let change = Change {
                when: doc! {"state": {"$in": &settled}},
                unset: open(),
                ..Change::default()
            };
            (Bson::from(id.as_str()), change)
        };
        let changes: Vec<_> = ids.iter().map(close).collect();
        self.change_all(DELIVERIES, &changes).await.map(drop)
    }

    async fn correct(
        &self,
        now: DateTime<Utc>,
        corrections: &[Correction],
    ) -> Result<Vec<Corrected>> {
        let ids: Vec<DeliveryId> = corrections.iter().map(|one| one.id().clone()).collect();
        let stored = self.deliveries(&ids).await?;
        let revision = Oid::new();
        let correct = |(correction, row): (&Correction, &Option<Delivery>)| {
            let slot = row.as_ref().map(Delivery::slot);
            correcting(now, correction, slot.unwrap_or_default(), revision)
        };
        let statements = corrections.iter().zip(&stored).map(correct);
        let outcome = self.write(CommandKind::Update, DELIVERIES, statements).await?;
        let is_whole = outcome.n == corrections.len() as u64;
        let busy = outcome.duplicates()?;
        let revision = Bson::from(revision);
        let ids: Vec<Bson> = ids.iter().map(|id| id.as_str().into()).collect();
        let rows = ids.iter().map(|id| (id, &revision)).collect();
        // A worker that claims a corrected row replaces the stamp, so it is only read if an update
        // matched nothing. An attempt whose reply was lost may have corrected such a row.
        let done = match is_whole && busy.is_empty() {
            true => vec![true; ids.len()],
            false => self.are_stored(DELIVERIES, "stamp", rows).await?,
        };
        let answer = |is_done| match is_done {
            true => Corrected::Done,
            false => Corrected::OtherState,
        };
        let mut answers: Vec<Corrected> = done.into_iter().map(answer).collect();
        for refused in busy {
            answers[refused.item] = Corrected::Busy;
        }
        if answers.contains(&Corrected::Done) {
            // Emails are built from the next reads, as after a claim, so these must be current.
            self.caught_up().await?;
        }
        Ok(answers)
    }

    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        let found = self.find_by_id(DELIVERIES, ids.iter().map(DeliveryId::as_str));
        let found = found.records::<DeliveryRecord>().await?;
        Ok(in_order_of(ids, found, |row| &row.id))
    }

    async fn find_deliveries(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        if filter.matches_nothing() {
            return Ok(Vec::new());
        }
        let found = self.newest(filter, limit).await?;
        // The caller treats a report without a row as unknown, so the read must be current.
        let missing = match filter {
            DeliveryFilter::Tags(tags) => found.len() < tags.len(),
            DeliveryFilter::ProviderIds(ids) => {
                let known = found.iter().filter_map(|row| row.outcome.provider_id.as_ref());
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

/// Returns the statement that corrects a row. Another open row with the slot makes it a duplicate.
fn correcting(
    now: DateTime<Utc>,
    correction: &Correction,
    slot: String,
    revision: Oid,
) -> Update<Document> {
    let (pending, sent) = (DeliveryState::Pending, DeliveryState::Sent);
    let (from, mut set, unset) = match correction {
        Correction::Cancel(_, reason) => {
            let canceled = DeliveryState::Canceled.as_str();
            let set = doc! {"state": canceled, "settled": date(now), "reason": reason};
            (pending, set, open())
        }
        Correction::Judge(_, decision, reason) => {
            let (set, unset) = match decision {
                OperatorDecision::Sent => {
                    (doc! {"state": sent.as_str(), "settled": date(now), "reason": reason}, doc! {})
                }
                OperatorDecision::NotSent => (
                    doc! {"state": pending.as_str(), "slot": slot, "lease": lease(None), "reason": reason},
                    doc! {"settled": ""},
                ),
            };
            (DeliveryState::Unknown, set, unset)
        }
        Correction::Reopen(row) => {
            let cover =
                |(stack, n): &(StackId, u32)| doc! {"s": stack.to_string(), "n": i64::from(*n)};
            let covers = row.watermarks.as_ref();
            let covers = covers.map(|all| all.iter().map(cover).collect::<Vec<_>>());
            let set = given(doc! {
                "state": pending.as_str(),
                "slot": slot,
                "lease": lease(row.lease.as_ref()),
                "created": date(now),
                "refusals": 0,
                "reopened": i64::from(row.reopened),
                "covers": covers,
            });
            let unset = doc! {"settled": "", "call": "", "tried": "", "provider_id": ""};
            (DeliveryState::Failed, set, unset)
        }
    };
    set.insert("stamp", revision);
    // With its own revision, it was corrected by an attempt whose reply was lost.
    let is_open = from == pending;
    let before = doc! {"state": from.as_str(), "slot": {"$exists": is_open}};
    let which = [before, doc! {"stamp": revision}];
    let which = doc! {"_id": correction.id().as_str(), "$or": which.as_slice()};
    Update::new(which, operators([("$set", set), ("$unset", unset)]))
}

impl Mongo {
    async fn newest(&self, filter: &DeliveryFilter<'_>, limit: usize) -> Result<Vec<Delivery>> {
        let rows = match *filter {
            DeliveryFilter::State(state, span, feedback) => {
                let created = given(doc! {
                    "$gte": span.since.map(date), "$lt": span.until.map(date),
                });
                given(doc! {
                    "state": state.as_str(),
                    "created": Some(created).filter(|range| !range.is_empty()),
                    "feedback.news": feedback.map(ReportKind::as_str),
                })
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
        let newest = doc! {"created": -1, "_id": -1};
        let found = self.find(DELIVERIES, rows).sort(newest);
        found.limit(limit).records::<DeliveryRecord>().await
    }
}
