//! Checks that the templates can be rendered, and that no user's language lacks configured words.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Component, Doctor, Finding};
use crate::domain::text::list_first;
use crate::render::Renderer;
use crate::store::{self, Store, UserField};

impl Doctor {
    pub(super) fn templates(&self) -> Vec<Finding> {
        vec![judge(&self.renderer).of("templates")]
    }

    /// Warns about configured headings and phrases that lack a translation into a user's language.
    pub(super) async fn untranslated(
        &self,
        store: &Arc<dyn Store>,
    ) -> Result<Option<Finding>, store::Error> {
        let Ok(renderer) = &self.renderer else {
            return Ok(None);
        };
        let (catalogs, locales) = (renderer.catalogs(), store.values(UserField::Locale).await?);
        let languages: BTreeSet<&str> =
            locales.iter().map(|of| catalogs.spoken(Some(of))).collect();
        let lacks = languages.into_iter().filter_map(|language| {
            let policies = &self.config.policies;
            let types = policies.kinds().map(|kind| (kind, policies.of(kind)));
            let worded = types.filter(|(_, of)| of.heading.is_some() || of.phrase.is_some());
            let lacking = worded
                .flat_map(|(kind, of)| catalogs.lacking(Some(language), kind, of.phrase.is_some()));
            let lacking: BTreeSet<String> = lacking.collect();
            (!lacking.is_empty()).then(|| format!("emails in {language}: {}", describe(&lacking)))
        });
        let lacks: Vec<String> = lacks.collect();
        let advice = "add the messages to locales/TAG.ftl in the folder of mail.templates";
        Ok((!lacks.is_empty()).then(|| Finding::warning(lacks.join(". "), advice)))
    }
}

/// Returns a clause that names messages a language lacks, and describes what emails show instead.
fn describe(messages: &BTreeSet<String>) -> String {
    format!(
        "{} have no translation; they show English headings, and no sentence that needs a phrase",
        list_first(messages, 3)
    )
}

/// Checks that the templates can be rendered.
fn judge(renderer: &Component<Arc<Renderer>>) -> Finding {
    match renderer {
        Ok(_) => Finding::ok("they make a subject, a text and an HTML part"),
        Err(why) => Finding::error(why, "fix the file, or remove it to use the built-in one"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;
    use crate::domain::Site;
    use crate::domain::text::error_chain;

    /// Returns the severity with these templates instead of the built-in ones.
    fn severity(files: &[(&str, String)]) -> Severity {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let site = Site {
            name: "Art".into(),
            url: None,
            logo: None,
            postal_address: None,
            accent: "#1f4e79".into(),
            feedback_id: None,
        };
        let renderer = Renderer::new(site, Some(folder.path().to_owned()));
        judge(&renderer.map(Arc::new).map_err(|error| error_chain(&error))).severity
    }

    #[test]
    fn templates_that_fail_are_errors() {
        assert_eq!(severity(&[]), Severity::Ok);
        for (file, text, expected) in [
            ("digest/body.html", "<p>{{ nobody }}", Severity::Error),
            ("batch/body.txt", "{{ total }}", Severity::Ok),
        ] {
            assert_eq!(severity(&[(file, text.to_owned())]), expected, "{file}");
        }
        let too_large = format!("<p>{}", "x".repeat(110_000));
        assert_eq!(
            severity(&[("digest/body.html", too_large)]),
            Severity::Error
        );
    }
}
