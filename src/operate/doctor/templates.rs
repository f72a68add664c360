//! Checks that the templates can be rendered, and how large the emails are.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Component, Doctor, Finding, Judgment, chain};
use crate::render::{Gap, Renderer, UnknownTemplate, Weight, unknown_templates};
use crate::store::{self, Store, UserField};
use crate::wire::digest::lacking as lacking_words;

const TEMPLATES: &str = "templates";
const SIZE: &str = "size of mails";
const LANGUAGES: &str = "languages";

/// The size at which Gmail clips an email, in bytes.
const CLIPPED: usize = 102_000;

impl Doctor {
    /// Returns the findings about a brand's templates. Leaves out those that the default brand has
    /// too, if both use the same templates.
    pub(super) fn brand_templates(&self, default: &[Finding]) -> Vec<Finding> {
        let is_reported = |finding: &Finding| {
            let is_it = |of: &Finding| of.check == finding.check && of.severity == finding.severity;
            self.shares_templates && default.iter().any(is_it)
        };
        let mut findings = self.templates();
        findings.retain(|finding| !is_reported(finding));
        findings
    }

    pub(super) fn templates(&self) -> Vec<Finding> {
        let mut findings = judge(&self.renderer, self.config.digest.caps.total);
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
    ) -> Result<Option<Judgment>, store::Error> {
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
            (!lacking.is_empty())
                .then(|| format!("emails in {language}: {}", lacking_words(&lacking)))
        });
        let lacks: Vec<String> = lacks.collect();
        let advice = "add the messages to locales/TAG.ftl in the folder of mail.templates";
        Ok((!lacks.is_empty()).then(|| Judgment::warning(lacks.join(". "), advice)))
    }
}

fn judge(renderer: &Component<Arc<Renderer>>, items: usize) -> Vec<Finding> {
    let broken = |why: &str| {
        let advice = "fix the file, or leave it out: what is built in takes its place";
        vec![
            Judgment::error(why, advice).of(TEMPLATES),
            Judgment::unchecked("no mail can be made").of(SIZE),
        ]
    };
    let renderer = match renderer {
        Ok(renderer) => renderer,
        Err(why) => return broken(why),
    };
    match renderer.weigh(items).and_then(|digest| {
        let mut mails = vec![("digest".to_owned(), digest)];
        mails.extend(renderer.weigh_batches()?);
        Ok(mails)
    }) {
        Ok(mails) => vec![
            judge_parts(&mails).of(TEMPLATES),
            judge_weight(&mails[0].1, items).of(SIZE),
        ],
        Err(error) => broken(&chain(&error)),
    }
}

/// The finding for an incomplete translation in the templates folder.
fn judge_gap(gap: &Gap) -> Judgment {
    const NAMED: usize = 3;
    let (lacks, first) = (gap.missing.len(), gap.missing.iter().take(NAMED));
    let first: Vec<&str> = first.map(String::as_str).collect();
    let found = format!(
        "locales/{} lacks {lacks} of {} messages, which are in English: {}{}",
        gap.file,
        gap.of,
        first.join(", "),
        if lacks > NAMED { " and others" } else { "" }
    );
    Judgment::warning(found, "add them, with the variables that English has")
}

/// The finding for a file with a name that no template has.
fn judge_unknown(unknown: &UnknownTemplate) -> Judgment {
    let advice = match &unknown.nearest {
        Some(nearest) => format!("rename it to {nearest}, if that is meant"),
        None => "docs/operations.md lists the names of templates; move it elsewhere".to_owned(),
    };
    let found = format!(
        "{} is no template's name, so nothing is made of it",
        unknown.file
    );
    Judgment::warning(found, advice)
}

/// Checks that no part of an email is empty. `mails` are sizes by template folder.
fn judge_parts(mails: &[(String, Weight)]) -> Judgment {
    let parts = mails.iter().flat_map(|(folder, weight)| {
        [
            ("subject.txt", "subject", weight.subject),
            ("body.txt", "text part", weight.text),
            ("body.html", "HTML part", weight.html),
        ]
        .map(|(file, part, bytes)| (folder, file, part, bytes))
    });
    let mut empty = parts.filter(|(_, _, _, bytes)| *bytes == 0);
    match empty.next() {
        None => Judgment::ok("they make a subject, a text and an HTML part"),
        Some((folder, file, part, _)) => Judgment::error(
            format!(
                "{folder}/{file} leaves the {part} empty, which spam filters hold against a mail"
            ),
            format!("write something into {folder}/{file}, or leave it out"),
        ),
    }
}

fn judge_weight(weight: &Weight, items: usize) -> Judgment {
    let Weight { html, text, .. } = weight;
    let kb = |bytes: usize| format!("{:.1} KB", bytes as f64 / 1_000.0);
    let found = format!(
        "a digest of {items} items has {} of HTML and {} of text; Gmail cuts off at {}",
        kb(*html),
        kb(*text),
        kb(CLIPPED)
    );
    if weight.fits() {
        return Judgment::ok(found);
    }
    Judgment::warning(
        format!(
            "{found}, so mails stop at {} and count the rest",
            Weight::MOST
        ),
        "lower digest.items, or make each item's HTML shorter",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;
    use crate::render::Site;

    /// Returns the severities for a digest of 40 items with these templates instead of the built-in
    /// ones.
    fn severities(files: &[(&str, String)]) -> Vec<Severity> {
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
        let findings = judge(&renderer.map(Arc::new).map_err(|error| chain(&error)), 40);
        findings
            .into_iter()
            .map(|finding| finding.severity)
            .collect()
    }

    /// Returns a template with this number of bytes for each item.
    fn html(bytes: usize) -> String {
        let each = "x".repeat(bytes);
        format!(
            "<p>{{% for s in sections %}}{{% for i in s.items %}}{each}{{% endfor %}}{{% endfor %}}"
        )
    }

    #[test]
    fn the_built_in_templates_have_no_problems() {
        assert_eq!(severities(&[]), [Severity::Ok, Severity::Ok]);
    }

    #[test]
    fn a_template_that_cannot_be_rendered_is_an_error() {
        let broken = ("digest/body.html", "<p>{{ nobody }}".to_owned());
        assert_eq!(
            severities(&[broken]),
            [Severity::Error, Severity::Unchecked]
        );
    }

    #[test]
    fn an_email_without_a_text_part_is_an_error() {
        let empty = ("digest/body.txt", " \n".to_owned());
        assert_eq!(severities(&[empty]), [Severity::Error, Severity::Ok]);
    }

    #[test]
    fn batch_templates_are_checked_like_digest_templates() {
        for (file, text, expected) in [
            ("batch/subject.txt", " ", [Severity::Error, Severity::Ok]),
            (
                "batch/Comment/body.txt",
                "\n",
                [Severity::Error, Severity::Ok],
            ),
            (
                "batch/Comment/body.html",
                "{{ nobody }}",
                [Severity::Error, Severity::Unchecked],
            ),
            (
                "batch/Comment/body.txt",
                "{{ total }}",
                [Severity::Ok, Severity::Ok],
            ),
        ] {
            assert_eq!(
                severities(&[(file, text.to_owned())]),
                expected,
                "{file} {text:?}"
            );
        }
    }

    #[test]
    fn omitted_items_cause_a_warning_and_an_oversized_layout_an_error() {
        let heavy = ("digest/body.html", html(3_000));
        let too_heavy = ("digest/body.html", format!("<p>{}", "x".repeat(110_000)));

        assert_eq!(severities(&[heavy]), [Severity::Ok, Severity::Warning]);
        assert_eq!(
            severities(&[too_heavy]),
            [Severity::Error, Severity::Unchecked]
        );
    }

    #[test]
    fn an_incomplete_catalog_is_reported_with_the_missing_messages() {
        let lacks = |missing: &[&str]| Gap {
            file: "SV-se.ftl".into(),
            locale: "sv-SE".into(),
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
            four.found.ends_with("English: a, b, c and others"),
            "{}",
            four.found
        );
    }
}
