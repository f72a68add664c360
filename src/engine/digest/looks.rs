//! Counts the languages and brands of the emails in a dry run.
//!
//! All emails are counted, but only a limited number of locales is named.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::{BrandName, Content, User};
use crate::engine::delivery::Compose;
use crate::render::Catalogs;
use crate::wire::digest::{DryRunReport, OTHER_LOCALES};

/// The most locales that are named.
const NAMED: usize = 20;

/// Counts an email to this user, of this brand.
pub(crate) fn count(
    report: &mut DryRunReport,
    compose: &Compose,
    user: &User,
    brand: Option<&BrandName>,
    content: &Content,
) {
    let catalogs = compose.identity.renderer.catalogs();
    ask(&mut report.locales, catalogs, user);
    note_untranslated(&mut report.untranslated, catalogs, user, content);
    if let Some(brand) = brand {
        let counts = match compose.identities.brands.contains_key(brand) {
            true => &mut report.brands,
            false => &mut report.unknown_brands,
        };
        *counts.entry(brand.clone()).or_default() += 1;
    }
}

/// Records the messages of the email's types that the user's language lacks.
fn note_untranslated(
    untranslated: &mut BTreeMap<String, BTreeSet<String>>,
    catalogs: &Catalogs,
    user: &User,
    content: &Content,
) {
    let locale = user.locale.as_deref();
    for section in &content.sections {
        let lacking = catalogs.lacking(locale, &section.kind, section.phrase.is_some());
        if !lacking.is_empty() {
            let of = untranslated.entry(catalogs.spoken(locale).to_owned());
            of.or_default().extend(lacking);
        }
    }
}

/// Counts an email to a user whose locale has no catalog. Such an email is in English.
fn ask(locales: &mut BTreeMap<String, u64>, catalogs: &Catalogs, user: &User) {
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

    #[test]
    fn all_locales_are_counted_and_a_few_are_listed() {
        let catalogs = Catalogs::load(None).unwrap();
        let mut report = DryRunReport::default();
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

        let lines = report.other_locales();

        assert_eq!(report.locales.len(), NAMED + 1);
        let begins = [
            "3 mails are for people who ask for other locales, which are not there: ",
            "2 mails are for people who ask for locale xa, which is not there: ",
            "1 mail is for a person who asks for locale xb, which is not there: ",
        ];
        for (line, begins) in lines.iter().zip(begins) {
            assert!(line.starts_with(begins), "{line}");
        }
    }
}
