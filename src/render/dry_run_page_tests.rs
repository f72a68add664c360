//! Tests of the dry-run report: its content, which must not escape its frames.

use super::*;

fn site() -> Site {
    Site {
        name: "The Gallery".into(),
        url: Some("https://gallery.example".into()),
        logo: None,
        postal_address: None,
        accent: "#1f4e79".into(),
        feedback_id: None,
    }
}

fn report() -> DryRunPage {
    let email = |user: &str, html: Option<&str>| DryRunEmail {
        user: user.into(),
        subject: "New works: Norham Castle".into(),
        events: 8,
        bytes: 6_012,
        html: html.map(str::to_owned),
    };
    DryRunPage {
        at: "21 April 2014, 09:30 UTC".into(),
        counts: vec!["digest 2014-04-21 09:30 UTC: 1,234 due; 12 unconfirmed".into()],
        warnings: vec!["no email is sent: 12 of the last 50 emails failed".into()],
        dry_run: DryRunEmails {
            total: 1_234,
            emails: vec![
                email("ada", Some(r#"<p title="x">Norham & Castle</p>"#)),
                email("ben", None),
            ],
            median: 14_000,
            largest: 41_234,
            failures: BTreeSet::new(),
        },
    }
}

#[test]
fn the_page_shows_counts_warnings_sizes_and_emails() {
    let page = report().render(&site()).unwrap();

    for shown in [
        "<h1>1,234 digests would be sent</h1>",
        "1,234 due; 12 unconfirmed",
        "no email is sent: 12 of the last 50 emails failed",
        "median 14,000, largest 41,234",
        "The first 2 emails",
        "<td>ben</td><td dir=\"auto\">New works: Norham Castle</td><td>8</td><td>6,012</td>",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert_eq!(page.matches("<iframe").count(), 1);
}

#[test]
fn the_page_has_no_scripts_and_loads_nothing() {
    let page = report().render(&site()).unwrap();

    for outside in ["<script", "<link", "<img", " src=", "url(", "@import", "https://"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn email_content_cannot_escape_its_frame() {
    let attack = r#""></iframe><script>alert(1)</script><iframe srcdoc=""#;
    let mut bad = report();
    let email = &mut bad.dry_run.emails[0];
    email.html = Some(attack.to_owned());
    for text in [&mut email.subject, &mut email.user] {
        attack.clone_into(text);
    }
    attack.clone_into(&mut bad.counts[0]);
    attack.clone_into(&mut bad.warnings[0]);

    let page = bad.render(&site()).unwrap();

    assert!(!page.contains("<script") && !page.contains(r#""></iframe><s"#));
    let frames = page.matches("<iframe").count();
    assert_eq!((frames, page.matches(" sandbox ").count()), (1, 1));
}

#[test]
fn a_page_without_digests_shows_counts_and_warnings() {
    let mut report = report();
    report.dry_run = DryRunEmails::default();
    let none = report.render(&site()).unwrap();

    assert!(none.contains("<h1>0 digests would be sent</h1>"));
    assert!(!none.contains("<table") && none.contains("12 unconfirmed"));
}
