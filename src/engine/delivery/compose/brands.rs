//! Of which brand a row's mail is, and mails as that brand writes them.
//!
//! The rule: a mail is of one brand, whole: look, links and headers come together (`Identity`). The
//! brand of a batch counts before that of its person. What is of another brand than this composes
//! is not built ([`Stray`]), so that none is ever told under another's name; but for a call that is
//! made again, which says what it said.

use std::collections::HashMap;

use super::super::identity::Identity;
use super::Compose;
use super::gathered::Gathered;
use crate::domain::{BatchKey, BrandName, Delivery, Id, Occasion, User, UserId};
use crate::engine::Result;

/// A row whose mail is not of the brand that was to be built.
#[derive(Debug, Clone)]
pub(in crate::engine::delivery) struct Stray {
    pub row: Delivery,
    /// Of which it is; `None` for the default.
    pub brand: Option<BrandName>,
    /// Its markers stand already: it was taken for mailed once.
    pub has_markers: bool,
}

impl Compose {
    /// The same for mails of this brand; `None` where there is no such brand.
    pub fn of_brand(&self, brand: Option<&BrandName>) -> Option<Self> {
        let Some(brand) = brand.filter(|brand| self.brand.as_ref() != Some(*brand)) else {
            return Some(self.clone());
        };
        let Identity {
            renderer,
            links,
            headers,
            ..
        } = self.identities.brands.get(brand)?.clone();
        Some(Self {
            brand: Some(brand.clone()),
            renderer,
            links,
            headers,
            ..self.clone()
        })
    }

    /// Of which brand a mail to this person is, of a batch with this key or a digest.
    pub(crate) fn brand_of(user: Option<&User>, key: Option<&BatchKey>) -> Option<BrandName> {
        let of_batch = key.and_then(BatchKey::brand);
        let brand = of_batch.or_else(|| user.and_then(|user| user.brand.as_ref()));
        brand.cloned()
    }

    /// The same of a row, by what its batch has gathered.
    pub(super) fn brand_of_row(
        row: &Delivery,
        user: &User,
        gathered: &HashMap<Id, Gathered>,
    ) -> Option<BrandName> {
        let key = match &row.occasion {
            Occasion::Digest { .. } => None,
            Occasion::Batch { batch, .. } => gathered.get(batch).map(|of| &of.key),
        };
        Self::brand_of(Some(user), key)
    }

    /// Of which brands the mails of these rows are.
    pub(in crate::engine::delivery) async fn brands_of(
        &self,
        rows: &[Delivery],
    ) -> Result<Vec<Option<BrandName>>> {
        let users: Vec<UserId> = rows.iter().map(|row| row.user.clone()).collect();
        let people = self.context.store.users(&users).await?;
        let batch = |row: &Delivery| match &row.occasion {
            Occasion::Digest { .. } => None,
            Occasion::Batch { batch, .. } => Some(*batch),
        };
        let ids: Vec<Id> = rows.iter().filter_map(batch).collect();
        let filed = match ids.is_empty() {
            true => Vec::new(),
            false => self.context.store.filed(&ids).await?,
        };
        let filed = filed.into_iter().flatten();
        let keys: HashMap<Id, BatchKey> = filed.map(|batch| (batch.id, batch.key)).collect();
        let of = |(row, user): (&Delivery, Option<User>)| {
            let key = batch(row).and_then(|id| keys.get(&id));
            Self::brand_of(user.as_ref(), key)
        };
        Ok(rows.iter().zip(people).map(of).collect())
    }
}
