//! A change of some fields of a record (RFC 7396, JSON merge patch).
//!
//! Omitted fields stay, and `null` removes a value.

use chrono::{DateTime, Utc};

use super::input::{check_texts, is_not_blank, suppress};
use super::preferences::{Change, PreferencesChange, Result, change, preferences_body};
use crate::domain::{Address, BrandName, Brands, Invalid, Point, Policies, User};
use crate::engine::directory::fields;

preferences_body! {
    /// A change of some fields of a user's record.
    UserPatch(
        digest: "fields::named_if_given",
        types: "fields::each_if_given"
    ) {
        /// A new address is unconfirmed unless the same patch sets `confirmed`.
        #[serde(deserialize_with = "change")]
        email: Change<Address>,
        /// At most 1,000 bytes. A blank name counts as none.
        #[serde(deserialize_with = "change")]
        name: Change<String>,
        /// Whether the address is confirmed; `null` is `false`.
        #[serde(deserialize_with = "change")]
        confirmed: Change<bool>,
        /// At most 100 bytes.
        #[serde(deserialize_with = "change")]
        locale: Change<String>,
        /// A configured brand; `null` for the default.
        #[serde(deserialize_with = "change")]
        brand: Change<BrandName>,
        /// The location, for events near a point; `null` removes it.
        #[serde(deserialize_with = "change")]
        loc: Change<Point>,
        /// Suppresses the user, or lifts it; `null` is `false`.
        #[serde(deserialize_with = "change")]
        suppressed: Change<bool>,
        /// `true` unsubscribes the user from everything. A patch cannot resubscribe anyone.
        #[serde(deserialize_with = "change")]
        unsubscribed: Change<bool>,
    }
}

impl UserPatch {
    /// Checks what the types of the fields cannot express.
    pub fn check(&self, brands: &Brands, policies: &Policies) -> Result<()> {
        brands.check(self.brand.as_ref().and_then(Option::as_ref))?;
        let text = |text: &Change<String>| text.clone().flatten();
        check_texts(text(&self.name).as_deref(), text(&self.locale).as_deref())?;
        if self.unsubscribed == Some(None) {
            let why = "resubscribes no one; only the user's own choice does. Leave it out";
            return Err(Invalid::new("unsubscribed", "null", why));
        }
        let preferences = PreferencesChange::from(self);
        preferences.check()?;
        preferences.check_routes(policies)
    }

    pub(super) fn apply(&self, user: &mut User, policies: &Policies, now: DateTime<Utc>) {
        let flag = |change: Change<bool>| change.map(Option::unwrap_or_default);
        if let Some(email) = &self.email {
            user.confirmed &= user.email == *email;
            user.email.clone_from(email);
        }
        if let Some(name) = &self.name {
            user.name = name.clone().filter(|name| is_not_blank(name));
        }
        user.confirmed = flag(self.confirmed).unwrap_or(user.confirmed);
        if let Some(locale) = &self.locale {
            user.locale.clone_from(locale);
        }
        if let Some(brand) = &self.brand {
            user.brand.clone_from(brand);
        }
        user.loc = self.loc.unwrap_or(user.loc);
        PreferencesChange::from(self).apply(user);
        suppress(user, flag(self.suppressed), now);
        if flag(self.unsubscribed) == Some(true) {
            user.unsubscribe(policies, now);
        }
    }
}
