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
use super::reads::{in_order_of, read_records};
use super::{DELIVERIES, Mongo, date, lease_document, without_nulls};
use crate::domain::coordination::{MAX_DEFERRAL, MAX_LEASE};
use crate::domain::delivery::{
    Corrected, Correction, Handover, OperatorDecision, Settlement, Transition, digest_slot,
};
use crate::domain::{Delivery, DeliveryId, DeliveryState, Lease, ReportKind, StackId, Tag};
use crate::store::record::delivery::DeliveryRecord;
use crate::store::{Deliveries, DeliveryFilter, Result, RowsToLease};

#[async_trait]
impl Deliveries for Mongo {
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>> {
        let records = rows.iter().map(DeliveryRecord::for_document);
        let inserted = self.write(CommandKind::Insert, DELIVERIES, records).await?;
        let duplicates = inserted.duplicates()?;
        let mut opened = vec![true; rows.len()];
        for duplicate in &duplicates {
            opened[duplicate.item] = false;
        }
        // If the insert was sent twice, it may have conflicted with its own row.
        let resent = duplicates.iter().filter(|duplicate| duplicate.is_resent);
        let indices: Vec<usize> = resent.map(|duplicate| duplicate.item).collect();
        let ids: Vec<DeliveryId> = indices.iter().map(|index| rows[*index].id.clone()).collect();
        for (index, stored) in indices.into_iter().zip(self.deliveries(&ids).await?) {
            let row = &rows[index];
            opened[index] = stored
                .is_some_and(|stored| stored.marker == row.marker && stored.lease == row.lease);
        }
        Ok(opened)
    }

    async fn claim(&self, lease: &Lease, which: &RowsToLease<'_>) -> Result<Vec<Delivery>> {
        let (rows, limit) = match *which {
            RowsToLease::Claimable(now, limit) => {
                // In an open row, `lease.until` is the end of its lease or of its deferral. After
                // that, the row can be claimed. No closed row has one.
                let expired = doc! {"lease.until": {"$lte": date(now)}};
                // No lease and no wait can end this late, so these rows are free.
                let invalid = doc! {"lease.until": {"$gt": date(now + MAX_LEASE)}, "$or": [
                    {"lease.owner": {"$exists": true}},
                    {"lease.until": {"$gt": date(now + MAX_DEFERRAL)}},
                ]};
                (doc! {"$or": [expired, invalid], "slot": {"$exists": true}}, limit)
            }
            RowsToLease::Call(call) => {
                let sending = DeliveryState::Sending.as_str();
                (doc! {"call": call, "slot": {"$exists": true}, "state": sending}, usize::MAX)
            }
        };
        let order = doc! {"slot": 1};
        let find = || self.find(DELIVERIES, rows.clone()).sort(order.clone()).limit(limit).ids();
        let claimed = self.claim_raw(DELIVERIES, &rows, order.clone(), lease, find).await?;
        read_records::<DeliveryRecord>(&claimed)
    }

    async fn advance(
        &self,
        lease: &Lease,
        now: DateTime<Utc>,
        transitions: &[Transition],
    ) -> Result<Vec<bool>> {
        let change = |transition: &Transition, revision: Oid| {
            let change = transition_change(transition, lease, now, revision);
            (Bson::from(transition.id().as_str()), change)
        };
        self.change_each(DELIVERIES, transitions, change).await
    }

    async fn close(&self, ids: &[DeliveryId]) -> Result<()> {
        let settled_states = DeliveryState::ALL.into_iter().filter(|state| state.is_settled());
        let settled: Vec<&str> = settled_states.map(DeliveryState::as_str).collect();
        let close = |id: &DeliveryId| {
            let change = Change {
                when: doc! {"state": {"$in": &settled}},
                unset: fields_of_open_rows(),
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
            let slot = row.as_ref().map(Delivery::slot).unwrap_or_default();
            correction_statement(now, correction, slot, revision)
        };
        let statements = corrections.iter().zip(&stored).map(correct);
        let outcome = self.write(CommandKind::Update, DELIVERIES, statements).await?;
        let is_complete = outcome.n == corrections.len() as u64;
        let busy = outcome.duplicates()?;
        // A worker that claims a corrected row replaces the revision. So the revision is only read
        // if an update matched nothing. An attempt whose reply was lost may have corrected the row.
        let done = if is_complete && busy.is_empty() {
            vec![true; ids.len()]
        } else {
            let revision = Bson::from(revision);
            let ids: Vec<Bson> = ids.iter().map(|id| id.as_str().into()).collect();
            let rows = ids.iter().map(|id| (id, &revision)).collect();
            self.are_stored(DELIVERIES, "stamp", rows).await?
        };
        let corrected = |is_done| if is_done { Corrected::Done } else { Corrected::OtherState };
        let mut outcomes: Vec<Corrected> = done.into_iter().map(corrected).collect();
        for duplicate in busy {
            outcomes[duplicate.item] = Corrected::Busy;
        }
        if outcomes.contains(&Corrected::Done) {
            // Emails are built from the next reads, as after a claim, so these must be current.
            self.caught_up().await?;
        }
        Ok(outcomes)
    }

    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        let find = self.find_by_id(DELIVERIES, ids.iter().map(DeliveryId::as_str));
        let rows = find.records::<DeliveryRecord>().await?;
        Ok(in_order_of(ids, rows, |row| &row.id))
    }

    async fn find_deliveries(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        if filter.matches_nothing() {
            return Ok(Vec::new());
        }
        let found = self.newest_rows(filter, limit).await?;
        // The caller treats a report without a row as unknown, so the read must be current.
        let is_incomplete = match filter {
            DeliveryFilter::Tags(tags) => found.len() < tags.len(),
            DeliveryFilter::ProviderIds(ids) => {
                let known = found.iter().filter_map(|row| row.outcome.provider_id.as_ref());
                known.collect::<HashSet<_>>().len() < ids.len()
            }
            _ => false,
        };
        if !is_incomplete {
            return Ok(found);
        }
        self.caught_up().await?;
        self.newest_rows(filter, limit).await
    }
}

/// Returns the change for a transition. It applies to open rows that the owner of this lease has
/// leased, and that are not settled unless their lease is only renewed.
fn transition_change(
    transition: &Transition,
    lease: &Lease,
    now: DateTime<Utc>,
    revision: Oid,
) -> Change {
    let (pending, sending) = (DeliveryState::Pending.as_str(), DeliveryState::Sending.as_str());
    let mut change = Change {
        when: doc! {
            "slot": {"$exists": true}, "lease.owner": &lease.owner,
            "state": {"$in": [pending, sending]},
        },
        set: doc! {"stamp": revision},
        ..Change::default()
    };
    match transition {
        Transition::HandOver(Handover { call, items, .. }) => {
            // Another task of its owner may have claimed and handed it over meanwhile.
            change.when.insert("state", pending);
            change.set.extend(doc! {
                "state": sending, "lease.until": date(lease.until), "call": call,
                "tried": date(now),
            });
            change.own.insert("items", i64::from(*items));
            change.add.insert("attempts", 1);
        }
        Transition::ReturnToPending(_) => {
            change.when.insert("state", sending);
            change.set.insert("state", pending);
            change.unset.insert("call", "");
        }
        Transition::RenewLease(_) => {
            change.when.remove("state");
            change.set.insert("lease.until", date(lease.until));
        }
        Transition::Defer(deferral) => {
            require_still_pending(&mut change.when, deferral.from);
            // A lease without an owner blocks claims until then, and the release of an owner's
            // leases does not end it.
            change.set.extend(without_nulls(doc! {
                "state": deferral.state.as_str(),
                "lease": {"until": date(deferral.not_before)},
                "reason": deferral.reason.as_deref(),
            }));
            // The owner loses the lease here, so a repeated command counts nothing.
            if deferral.has_failed {
                change.add.insert("refusals", 1);
            }
        }
        Transition::Settle(settlement) => settle(&mut change, settlement, now),
        Transition::SettleAndClose(settlement) => {
            settle(&mut change, settlement, now);
            change.unset.extend(fields_of_open_rows());
        }
    }
    change
}

fn settle(change: &mut Change, settlement: &Settlement, now: DateTime<Utc>) {
    require_still_pending(&mut change.when, settlement.from);
    change.set.extend(doc! {"state": settlement.state.as_str(), "settled": date(now)});
    change.own.extend(without_nulls(doc! {
        "items": i64::from(settlement.items),
        "provider_id": settlement.provider_id.as_deref(),
    }));
    match &settlement.reason {
        Some(reason) => change.set.insert("reason", reason),
        // The reason for an earlier deferral no longer applies.
        None => change.unset.insert("reason", ""),
    };
}

/// If the change was decided for a pending row, requires that the row is still pending: a call may
/// have started meanwhile.
fn require_still_pending(filter: &mut Document, decided_for: DeliveryState) {
    if decided_for == DeliveryState::Pending {
        filter.insert("state", decided_for.as_str());
    }
}

fn fields_of_open_rows() -> Document {
    doc! {"slot": "", "lease": ""}
}

/// Returns the statement that corrects a row. Another open row with the slot makes it a duplicate.
fn correction_statement(
    now: DateTime<Utc>,
    correction: &Correction,
    slot: String,
    revision: Oid,
) -> Update<Document> {
    let pending = DeliveryState::Pending.as_str();
    let (from, mut set, unset) = match correction {
        Correction::Cancel(_, reason) => {
            let canceled = DeliveryState::Canceled.as_str();
            let set = doc! {"state": canceled, "settled": date(now), "reason": reason};
            (DeliveryState::Pending, set, fields_of_open_rows())
        }
        Correction::ResolveUnknown(_, OperatorDecision::Sent, reason) => {
            let sent = DeliveryState::Sent.as_str();
            let set = doc! {"state": sent, "settled": date(now), "reason": reason};
            (DeliveryState::Unknown, set, doc! {})
        }
        Correction::ResolveUnknown(_, OperatorDecision::NotSent, reason) => {
            let lease = lease_document(None);
            let set = doc! {"state": pending, "slot": slot, "lease": lease, "reason": reason};
            (DeliveryState::Unknown, set, doc! {"settled": ""})
        }
        Correction::Reopen(row) => {
            let cover =
                |(stack, n): &(StackId, u32)| doc! {"s": stack.to_string(), "n": i64::from(*n)};
            let watermarks = row.watermarks.as_ref();
            let set = without_nulls(doc! {
                "state": pending,
                "slot": slot,
                "lease": lease_document(row.lease.as_ref()),
                "created": date(now),
                "refusals": 0,
                "reopened": i64::from(row.reopened),
                "covers": watermarks.map(|list| list.iter().map(cover).collect::<Vec<_>>()),
            });
            let unset = doc! {"settled": "", "call": "", "tried": "", "provider_id": ""};
            (DeliveryState::Failed, set, unset)
        }
    };
    set.insert("stamp", revision);
    let is_open = from == DeliveryState::Pending;
    let q = doc! {"_id": correction.id().as_str(), "$or": [
        {"state": from.as_str(), "slot": {"$exists": is_open}},
        // An attempt whose reply was lost has corrected it.
        {"stamp": revision},
    ]};
    Update::new(q, operators([("$set", set), ("$unset", unset)]))
}

impl Mongo {
    async fn newest_rows(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>> {
        let rows = match *filter {
            DeliveryFilter::State(state, span, feedback) => {
                let created = without_nulls(doc! {
                    "$gte": span.since.map(date), "$lt": span.until.map(date),
                });
                without_nulls(doc! {
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
        let newest_first = doc! {"created": -1, "_id": -1};
        let find = self.find(DELIVERIES, rows).sort(newest_first).limit(limit);
        find.records::<DeliveryRecord>().await
    }
}
