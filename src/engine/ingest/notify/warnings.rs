//! Warns about reasons why users will not see an accepted event.
//!
//! It only reads. It never rejects an event, because users, objects and follows may be added later.

use std::sync::Arc;

use super::Request;
use crate::context::Context;
use crate::domain::{ObjectKey, Selector};
use crate::engine::Result;
use crate::engine::directory::unknown::{Known, Named};
use crate::store::PeopleFilter;

/// Finds the reasons why users will not see an event.
pub struct Warnings {
    pub(crate) known: Known,
    pub(crate) context: Arc<Context>,
}

impl Warnings {
    /// Returns one sentence for each reason, with advice where there is any.
    pub async fn of(&self, request: &Request) -> Result<Vec<String>> {
        let unknown = self.known.of(&[Named::from(request)]).await?;
        let told = unknown
            .iter()
            .flat_map(|unknown| unknown.warnings(&self.context.policies));
        let mut warnings: Vec<String> = told.collect();
        let model = self.context.policies.of(&request.kind).model.as_ref();
        let keys: Vec<ObjectKey> = request
            .objects
            .iter()
            .map(|object| ObjectKey::new(model, object))
            .collect();
        let store = &self.context.store;
        let withdrawn = store.objects(&keys).await?.into_iter().flatten();
        for object in withdrawn.filter(|object| !object.notifiable) {
            warnings.push(format!(
                "{:?} is withdrawn: nobody is shown or mailed it",
                object.key
            ));
        }
        if let Selector::FollowersOf(keys) = &request.audience.to
            && let [key] = &keys[..]
        {
            let following = PeopleFilter::Follow(key);
            let found = self.context.store.find_people(&following, None, 1).await?;
            if found.is_empty() {
                warnings.push(format!("nobody follows {key}"));
            }
        }
        Ok(warnings)
    }
}
