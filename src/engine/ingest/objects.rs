//! Stores the objects that events refer to.
//!
//! A withdrawn object keeps a record with `notifiable: false`, because feeds may show an object
//! without a record ([`crate::engine::eligibility::event_facts`]). Objects of mapped models are in
//! the application's own collections and cannot be changed here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::Context;
use crate::domain::{ChangeNotice, InvalidValue, ModelName, Object, ObjectId, ObjectKey};
use crate::engine::Result;
use crate::engine::batches::BatchService;
use crate::engine::feed::cache::FeedCache;

/// Stores objects, except those of mapped models, and retracts events about them.
pub struct ObjectService {
    pub(crate) context: Arc<Context>,
    pub(crate) batches: BatchService,
    pub(crate) feed_cache: Arc<FeedCache>,
}

/// Returns the key of an object of a model.
///
/// # Errors
///
/// [`InvalidValue`] if the model contains a colon, which separates it from the id in the key.
pub fn key_of(model: &ModelName, id: &ObjectId) -> Result<ObjectKey, InvalidValue> {
    if model.as_str().contains(':') {
        let why = "holds a colon, which ends the model in an object's key";
        return Err(InvalidValue::new("model", model, why));
    }
    ObjectKey::from_parts(Some(model), id).as_str().parse()
}

impl ObjectService {
    /// Creates or replaces these objects. If a key occurs twice, the last one wins.
    pub async fn put(&self, objects: Vec<Object>) -> Result<()> {
        for object in &objects {
            self.check(object)?;
        }
        self.store_checked(objects).await
    }

    /// Stores objects that were checked. If a key occurs twice, the last one wins.
    pub(crate) async fn store_checked(&self, objects: Vec<Object>) -> Result<()> {
        let last_by_key: BTreeMap<_, _> =
            objects.into_iter().map(|object| (object.key.clone(), object)).collect();
        let last: Vec<Object> = last_by_key.into_values().collect();
        self.context.store.put_objects(&last).await?;
        // Polls of this process see the change at once, before the store's change notice arrives.
        let keys = last.iter().map(|object| object.key.as_str());
        self.feed_cache.apply_notice(&ChangeNotice::objects(keys));
        Ok(())
    }

    /// Returns an error if an object cannot be stored.
    pub fn check(&self, object: &Object) -> Result<(), InvalidValue> {
        object.check()?;
        let model = object.key.split().map(|(model, _)| ModelName::stored(model));
        match model.filter(|model| self.context.config.models.contains_key(model)) {
            Some(model) => {
                let why = "is read from the application's own collection; change the object there";
                Err(InvalidValue::new("model", model, why))
            }
            None => Ok(()),
        }
    }

    /// Returns the object with this key, even if it was withdrawn.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Object>> {
        Ok(self.context.store.objects(std::slice::from_ref(key)).await?.pop().flatten())
    }

    /// Returns the objects with these keys, in the order of the request.
    pub async fn get_many(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        Ok(self.context.store.objects(keys).await?)
    }

    /// Marks an object as withdrawn, even if it was unknown. Its other fields are removed.
    pub async fn withdraw(&self, key: ObjectKey) -> Result<()> {
        self.put(vec![Object { notifiable: false, ..Object::without_data(key) }]).await
    }
}
