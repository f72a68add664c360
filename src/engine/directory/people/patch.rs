//! A change of some fields of a record (RFC 7396, JSON merge patch).
//!
//! The rule: what is left out stays, and `null` takes away. Choices change as the person's own
//! changes of them do ([`PreferencesInput`]), field by field.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use serde::Deserialize;

use super::input::{
    self, Change, DigestChange, PreferencesInput, Result, TypeInput, change, quiet, zone,
};
use crate::domain::{
    Address, BrandName, Brands, EventType, Invalid, Point, Policies, Quiet, Schedule, User,
};
use crate::engine::directory::fields;

/// What changes of a person's record.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct UserPatch {
    /// With another address, whether it is confirmed has to be said again.
    #[serde(default, deserialize_with = "change")]
    pub email: Change<Address>,
    /// At most 1,000 bytes; blank, there is none.
    #[serde(default, deserialize_with = "change")]
    pub name: Change<String>,
    /// Whether the address is known to be theirs; `null` is `false`.
    #[serde(default, deserialize_with = "change")]
    pub confirmed: Change<bool>,
    /// Such as `Europe/Paris`.
    #[serde(default, deserialize_with = "zone")]
    pub tz: Change<Tz>,
    /// At most 100 bytes.
    #[serde(default, deserialize_with = "change")]
    pub locale: Change<String>,
    /// One that is configured; `null` for the default.
    #[serde(default, deserialize_with = "change")]
    pub brand: Change<BrandName>,
    /// Where they live.
    #[serde(default, deserialize_with = "change")]
    pub loc: Change<Point>,
    /// How often and when digests come.
    #[serde(default, deserialize_with = "fields::named")]
    pub digest: DigestChange,
    /// Their quiet hours.
    #[serde(default, deserialize_with = "quiet")]
    pub quiet: Change<Quiet>,
    /// By type; types that are not named stay.
    #[serde(default, deserialize_with = "fields::each_if_any")]
    pub types: BTreeMap<EventType, Option<TypeInput>>,
    /// Suppresses them or lifts it; `null` is `false`.
    #[serde(default, deserialize_with = "change")]
    pub suppressed: Change<bool>,
    /// Unsubscribes them from everything, if it is true; only a choice of their own brings anybody
    /// back.
    #[serde(default, deserialize_with = "change")]
    pub unsubscribed: Change<bool>,
}

impl UserPatch {
    /// What the types of its fields cannot say.
    pub fn check(&self, brands: &Brands) -> Result<()> {
        brands.check(self.brand.as_ref().and_then(Option::as_ref))?;
        let text = |text: &Change<String>| text.clone().flatten();
        input::check_texts(text(&self.name).as_deref(), text(&self.locale).as_deref())?;
        if self.unsubscribed == Some(None) {
            let why = "takes nothing back; only a choice of their own does";
            return Err(Invalid::new("unsubscribed", "null", why));
        }
        self.choices().check()
    }

    /// What their types say only with the configuration.
    pub(super) fn check_routes(&self, policies: &Policies) -> Result<()> {
        let chosen = self.types.iter();
        let chosen = chosen.filter_map(|(kind, input)| Some((kind, input.as_ref()?)));
        input::check_routes(chosen, policies)
    }

    fn choices(&self) -> PreferencesInput {
        PreferencesInput {
            digest: self.digest.clone(),
            tz: self.tz,
            quiet: self.quiet,
            types: self.types.clone(),
        }
    }

    pub(super) fn apply(
        &self,
        user: &mut User,
        schedule: &Schedule,
        policies: &Policies,
        now: DateTime<Utc>,
    ) {
        if let Some(email) = &self.email {
            // What was known of another address says nothing of this one.
            user.confirmed &= user.email == *email;
            user.email.clone_from(email);
        }
        if let Some(name) = &self.name {
            user.name = name.clone().filter(|name| !name.trim().is_empty());
        }
        let is_told = |told: Change<bool>| told.map(Option::unwrap_or_default);
        user.confirmed = is_told(self.confirmed).unwrap_or(user.confirmed);
        if let Some(locale) = &self.locale {
            user.locale.clone_from(locale);
        }
        if let Some(brand) = &self.brand {
            user.brand.clone_from(brand);
        }
        user.loc = self.loc.unwrap_or(user.loc);
        // The application's word for what they choose brings nobody back.
        let unsubscribed = user.unsubscribed;
        self.choices().apply(user, schedule, policies);
        user.unsubscribed = unsubscribed;
        match is_told(self.suppressed) {
            Some(true) => user.suppressed = user.suppressed.or(Some(now)),
            Some(false) => user.suppressed = None,
            None => {}
        }
        if is_told(self.unsubscribed) == Some(true) {
            user.unsubscribe(policies, now);
        }
    }
}
