//! Keeps the records of what events are about, as the application says.
//!
//! The rule: a withdrawn object leaves a record that is not notifiable, because an object nobody
//! has a record of may still be shown in feeds ([`crate::engine::eligibility::catalog`]). Models
//! that live in the application's own collections are changed there, not here.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::Context;
use crate::domain::{Invalid, ModelName, Object, ObjectId, ObjectKey, Poke};
use crate::engine::Result;
use crate::engine::feed::polls::Polls;

/// Keeps records of objects, except of models that the application keeps itself.
pub struct ObjectService {
    pub(crate) context: Arc<Context>,
    pub(crate) polls: Arc<Polls>,
}

/// The key of an object of a model. A model cannot hold the colon that ends it in a key.
pub fn key_of(model: &ModelName, id: &ObjectId) -> std::result::Result<ObjectKey, Invalid> {
    if model.as_str().contains(':') {
        let why = "holds a colon, which ends the model in an object's key";
        return Err(Invalid::new("model", model, why));
    }
    ObjectKey::new(Some(model), id).as_str().parse()
}

impl ObjectService {
    /// Creates or replaces these records. Where one key occurs twice, the last counts.
    pub async fn put(&self, objects: Vec<Object>) -> Result<()> {
        for object in &objects {
            self.check(object)?;
        }
        self.keep(objects).await
    }

    /// Keeps records that were checked. Where one key occurs twice, the last counts.
    pub(crate) async fn keep(&self, objects: Vec<Object>) -> Result<()> {
        let objects = last_of_each(objects);
        self.context.store.put_objects(&objects).await?;
        // Whoever polls this process next sees it, before the store tells.
        let names = objects.iter().map(|object| object.key.as_str());
        self.polls.hear(&Poke::objects(names));
        Ok(())
    }

    /// Whether a record can be put.
    pub fn check(&self, object: &Object) -> std::result::Result<(), Invalid> {
        object.check()?;
        let model = object
            .key
            .parts()
            .map(|(model, _)| ModelName::stored(model));
        match model.filter(|model| self.context.config.models.contains_key(model)) {
            Some(model) => {
                let why = "is read from the application's own collection; change the object there";
                Err(Invalid::new("model", model, why))
            }
            None => Ok(()),
        }
    }

    /// The record under this key, withdrawn or not; `None` if there is none.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<Object>> {
        let found = self
            .context
            .store
            .objects(std::slice::from_ref(key))
            .await?;
        Ok(found.into_iter().next().flatten())
    }

    /// The records under these keys, in the order asked.
    pub async fn many(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Object>>> {
        Ok(self.context.store.objects(keys).await?)
    }

    /// Makes an object one that no longer applies, whether there was a record of it or not; nothing
    /// else of it is kept.
    pub async fn withdraw(&self, key: ObjectKey) -> Result<()> {
        self.put(vec![Object {
            notifiable: false,
            ..Object::bare(key)
        }])
        .await
    }
}

/// Where one key occurs twice, the last counts.
fn last_of_each(objects: Vec<Object>) -> Vec<Object> {
    let mut seen = HashSet::new();
    let mut kept: Vec<Object> = objects
        .into_iter()
        .rev()
        .filter(|object| seen.insert(object.key.clone()))
        .collect();
    kept.reverse();
    kept
}
