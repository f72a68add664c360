//! Who asks for a language that there is none of.
//!
//! The rule: whatever stands in the records, all are counted and a few locales are named.

use std::collections::BTreeMap;

use crate::domain::User;
use crate::render::Catalogs;
use crate::wire::digest::OTHER_LOCALES;

/// So many locales are told by name.
const NAMED: usize = 20;

/// Counts somebody whose locale has no catalog: their mail is in English.
pub(super) fn ask(locales: &mut BTreeMap<String, u64>, catalogs: &Catalogs, user: &User) {
    let asked = user.locale.as_deref().unwrap_or_default().trim();
    if asked.is_empty() || catalogs.nearest(asked).is_some() {
        return;
    }
    let is_named = locales.len() < NAMED || locales.contains_key(asked);
    let name = if is_named { asked } else { OTHER_LOCALES };
    *locales.entry(name.to_owned()).or_default() += 1;
}
