//! Tests the previews of emails and pages.

use std::collections::BTreeSet;

use super::*;
use crate::clock::SystemClock;
use crate::domain::{EventType, Policies, Policy, Route};

fn preview(types: &[(&str, Policy)]) -> Previewer {
    let types = types.iter().cloned();
    let policies = types.map(|(kind, policy)| (EventType::stored(kind), policy));
    let mut config = Config::with_defaults();
    config.policies = Policies::new(policies);
    Previewer {
        config,
        brand: None,
        recipient: None,
        kinds: PreviewKind::ALL.to_vec(),
        locale: None,
        clock: Arc::new(SystemClock),
    }
}

fn routed(route: Route, heading: &str) -> Policy {
    Policy { route, heading: Some(heading.into()), ..Policy::default() }
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_153_600, 0).unwrap()
}

fn sheets(preview: &Previewer) -> Vec<PreviewSheet> {
    let drafts = preview.invented(Some("http://127.0.0.1:1/pictures"), now());
    preview.render(&drafts, Some(&sample_user()), now()).unwrap()
}

#[test]
fn sample_events_use_the_configured_types() {
    let previewer = preview(&[
        ("Show", routed(Route::Digest, "Shows near you")),
        ("Loan", routed(Route::Batch, "Loans")),
        ("Never", routed(Route::Never, "Nobody reads this")),
    ]);

    let sheets = sheets(&previewer);

    let names: Vec<&str> = sheets.iter().map(|sheet| sheet.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "one event",
            "several",
            "more than fit",
            "Loan, one event",
            "Loan, several",
            "Loan, many",
            "preferences",
            "preferences saved",
            "stop the digest",
            "stopped the digest",
            "stopped the digest before",
            "stop all but the digest",
            "stopped all but the digest",
            "stopped all but the digest before",
            "stop all email",
            "stopped all email",
            "stopped all email before",
            "stop a follow",
            "stopped a follow",
            "stopped a follow before",
            "stop a type",
            "stopped a type",
            "stopped a type before",
            "stop a thread",
            "stopped a thread",
            "stopped a thread before",
            "notice",
            "notice about quiet hours"
        ]
    );
    for sheet in &sheets[..6] {
        let heading = match sheet.kind {
            PreviewKind::Digest => "Shows near you",
            _ => "Loans",
        };
        assert!(sheet.html.contains(heading), "{}", sheet.name);
        let is_pictured = sheet.html.contains("/pictures/thing-");
        assert!(is_pictured || sheet.kind == PreviewKind::Batch, "{}", sheet.name);
    }
    assert!(
        sheets
            .iter()
            .all(|sheet| !sheet.html.contains("Nobody reads") || sheet.kind == PreviewKind::Page)
    );
}

#[test]
fn without_configured_types_every_kind_of_preview_exists() {
    let sheets = sheets(&preview(&[]));

    let kinds: BTreeSet<&str> = sheets.iter().map(|sheet| sheet.kind.as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["batch", "digest", "page"]));
    let keys: BTreeSet<(&str, &str)> =
        sheets.iter().map(|sheet| (sheet.kind.as_str(), sheet.name.as_str())).collect();
    assert_eq!(keys.len(), sheets.len(), "names are unique within their kind");
    assert!(sheets.iter().all(|sheet| sheet.text.is_some() == sheet.subject.is_some()));
}

#[test]
fn omitted_events_are_counted() {
    let sheets = sheets(&preview(&[]));

    for name in ["more than fit", "Comment, many"] {
        let sheet = sheets.iter().find(|sheet| sheet.name == name).unwrap();
        let text = sheet.text.as_deref().unwrap();
        assert!(text.contains("more"), "{name}: {text}");
    }
}

#[test]
fn an_email_with_only_mandatory_types_has_no_unsubscribe_link() {
    let mandatory = Policy {
        mandatory: Some(crate::domain::Mandate::default()),
        ..routed(Route::Immediate, "Security")
    };
    let sheets = sheets(&preview(&[("Security", mandatory)]));

    for sheet in &sheets {
        let has_link = sheet.html.contains(LinkPlaceholder::Unsubscribe.preview_url());
        assert_eq!(has_link, sheet.kind == PreviewKind::Digest, "{}", sheet.name);
    }
}

#[test]
fn templates_are_read_again_for_each_preview() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("digest/subject.txt");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let mut previewer = preview(&[]);
    previewer.config.mail.templates = Some(folder.path().to_owned());
    let drafts = previewer.invented(None, now());
    let sheet = || previewer.render(&drafts[..1], None, now());

    std::fs::write(&file, "One").unwrap();
    assert_eq!(sheet().unwrap()[0].subject.as_deref(), Some("One"));
    std::fs::write(&file, "Two").unwrap();
    assert_eq!(sheet().unwrap()[0].subject.as_deref(), Some("Two"));
    std::fs::write(&file, "\n{{ nobody }}").unwrap();
    let error = sheet().unwrap_err().to_string();
    assert!(error.contains("digest/subject.txt, line 2"), "{error}");
}

#[test]
fn pages_that_stop_emails_name_the_stopped_subject() {
    let previewer = preview(&[("Comment", routed(Route::Batch, "Comments"))]);
    let sheets = sheets(&previewer);
    let names = |page: &str, what: &str| {
        let page = sheets.iter().find(|sheet| sheet.name == page).unwrap();
        page.html.contains(what)
    };

    assert!(names("stop a follow", "Ines Tavoro"));
    for page in ["stop a type", "stop the digest", "stop all email"] {
        assert!(!names(page, "Ines Tavoro"), "{page}");
    }
    assert!(names("stop a type", "Comments") && names("stop a thread", "Budget"));
}
