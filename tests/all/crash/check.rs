//! Compares the sent emails with the stored records after the remaining work is finished.
//!
//! The provider's log counts, not our records. Only an `unknown` delivery excuses a missing email,
//! and nothing excuses a duplicate.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use tidings::domain::{
    Batch, BatchState, Delivery, DeliveryId, DeliverySource, DeliveryState, Entry, Id,
};
use tidings::store::BatchFilter;

use super::stage::{Kind, Stage, Work};
use crate::mail::provider::{Dialect, Request};
use crate::support::{BatchCounts, Shorthand, user};

/// A limit above the number of records of any kind.
const ALL: usize = 100_000;

impl Stage<'_> {
    pub async fn assert_consistent(&self, when: &str) {
        let emailed = self.count_emailed();
        let twice: Vec<_> = emailed.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{when}: told twice: {twice:?}");
        let unknown = self.fresh.deliveries_in(DeliveryState::Unknown, ALL).await;
        assert!(
            self.dialect != Dialect::Resend || unknown.is_empty(),
            "{when}: a call that can be made again is never unknown: {unknown:?}"
        );
        let batches = self.batches(when).await;
        self.assert_batches_emailed_once(when, &batches);
        for (name, work) in &self.works {
            for person in &work.people {
                let was_emailed = emailed.contains_key(&(person.clone(), name.clone()));
                if !work.applies {
                    assert!(!was_emailed, "{when}: {person} heard of {name}, which is withdrawn");
                } else if !was_emailed {
                    let excused = match work.kind {
                        Kind::Digest => self.is_covered(person, name, work, &unknown).await,
                        Kind::Batch | Kind::Immediate => {
                            let batch = &batches[&(person.clone(), work.fanout)];
                            let is_same = |row: &Delivery| row.id == DeliveryId::batch(batch.id);
                            unknown.iter().any(is_same)
                        }
                    };
                    assert!(
                        excused,
                        "{when}: {person} never heard of {name} of {}, {:?}",
                        work.day, work.kind
                    );
                }
            }
        }
    }

    /// Returns the batch of each user and event. Asserts that each batched event is in exactly one
    /// batch, and that all batches have ended.
    async fn batches(&self, when: &str) -> HashMap<(String, Id), Batch> {
        let counts = self.fresh.batch_counts().await;
        assert_eq!(counts, BatchCounts::default(), "{when}: a batch was left");
        let all = BatchFilter::default();
        let filed = self.fresh.find_batches(&all, ALL).await.unwrap();
        let mut of = HashMap::new();
        for batch in filed {
            assert_eq!(batch.events.count, batch.joined.len() as u64, "{when}: {batch:?}");
            for fanout in &batch.joined {
                let event = (batch.user.to_string(), *fanout);
                if let Some(other) = of.insert(event, batch.clone()) {
                    panic!("{when}: {fanout} is in both {other:?} and {batch:?}");
                }
            }
        }
        let batched = self.works.values().filter(|work| work.kind != Kind::Digest);
        let expected: BTreeSet<(String, Id)> = batched
            .flat_map(|work| {
                let people = work.people.iter();
                people.map(|person| (person.clone(), work.fanout))
            })
            .collect();
        let found: BTreeSet<(String, Id)> = of.keys().cloned().collect();
        assert_eq!(found, expected, "{when}: what is in batches");
        of
    }

    /// Asserts that the provider accepted at most one email for each closed batch, and none for a
    /// canceled one.
    fn assert_batches_emailed_once(&self, when: &str, batches: &HashMap<(String, Id), Batch>) {
        let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
        for email in self.provider.emails() {
            *accepted.entry(email.delivery).or_default() += 1;
        }
        for batch in batches.values() {
            let tag = DeliveryId::batch(batch.id).tag();
            let times = accepted.get(tag.as_str()).copied().unwrap_or_default();
            let right = match batch.state {
                BatchState::Open | BatchState::Closing => false,
                // If the outcome is unknown, the provider may or may not have accepted the email.
                BatchState::Closed => times <= 1,
                BatchState::Canceled => times == 0,
            };
            assert!(right, "{when}: emailed {times} times: {batch:?}");
        }
    }

    /// Returns whether one of these deliveries covers the user's event.
    async fn is_covered(&self, person: &str, name: &str, work: &Work, rows: &[Delivery]) -> bool {
        let entries = self.fresh.entries_of(&user(person), work.day).await;
        let is_it =
            |entry: &Entry| matches!(entry, Entry::Event(event) if event.object.as_str() == name);
        let Some(index) = entries.iter().position(is_it) else {
            return false;
        };
        rows.iter()
            .filter(|row| row.user.as_str() == person)
            .filter(|row| matches!(row.source, DeliverySource::Digest(..)))
            .flat_map(|row| &row.watermarks)
            .any(|(stack, n)| stack.day == work.day && index < *n as usize)
    }

    /// Counts how often each work was emailed to each user, according to the provider's log.
    fn count_emailed(&self) -> BTreeMap<(String, String), usize> {
        let (mut emailed, mut keys) = (BTreeMap::new(), BTreeSet::new());
        let requests = self.provider.requests().into_iter();
        // A query sends no email.
        let is_accepted_call = |request: &Request| request.accepted && request.method == "POST";
        for request in requests.filter(is_accepted_call) {
            // A repeated call with the same idempotency key sends no email.
            if self.dialect == Dialect::Resend
                && !keys.insert(request.header("idempotency-key").to_owned())
            {
                continue;
            }
            for (to, text) in emails(self.dialect, &request.json()) {
                let person = to.split('@').next().unwrap().to_owned();
                for work in self.works.keys() {
                    if text.contains(&format!("Work {}.", &work[1..])) {
                        *emailed.entry((person.clone(), work.clone())).or_default() += 1;
                    }
                }
            }
        }
        emailed
    }
}

/// Returns the recipient and the text of each email in a call.
fn emails(dialect: Dialect, body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match dialect {
        Dialect::SendGrid => {
            let content = text(&body["content"][0]["value"]);
            let people = body["personalizations"].as_array().unwrap().iter();
            people.map(|person| (text(&person["to"][0]["email"]), content.clone())).collect()
        }
        Dialect::Postmark => {
            let emails = body.as_array().unwrap().iter();
            emails.map(|email| (text(&email["To"]), text(&email["TextBody"]))).collect()
        }
        Dialect::Ses => {
            let to = text(&body["Destination"]["ToAddresses"][0]);
            vec![(to, text(&body["Content"]["Simple"]["Body"]["Text"]["Data"]))]
        }
        _ => {
            let emails = body.as_array().unwrap().iter();
            emails.map(|email| (text(&email["to"][0]), text(&email["text"]))).collect()
        }
    }
}
