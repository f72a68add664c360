//! Comments and documents avoid phrases that a reader has to decode.

use crate::house::{File, files, rust};

const DOCUMENTS: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "clients/js/README.md",
    "clients/python/README.md",
    "docs/README.md",
    "docs/api.md",
    "docs/architecture.md",
    "docs/benchmarks.md",
    "docs/clients.md",
    "docs/glossary.md",
    "docs/personal-data.md",
    "docs/tutorial.md",
    "docs/widget.md",
    "widget/README.md",
    "widget/react/README.md",
    "widget/vue/README.md",
];

/// Phrases of an earlier private dialect. Code in backticks may contain them.
const BANNED: &[&str] = &[
    "whoever",
    "whomever",
    "whatever",
    "somebody",
    "nobody",
    "anybody",
    "of whom",
    "as it were",
    "all the same",
    "the same as ever",
    "lets go of",
    "so many",
    "so much",
    "taken for",
    "goes by",
    "comes to",
    "bring in",
    "owed",
    "stands",
    "stood",
    "is told",
    "are told",
    "is asked",
    "is said",
    "mend",
    "mended",
];

/// Returns the text for readers of a line: a whole line of a document, or a comment.
fn prose<'a>(file: &File, line: &'a str) -> Option<&'a str> {
    match file.place.ends_with(".rs") {
        true => line.trim_start().strip_prefix("//"),
        false => Some(line),
    }
}

/// Returns the line in lower case, without code in backticks and with one space between words.
fn words(line: &str) -> String {
    let parts = line.split('`').step_by(2);
    let text = parts.collect::<Vec<_>>().join(" ").to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!(" {} ", words.join(" "))
}

#[test]
fn comments_and_documents_avoid_banned_phrases() {
    let mut found = Vec::new();
    let mut documents = rust(&["benches", "src", "tests"]);
    documents.extend(files(&["docs/decisions", "docs/guides", "docs/reference"]));
    documents.extend(DOCUMENTS.iter().map(|place| File::read(place)));
    for file in &documents {
        for (number, line) in file.text.lines().enumerate() {
            let line = prose(file, line).map(words).unwrap_or_default();
            let banned = BANNED.iter().filter(|phrase| line.contains(&format!(" {phrase} ")));
            let place = |phrase| format!("{}:{}: {phrase}", file.place, number + 1);
            found.extend(banned.map(place));
        }
    }
    assert!(found.is_empty(), "banned phrases:\n  {}", found.join("\n  "));
}
