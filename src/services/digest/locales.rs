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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::UserId;
    use crate::wire::digest::Report;

    #[test]
    fn everybody_is_counted_and_a_few_locales_are_named() {
        let catalogs = Catalogs::load(None).unwrap();
        let mut report = Report::default();
        let mut asks = |locale: &str| {
            let user = User {
                locale: Some(locale.into()),
                ..User::new(UserId::stored("ada"))
            };
            ask(&mut report.locales, &catalogs, &user);
        };
        let unknown: Vec<String> = (b'a'..=b'v').map(|c| format!("x{}", c as char)).collect();
        unknown.iter().for_each(|locale| asks(locale));
        for locale in ["xa", "de-AT", " ", "others"] {
            asks(locale);
        }

        let told = report.other_locales();

        assert_eq!(report.locales.len(), NAMED + 1);
        let begins = [
            "3 people ask for other locales, which are not there: ",
            "2 people ask for locale xa, which is not there: ",
            "1 person asks for locale xb, which is not there: ",
        ];
        for (told, begins) in told.iter().zip(begins) {
            assert!(told.starts_with(begins), "{told}");
        }
    }
}
