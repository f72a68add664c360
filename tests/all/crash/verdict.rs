//! What must add up when the dust has settled, by what the provider took, the ledger and the
//! batches.
//!
//! The rule: the provider's record is believed before our own. Only a delivery that is `unknown`
//! excuses that somebody never heard of something, and never that they heard twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use tidings::domain::{
    Batch, BatchState, Delivery, DeliveryId, DeliveryState, Entry, Id, Occasion,
};
use tidings::store::BatchFilter;

use super::stage::{Kind, Stage, Work};
use crate::mail::provider::{Dialect, Request};
use crate::support::{BatchCounts, Shorthand, user};

/// More than there are of anything.
const ALL: usize = 100_000;

impl Stage<'_> {
    pub async fn judge(&self, when: &str) {
        let told = self.told();
        let twice: Vec<_> = told.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{when}: told twice: {twice:?}");
        let unknown = self.fresh.deliveries_in(DeliveryState::Unknown, ALL).await;
        let unknown = unknown.unwrap();
        assert!(
            self.dialect != Dialect::Resend || unknown.is_empty(),
            "{when}: a call that can be made again is never unknown: {unknown:?}"
        );
        let batches = self.batches(when).await;
        self.each_batch_was_mailed_once(when, &batches);
        for (name, work) in &self.works {
            for person in &work.people {
                let was_told = told.contains_key(&(person.clone(), name.clone()));
                if !work.applies {
                    assert!(
                        !was_told,
                        "{when}: {person} heard of {name}, which is withdrawn"
                    );
                } else if !was_told {
                    let excused = match work.kind {
                        Kind::Digest => self.is_covered(person, name, work, &unknown).await,
                        Kind::Gathered | Kind::Immediate => {
                            let batch = &batches[&(person.clone(), work.fanout)];
                            let stands = |row: &Delivery| row.id == DeliveryId::batch(batch.id);
                            unknown.iter().any(stands)
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

    /// In which batch each person has each event that was to be gathered: exactly one, which has
    /// ended.
    async fn batches(&self, when: &str) -> HashMap<(String, Id), Batch> {
        let counts = self.fresh.batch_counts().await.unwrap();
        assert_eq!(counts, BatchCounts::default(), "{when}: a batch was left");
        let all = BatchFilter::default();
        let filed = self.fresh.find_batches(&all, None, ALL).await.unwrap();
        let mut of = HashMap::new();
        for batch in filed {
            assert_eq!(
                batch.contents.count,
                batch.joined.len() as u64,
                "{when}: {batch:?}"
            );
            for fanout in &batch.joined {
                let event = (batch.user.to_string(), *fanout);
                if let Some(other) = of.insert(event, batch.clone()) {
                    panic!("{when}: {fanout} is in both {other:?} and {batch:?}");
                }
            }
        }
        let gathered = self.works.values().filter(|work| work.kind != Kind::Digest);
        let owed: BTreeSet<(String, Id)> = gathered
            .flat_map(|work| {
                let people = work.people.iter();
                people.map(|person| (person.clone(), work.fanout))
            })
            .collect();
        let are: BTreeSet<(String, Id)> = of.keys().cloned().collect();
        assert_eq!(are, owed, "{when}: what is in batches");
        of
    }

    /// By what the provider took; one that it never saw says so.
    fn each_batch_was_mailed_once(&self, when: &str, batches: &HashMap<(String, Id), Batch>) {
        let mut taken: BTreeMap<String, usize> = BTreeMap::new();
        for mail in self.provider.mails() {
            *taken.entry(mail.delivery).or_default() += 1;
        }
        for batch in batches.values() {
            let tag = DeliveryId::batch(batch.id).tag();
            let times = taken.get(tag.as_str()).copied().unwrap_or_default();
            let right = match batch.state {
                BatchState::Open | BatchState::Closing => false,
                // Whether one of unknown outcome was taken is not known.
                BatchState::Closed => times <= 1,
                BatchState::Canceled => times == 0,
            };
            assert!(right, "{when}: mailed {times} times: {batch:?}");
        }
    }

    /// Whether one of these deliveries covers the person's event.
    async fn is_covered(&self, person: &str, name: &str, work: &Work, rows: &[Delivery]) -> bool {
        let entries = self.fresh.entries_of(&user(person), work.day).await;
        let is_it =
            |entry: &Entry| matches!(entry, Entry::Event(event) if event.o.as_str() == name);
        let Some(place) = entries.iter().position(is_it) else {
            return false;
        };
        rows.iter()
            .filter(|row| row.user.as_str() == person)
            .filter(|row| matches!(row.occasion, Occasion::Digest { .. }))
            .flat_map(|row| &row.watermarks)
            .any(|(stack, n)| stack.day == work.day && place < *n as usize)
    }

    /// Which works each person was mailed, and how often, as the provider has it.
    fn told(&self) -> BTreeMap<(String, String), usize> {
        let (mut told, mut keys) = (BTreeMap::new(), BTreeSet::new());
        let requests = self.provider.requests().into_iter();
        // What is asked mails nothing.
        let mailed = |request: &Request| request.taken && request.method == "POST";
        for request in requests.filter(mailed) {
            // A call that is made again under its key mails nothing.
            if self.dialect == Dialect::Resend
                && !keys.insert(request.header("idempotency-key").to_owned())
            {
                continue;
            }
            for (to, text) in mails(self.dialect, &request.json()) {
                let person = to.split('@').next().unwrap().to_owned();
                for work in self.works.keys() {
                    if text.contains(&format!("Work {}.", &work[1..])) {
                        *told.entry((person.clone(), work.clone())).or_default() += 1;
                    }
                }
            }
        }
        told
    }
}

/// The mails of a call: to whom, and the text.
fn mails(dialect: Dialect, body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match dialect {
        Dialect::SendGrid => {
            let said = text(&body["content"][0]["value"]);
            let people = body["personalizations"].as_array().unwrap().iter();
            people
                .map(|person| (text(&person["to"][0]["email"]), said.clone()))
                .collect()
        }
        Dialect::Postmark => {
            let mails = body.as_array().unwrap().iter();
            mails
                .map(|mail| (text(&mail["To"]), text(&mail["TextBody"])))
                .collect()
        }
        Dialect::Ses => {
            let to = text(&body["Destination"]["ToAddresses"][0]);
            vec![(to, text(&body["Content"]["Simple"]["Body"]["Text"]["Data"]))]
        }
        _ => {
            let mails = body.as_array().unwrap().iter();
            mails
                .map(|mail| (text(&mail["to"][0]), text(&mail["text"])))
                .collect()
        }
    }
}
