//! Checks that the templates can be rendered, and that neither they nor the catalogs lack a part.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::{Component, Doctor, Finding, LANGUAGES};
use crate::domain::most_similar;
use crate::domain::name::join_names;
use crate::operate::preview::{PreviewKind, PreviewSheet, Previewer, files_in};
use crate::render::{Renderer, template_names};
use crate::store::{self, Store, UserField};

const TEMPLATES: &str = "templates";

impl Doctor {
    pub(super) async fn templates(&self) -> Vec<Finding> {
        let mut findings = vec![judge(&self.renderer).for_check(TEMPLATES)];
        let (Some(folder), Ok(renderer)) = (&self.config.mail.templates, &self.renderer) else {
            return findings;
        };
        let preview = Previewer {
            config: self.config.clone(),
            brand: None,
            recipient: None,
            kinds: vec![PreviewKind::Digest, PreviewKind::Batch],
            locale: None,
            clock: self.clock.clone(),
        };
        let sheets = preview.sheets(None).await.map_or_else(|_| Vec::new(), |(sheets, _)| sheets);
        let empty: BTreeSet<String> = sheets.iter().filter_map(empty_part).collect();
        findings.extend(empty.iter().map(|file| {
            let found = "makes an empty part, which spam filters count against an email";
            let advice = format!("add text to {file}, or remove it");
            Finding::warning(format!("{file} {found}"), advice).for_check(TEMPLATES)
        }));
        findings.extend(unknown_files(folder).iter().take(5).map(|file| {
            let found = format!("{file} is not the name of a template, so it is not used");
            let advice = match most_similar(file, template_names()) {
                Some(nearest) => format!("rename it to {nearest} if you meant that"),
                None => "move it elsewhere; docs/guides/templates.md lists the names".to_owned(),
            };
            Finding::warning(found, advice).for_check(TEMPLATES)
        }));
        let incomplete = renderer.catalogs().incomplete();
        findings.extend(incomplete.map(|(tag, missing)| {
            let (n, names) = (missing.len(), join_names(missing, 3));
            let found =
                format!("the catalog {tag} lacks {n} messages, which are in English: {names}");
            Finding::warning(found, "add them, with the variables that English has")
                .for_check(LANGUAGES)
        }));
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
            locales.iter().map(|locale| catalogs.locale_or_english(Some(locale))).collect();
        let describe = |language: &str| {
            let policies = &self.config.policies;
            let types = policies.kinds().map(|kind| (kind, policies.policy(kind)));
            let missing: BTreeSet<String> = types
                .filter(|(_, policy)| policy.heading.is_some() || policy.phrase.is_some())
                .flat_map(|(kind, policy)| {
                    catalogs.missing_messages(Some(language), kind, policy.phrase.is_some())
                })
                .collect();
            let rest = "have no translation; they show English headings, and no sentence that \
                        needs a phrase";
            let names = join_names(&missing, 3);
            (!missing.is_empty()).then(|| format!("emails in {language}: {names} {rest}"))
        };
        let gaps: Vec<String> = languages.into_iter().filter_map(describe).collect();
        let advice = "add the messages to locales/TAG.ftl in the folder of mail.templates";
        Ok((!gaps.is_empty()).then(|| Finding::warning(gaps.join(". "), advice)))
    }
}

/// Checks that the templates can be rendered.
fn judge(renderer: &Component<Arc<Renderer>>) -> Finding {
    match renderer {
        Ok(_) => Finding::ok("they make a subject, a text and an HTML part"),
        Err(why) => Finding::error(why, "fix the file, or remove it to use the built-in one"),
    }
}

/// Returns the file that makes an empty part of a sample email, if there is one.
fn empty_part(sheet: &PreviewSheet) -> Option<String> {
    let elements = sheet.html.split('<');
    let html: String = elements.filter_map(|element| element.rsplit('>').next()).collect();
    let mut parts = [
        ("subject.txt", sheet.subject.as_deref()),
        ("body.txt", sheet.text.as_deref()),
        ("body.html", Some(&*html)),
    ]
    .into_iter();
    let (name, _) = parts.find(|(_, part)| part.is_none_or(|part| part.trim().is_empty()))?;
    Some(format!("{}/{name}", sheet.kind.as_str()))
}

/// Returns the files of the templates folder that are neither templates nor catalogs. Ignores
/// hidden files and the copies of editors.
fn unknown_files(folder: &Path) -> Vec<String> {
    let names = files_in(folder).into_iter().filter_map(|file| {
        let path = file.strip_prefix(folder).ok()?;
        Some(path.to_string_lossy().replace('\\', "/"))
    });
    let is_unknown = |name: &String| {
        let is_hidden = name.split('/').any(|part| part.starts_with('.'));
        let is_copy = name.ends_with('~') || name.ends_with(".bak");
        let is_catalog = name.starts_with("locales/") && name.ends_with(".ftl");
        !(is_hidden || is_copy || is_catalog || template_names().any(|known| known == name))
    };
    names.filter(is_unknown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Site;
    use crate::domain::error_chain::error_chain;
    use crate::wire::diagnosis::Severity;

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
        assert_eq!(severity(&[("digest/body.html", too_large)]), Severity::Error);
    }
}
