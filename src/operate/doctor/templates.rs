//! Checks that the templates can be rendered, and that catalogs lack no messages.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Component, Doctor, Finding};
use crate::domain::text::{error_chain, list_first};
use crate::render::{Gap, Renderer, UnknownTemplate, unknown_templates};
use crate::store::{self, Store, UserField};

const TEMPLATES: &str = "templates";
const LANGUAGES: &str = "languages";

impl Doctor {
    pub(super) fn templates(&self) -> Vec<Finding> {
        let mut findings = vec![judge(&self.renderer).of(TEMPLATES)];
        if let Ok(renderer) = &self.renderer {
            let gaps = renderer.catalogs().gaps().iter();
            findings.extend(gaps.map(|gap| judge_gap(gap).of(LANGUAGES)));
        }
        if let Some(folder) = &self.config.mail.templates {
            let unknown = unknown_templates(folder, self.config.policies.kinds());
            findings.extend(unknown.iter().map(|file| judge_unknown(file).of(TEMPLATES)));
        }
        findings
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

/// Checks that the templates can be rendered, and that no part of an email is empty.
fn judge(renderer: &Component<Arc<Renderer>>) -> Finding {
    let empty = match renderer {
        Ok(renderer) => renderer.empty_part().map_err(|error| error_chain(&error)),
        Err(why) => Err(why.clone()),
    };
    match empty {
        Ok(None) => Finding::ok("they make a subject, a text and an HTML part"),
        Ok(Some(file)) => Finding::error(
            format!("{file} makes an empty part, which spam filters count against an email"),
            format!("add text to {file}, or remove it"),
        ),
        Err(why) => Finding::error(why, "fix the file, or remove it to use the built-in one"),
    }
}

/// The finding for an incomplete translation in the templates folder.
fn judge_gap(gap: &Gap) -> Finding {
    let found = format!(
        "locales/{} lacks {} of {} messages, which are in English: {}",
        gap.file,
        gap.missing.len(),
        gap.of,
        list_first(&gap.missing, 3)
    );
    Finding::warning(found, "add them, with the variables that English has")
}

/// The finding for a file with a name that no template has.
fn judge_unknown(unknown: &UnknownTemplate) -> Finding {
    let advice = match &unknown.nearest {
        Some(nearest) => format!("rename it to {nearest} if you meant that"),
        None => "docs/operations.md lists the names of templates; move it elsewhere".to_owned(),
    };
    let found = format!(
        "{} is not the name of a template, so it is not used",
        unknown.file
    );
    Finding::warning(found, advice)
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;
    use crate::render::Site;

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
        };
        let renderer = Renderer::new(site, Some(folder.path().to_owned()));
        judge(&renderer.map(Arc::new).map_err(|error| error_chain(&error))).severity
    }

    #[test]
    fn templates_that_fail_or_make_an_empty_part_are_errors() {
        assert_eq!(severity(&[]), Severity::Ok);
        for (file, text, expected) in [
            ("digest/body.html", "<p>{{ nobody }}", Severity::Error),
            ("digest/body.txt", " \n", Severity::Error),
            ("batch/subject.txt", " ", Severity::Error),
            ("batch/Comment/body.txt", "\n", Severity::Error),
            ("batch/Comment/body.html", "{{ nobody }}", Severity::Error),
            ("batch/Comment/body.txt", "{{ total }}", Severity::Ok),
        ] {
            assert_eq!(severity(&[(file, text.to_owned())]), expected, "{file}");
        }
        let too_large = format!("<p>{}", "x".repeat(110_000));
        assert_eq!(
            severity(&[("digest/body.html", too_large)]),
            Severity::Error
        );
    }

    #[test]
    fn an_incomplete_catalog_is_reported_with_the_missing_messages() {
        let lacks = |missing: &[&str]| Gap {
            file: "SV-se.ftl".into(),
            missing: missing.iter().map(ToString::to_string).collect(),
            of: 90,
        };

        let (one, four) = (
            judge_gap(&lacks(&["more"])),
            judge_gap(&lacks(&["a", "b", "c", "d"])),
        );

        let said = "locales/SV-se.ftl lacks 1 of 90 messages, which are in English: more";
        assert_eq!(
            (one.severity, one.found.as_str()),
            (Severity::Warning, said)
        );
        assert!(
            four.found.ends_with("English: a, b, c and 1 more"),
            "{}",
            four.found
        );
    }
}
