//! Finds files in the templates folder that no email or page uses, probably because of a typo.
//!
//! Each is reported with the most similar valid name. Hidden files and backups of editors are
//! ignored.

use std::path::{Path, PathBuf};

use super::mail_templates::{BATCH, DIGEST, FILES, MailTemplates};
use super::pages;
use super::parts::PARTS;
use crate::domain::EventType;

/// A file that is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The path in the folder, such as `digest/bodi.html`.
    pub file: String,
    /// The most similar valid name, if one is near enough.
    pub nearest: Option<String>,
}

/// The greatest depth at which templates are searched.
const DEPTH: usize = 3;

/// Returns the unused files of the folder, sorted by name. `kinds` are the configured types; if
/// there are none, templates of any type are accepted.
pub fn strays<'a>(folder: &Path, kinds: impl Iterator<Item = &'a EventType>) -> Vec<Stray> {
    let kinds: Vec<&EventType> = kinds.collect();
    let mails = [&DIGEST, &BATCH].into_iter().flat_map(MailTemplates::all);
    let shared = PARTS.iter().chain(pages::ALL.iter());
    let mut known: Vec<String> = mails
        .chain(shared)
        .map(|template| template.name.to_string())
        .collect();
    let own = |kind: &str| FILES.map(|file| format!("batch/{kind}/{file}"));
    known.extend(kinds.iter().flat_map(|kind| own(kind.as_str())));
    let mut files = Vec::new();
    walk(folder, PathBuf::new(), &mut files);
    files.sort();
    let read = |file: &String| {
        let parts: Vec<&str> = file.split('/').collect();
        let is_own = matches!(parts[..], ["batch", _, name] if FILES.contains(&name));
        let is_catalog = matches!(parts[..], ["locales", name] if name.ends_with(".ftl"));
        known.contains(file) || is_catalog || (is_own && kinds.is_empty())
    };
    files.retain(|file| !read(file));
    files
        .into_iter()
        .map(|file| Stray {
            nearest: nearest(&file, &known),
            file,
        })
        .collect()
}

fn walk(folder: &Path, below: PathBuf, files: &mut Vec<String>) {
    // Ignore errors: loading the templates reports them.
    let entries = std::fs::read_dir(folder.join(&below)).into_iter().flatten();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if text.starts_with('.') || text.ends_with('~') || text.ends_with(".bak") {
            continue;
        }
        let place = below.join(&name);
        if entry.path().is_dir() {
            if place.components().count() < DEPTH {
                walk(folder, place, files);
            }
        } else {
            files.push(place.to_string_lossy().replace('\\', "/"));
        }
    }
}

/// Returns the most similar name, unless it differs in more than half of the characters.
fn nearest(file: &str, known: &[String]) -> Option<String> {
    let near = known
        .iter()
        .map(|name| (strsim::levenshtein(file, name), name));
    let (distance, name) = near.min()?;
    (distance <= file.len() / 2).then(|| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_files_are_reported_with_the_nearest_known_name() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "digest/body.html",
            "digest/bodi.html",
            "digests/subject.txt",
            "batch/Comment/body.txt",
            "batch/Coment/body.txt",
            "pages/layout.html",
            "notes-of-somebody.md",
            "digest/.body.html.swp",
            "digest/body.html~",
        ] {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }

        let kinds = [EventType::stored("Comment")];
        let found = strays(folder.path(), kinds.iter());

        let reported: Vec<_> = found
            .iter()
            .map(|stray| (stray.file.as_str(), stray.nearest.as_deref()))
            .collect();
        assert_eq!(
            reported,
            [
                ("batch/Coment/body.txt", Some("batch/Comment/body.txt")),
                ("digest/bodi.html", Some("digest/body.html")),
                ("digests/subject.txt", Some("digest/subject.txt")),
                ("notes-of-somebody.md", None),
            ]
        );
    }
}
