//! Finds unknown names in events: types that are not configured while others are, and objects and
//! users without a record.
//!
//! Such events are accepted, unless `strict_types` rejects their type, because configuration and
//! records may follow. Responses, the dry run and `status` report them. Events about unknown
//! objects are not emailed unless their type allows it (P6).

use std::sync::Arc;

use crate::context::Context;
use crate::domain::{Event, Object, ObjectKey, Policies, Selector, UserId};
use crate::engine::Result;
use crate::engine::coalescer::{self, Coalescer};
use crate::engine::eligibility::event_facts::EventFacts;
use crate::engine::ingest::{MAX_SHARED_WRITE_OBJECTS, NewEvent};
use crate::store::{self, UserFilter};
use crate::wire::event::{MAX_LISTED_NAMES, UnknownNames};

/// The most objects, and the most users, of one call that are looked up.
const MAX_NAMES: usize = 1_000;
// All requests that share a look-up fit into the limit.
const _: () = assert!(coalescer::MAX_REQUESTS_PER_CALL * MAX_SHARED_WRITE_OBJECTS <= MAX_NAMES);

impl UnknownNames {
    /// Records what is unknown of an event, whose facts must be loaded.
    pub fn add_unknown(&mut self, event: &Event, event_facts: &EventFacts, policies: &Policies) {
        if policies.is_probably_mistyped(&event.kind) {
            *self.types.entry(event.kind.clone()).or_default() += 1;
        }
        if event_facts.object(event).is_none() {
            self.events_about_objects += 1;
            if self.objects.len() <= MAX_LISTED_NAMES {
                self.objects.insert(policies.object_key(event));
                self.object_event_types.insert(event.kind.clone());
            }
        }
    }
}

/// The events and users of one request.
#[derive(Debug, Clone)]
pub struct RequestNames {
    events: Vec<Event>,
    users: Vec<UserId>,
}

impl From<&NewEvent> for RequestNames {
    fn from(request: &NewEvent) -> Self {
        let users = request.audience.named_users().iter().take(MAX_NAMES);
        Self { events: request.events(), users: users.cloned().collect() }
    }
}

/// Looks up whether names are known.
#[derive(Clone)]
pub struct NameLookup {
    pub(crate) context: Arc<Context>,
    /// Combines concurrent short requests into one look-up.
    pub(crate) shared_lookups: Arc<Coalescer<RequestNames, UnknownNames>>,
}

impl NameLookup {
    /// Returns the unknown names of each request, in the order of the requests. Checks the first
    /// thousand objects and the first thousand users. Concurrent short requests share a look-up.
    pub async fn find_unknown(&self, requests: &[RequestNames]) -> Result<Vec<UnknownNames>> {
        let is_short = |request: &RequestNames| {
            request.events.len() <= MAX_SHARED_WRITE_OBJECTS
                && request.users.len() <= MAX_SHARED_WRITE_OBJECTS
        };
        match requests {
            [request] if is_short(request) => {
                let look_up = |requests: Vec<RequestNames>| {
                    let names = self.clone();
                    async move { names.look_up(&requests).await }
                };
                Ok(vec![self.shared_lookups.call(request.clone(), look_up).await?])
            }
            _ => Ok(self.look_up(requests).await?),
        }
    }

    /// Returns a sentence for each reason why users will not see an accepted event, with what to do
    /// about it. Records, objects and followers may still come later.
    pub async fn warnings(&self, request: &NewEvent) -> Result<Vec<String>> {
        let unknown = self.find_unknown(&[RequestNames::from(request)]).await?;
        let mut warnings: Vec<String> =
            unknown.iter().flat_map(|names| names.warnings(&self.context.policies)).collect();
        let model = self.context.policies.policy(&request.kind).model.as_ref();
        let keys: Vec<ObjectKey> =
            request.objects.iter().map(|object| ObjectKey::from_parts(model, object)).collect();
        let store = &self.context.store;
        let objects = store.objects(&keys).await?.into_iter().flatten();
        for Object { key, .. } in objects.filter(|object| !object.notifiable) {
            warnings.push(format!("{key:?} is withdrawn: no feed and no email includes it"));
        }
        if let Selector::FollowersOf(keys) = &request.audience.to
            && let [key] = &keys[..]
        {
            let followers = store.find_users(&UserFilter::Follow(key), None, 1).await?;
            if followers.is_empty() {
                warnings.push(format!("no user follows {key}"));
            }
        }
        Ok(warnings)
    }

    async fn look_up(&self, requests: &[RequestNames]) -> store::Result<Vec<UnknownNames>> {
        let mut event_facts = EventFacts::for_emails(&self.context);
        let events = requests.iter().flat_map(|request| &request.events);
        let users = requests.iter().flat_map(|request| &request.users);
        let users: Vec<UserId> = users.take(MAX_NAMES).cloned().collect();
        let records = self.context.store.users(&users);
        let ((), records) = futures::try_join!(
            event_facts.load_objects_and_retractions(events.take(MAX_NAMES)),
            records
        )?;
        let mut is_missing = records.into_iter().map(|record| record.is_none());
        let mut remaining = MAX_NAMES;
        let unknown_of = |request: &RequestNames| {
            let mut unknown = UnknownNames::default();
            for event in request.events.iter().take(remaining) {
                unknown.add_unknown(event, &event_facts, &self.context.policies);
            }
            remaining -= request.events.len().min(remaining);
            let users = request.users.iter().zip(is_missing.by_ref());
            let missing = users.filter(|(_, is_missing)| *is_missing);
            unknown.users.extend(missing.map(|(user, _)| user.clone()));
            unknown
        };
        Ok(requests.iter().map(unknown_of).collect())
    }

    /// Returns the unknown names of the newest `fanouts` journal entries, of their first thousand
    /// objects.
    pub async fn find_unknown_in_recent(&self, fanouts: usize) -> Result<UnknownNames> {
        let events = self.context.store.newest_events(fanouts).await?;
        let names = RequestNames { events: events.concat(), users: Vec::new() };
        Ok(self.look_up(&[names]).await?.pop().unwrap_or_default())
    }
}
