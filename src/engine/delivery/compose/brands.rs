//! Finds the brand of each row, and composes emails as that brand.
//!
//! Theme, links and headers of an email belong to one brand (`Identity`). The brand of a batch
//! takes precedence over that of its user. A row of another brand is not built ([`Stray`]), so no
//! email appears under a wrong name. Only a repeated call keeps the brand that it had.

use std::collections::HashMap;

use super::super::identity::Identity;
use super::Compose;
use super::gathered::Gathered;
use crate::domain::{BatchKey, BrandName, Delivery, Id, Occasion, User, UserId};
use crate::engine::Result;

/// A row whose email belongs to another brand than the one that is being built.
#[derive(Debug, Clone)]
pub(in crate::engine::delivery) struct Stray {
    pub row: Delivery,
    /// Its brand; `None` for the default.
    pub brand: Option<BrandName>,
    /// Whether its markers are written: the provider once accepted its email.
    pub has_markers: bool,
}

impl Compose {
    /// Returns a composer for emails of this brand; `None` if the brand is not configured.
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

    /// Returns the brand of an email to this user: of a batch with this key, or of a digest without
    /// one.
    pub(crate) fn brand_of(user: Option<&User>, key: Option<&BatchKey>) -> Option<BrandName> {
        let of_batch = key.and_then(BatchKey::brand);
        let brand = of_batch.or_else(|| user.and_then(|user| user.brand.as_ref()));
        brand.cloned()
    }

    /// Returns the brand of a row's email, by the key of its batch.
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

    /// Returns the brands of these rows' emails, in the same order.
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
