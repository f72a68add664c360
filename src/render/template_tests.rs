//! Tests of templates: an operator's own, broken ones, and inlined styles.

use std::path::Path;

use super::tests::{at, digest, email, renderer, site, titled, works};
use super::*;
use crate::domain::UserId;

#[test]
fn styles_inlined_in_advance_equal_styles_inlined_for_each_email() {
    let once = renderer();
    assert_eq!(once.templates.inlined.len(), 2);
    let mut each = renderer();
    each.templates = Templates::load(DIGEST.all(), None, &site(), None).unwrap();
    let inliner = inline::inliner();
    let user = User::new(UserId::stored("ada"));
    for digest in [
        digest(at(), [("A", "New works", works(0..1), 0)]),
        digest(at(), [("A", "New works", works(0..5), 3), ("B", "Shows", vec![titled("x")], 0)]),
    ] {
        let filled = each.render(&email(&user, &digest)).unwrap().html;

        let html = once.render(&email(&user, &digest)).unwrap().html;

        // A parser writes a hard space as an entity, and drops line breaks after the end.
        let plain = |html: &str| html.replace("&nbsp;", "\u{a0}").replace('\n', "");
        assert!(plain(&html) == plain(&inline::email(&inliner, &filled).unwrap()));
    }
}

/// Creates a renderer with a folder of these templates.
pub(super) fn with(files: &[(&str, &str)]) -> Result<Renderer, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
    }
    Renderer::new(site(), Some(folder.path().to_owned())).map_err(|error| {
        let path = folder.path().display().to_string();
        error.to_string().replace(&path, "templates")
    })
}

#[test]
fn an_operators_template_replaces_the_built_in_one() {
    let renderer =
        with(&[("digest/subject.txt", "{{ total }}\n  for\r\n{{ user.id }} {{ names }}")]).unwrap();
    let user = User::new(UserId::stored("u".repeat(200)));
    let digest = digest(at(), [("A", "New works", works(0..2), 0)]);

    let rendered = renderer.render(&email(&user, &digest)).unwrap();

    assert!(rendered.subject.starts_with("2 for uuu"), "{}", rendered.subject);
    assert_eq!(rendered.subject.chars().count(), MAX_SUBJECT);
    assert!(rendered.html.contains("2 new works for you"));
}

#[test]
fn an_operators_template_may_have_tags_inside_elements() {
    let user = User::new(UserId::stored("ada"));
    let digest = digest(at(), [("A", "New works", works(0..2), 0)]);
    for (body, expected) in [
        (
            "<p class=\"{% if total > 1 %}x{% endif %}\">{{ subject }}</p>",
            ["<p ", "style=\"color:red\""],
        ),
        (
            "<table><td {% if true %}bgcolor=\"red\"{% endif %} class=\"x\">a</td></table>",
            ["bgcolor=\"red\"", "style=\"color:red\""],
        ),
    ] {
        let template = format!("<style>.x{{color:red}}</style>{body}");
        let renderer = with(&[("digest/body.html", &template)]).unwrap();
        assert!(!renderer.templates.inlined.contains("digest/body.html"));
        assert!(renderer.templates.inlined.contains("batch/body.html"));

        let html = renderer.render(&email(&user, &digest)).unwrap().html;

        for part in expected {
            assert!(html.contains(part), "{part} is not in\n{html}");
        }
    }
}

#[test]
fn a_broken_template_is_rejected_at_startup_with_its_line() {
    for (name, template, expected) in [
        (
            "digest/body.html",
            "<p>\n{% if one %}\n</p>",
            "templates/digest/body.html, line 3: syntax error",
        ),
        (
            "digest/subject.txt",
            "a\n{{ totl }}",
            "templates/digest/subject.txt, line 2: undefined value",
        ),
        (
            "digest/body.txt",
            "\n\n\n{{ total|gruped }}",
            "templates/digest/body.txt, line 4: unknown filter",
        ),
        (
            "digest/body.html",
            "<style>\np { color: red }\n</style>\n{{ sections[0].heding }}",
            "templates/digest/body.html, line 4: undefined value",
        ),
        (
            "digest/body.txt",
            "{% for s in sections %}{% if s.more %}\n{{ s.totl }}{% endif %}{% endfor %}",
            "templates/digest/body.txt, line 2: undefined value",
        ),
    ] {
        let error = with(&[(name, template)]).err().expect(template);

        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_template_that_is_too_large_without_items_is_rejected() {
    let error = with(&[("digest/body.html", &"x".repeat(100_000))]).err().unwrap();

    assert!(error.starts_with("templates/digest/body.html makes 1000"), "{error}");
}

#[test]
fn unreadable_templates_are_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("templates");
    let error = |path: &Path| Renderer::new(site(), Some(path.to_owned())).err().unwrap();
    assert!(error(&missing).to_string().contains("templates cannot be read"));

    std::fs::create_dir_all(missing.join("digest")).unwrap();
    std::fs::write(missing.join("digest/body.txt"), b"\xff\xfe").unwrap();
    assert!(error(&missing).to_string().ends_with("digest/body.txt cannot be read"));
}

#[test]
fn an_accent_that_is_not_a_color_is_rejected() {
    let site = Site { accent: "red;} body { display: none".into(), ..site() };

    let error = Renderer::new(site, None).err().unwrap().to_string();

    assert!(error.contains("is not written as #rrggbb"), "{error}");
}

#[test]
fn an_email_is_personal_if_its_template_reads_user_fields() {
    let user = User { name: Some("Ada".into()), ..User::new(UserId::stored("ada")) };
    let digest = digest(at(), [("A", "New works", works(0..2), 0)]);
    let is_personal = |renderer: Renderer| {
        let rendered = renderer.render(&email(&user, &digest)).unwrap();
        rendered.is_personal
    };
    assert!(!is_personal(renderer()));
    for (subject, personal) in [
        ("{{ total }} new", false),
        ("For {{ user.name }}", true),
        ("{% if user.locale %}Neu{% else %}New{% endif %}", true),
        ("{% if user %}New{% endif %}", true),
        ("{{ user }}", true),
        ("{{ user|length }}", true),
        ("{% for key in user %}{{ key }}{% endfor %}", true),
        ("{% set who = user %}{{ who.id }}", true),
    ] {
        let renderer = with(&[("digest/subject.txt", subject)]).unwrap();
        assert_eq!(is_personal(renderer), personal, "{subject}");
    }
}

#[test]
fn templates_format_dates_and_messages_in_the_users_language() {
    let digest = digest(at(), [("A", "New works", works(0..1), 0)]);
    let subject = "{% if one %}{{ one.at }} {{ one.date }} \
                   {{ t('people', count=total) }} {{ 39389|grouped }}{% endif %}";
    let renderer = with(&[("digest/subject.txt", subject)]).unwrap();
    let subject_in = |locale: &str| {
        let user = User { locale: Some(locale.into()), ..User::new(UserId::stored("ada")) };
        renderer.render(&email(&user, &digest)).unwrap().subject
    };

    assert_eq!(subject_in("en"), "2014-04-22T00:00:00Z 22 April 1 people 39,389");
    assert_eq!(subject_in("de"), "2014-04-22T00:00:00Z 22. April 1 Person 39.389");
    let wrong = with(&[("digest/subject.txt", "one\n{{ t('peeple') }}")]);
    let error = wrong.err().unwrap().to_string();
    assert!(
        error.contains("subject.txt, line 2") && error.contains("no message peeple"),
        "{error}"
    );
}

#[test]
fn macros_from_before_catalogs_still_work() {
    let ends = "{% macro from(ends) -%}\n{% if ends %} from it{% endif %}\n{%- endmacro %}\n";
    let said = "{% macro listed(all, others, word) -%}\n{{ all|join(' + ') }}\n{%- endmacro %}\n\
                {% macro times(s) -%}\n{%- endmacro %}\n";
    let renderer = with(&[("mail/ends.txt", ends), ("mail/said.txt", said)]).unwrap();
    let digest = digest(at(), [("A", "New works", works(0..2), 0)]);
    let user = User::new(UserId::stored("ada"));

    let rendered = renderer.render(&email(&user, &digest)).unwrap();

    assert!(rendered.text.contains("Unsubscribe from it:\n"), "{}", rendered.text);
    assert!(rendered.subject.contains(" + "), "{}", rendered.subject);
}

#[test]
fn a_template_with_too_much_output_or_too_many_steps_is_rejected() {
    let many = "\n{% for _ in range(100000) %}{{ 'x' * 4000 }}{% endfor %}";
    for template in ["\n{{ ('x' * 90000000) }}", many] {
        let error = with(&[("digest/body.txt", template)]).map(drop).unwrap_err();

        let at = "templates/digest/body.txt";
        assert!(error.starts_with(at), "{template}: {error}");
        let why = "makes more than 33554432 bytes";
        assert!(error.ends_with(why), "{template}: {error}");
    }
    let endless = "{% for _ in range(100000) %}{% for _ in range(100) %}{% endfor %}{% endfor %}";
    let error = with(&[("digest/body.txt", endless)]).map(drop).unwrap_err();
    assert!(error.contains("does not end"), "{error}");
}
