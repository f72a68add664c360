//! Finds reasons why users will not see an accepted event. Records, objects and followers may still
//! come later.

use super::Request;
use crate::domain::{ObjectKey, Selector};
use crate::engine::Result;
use crate::engine::directory::unknown::{NameLookup, RequestNames};
use crate::store::PeopleFilter;

impl NameLookup {
    /// Returns a sentence for each reason, with what to do about it.
    pub async fn warnings(&self, request: &Request) -> Result<Vec<String>> {
        let unknown = self.of(&[RequestNames::from(request)]).await?;
        let found = unknown
            .iter()
            .flat_map(|unknown| unknown.warnings(&self.context.policies));
        let mut warnings: Vec<String> = found.collect();
        let model = self.context.policies.of(&request.kind).model.as_ref();
        let keys: Vec<ObjectKey> = request
            .objects
            .iter()
            .map(|object| ObjectKey::of(model, object))
            .collect();
        let store = &self.context.store;
        let withdrawn = store.objects(&keys).await?.into_iter().flatten();
        for object in withdrawn.filter(|object| !object.notifiable) {
            warnings.push(format!(
                "{:?} is withdrawn: no feed and no email includes it",
                object.key
            ));
        }
        if let Selector::FollowersOf(keys) = &request.audience.to
            && let [key] = &keys[..]
        {
            let following = PeopleFilter::Follow(key);
            let found = self.context.store.find_people(&following, None, 1).await?;
            if found.is_empty() {
                warnings.push(format!("no user follows {key}"));
            }
        }
        Ok(warnings)
    }
}
