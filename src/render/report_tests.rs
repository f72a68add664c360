//! Tests of the dry-run report: a snapshot, and content that must not escape its frames.

use super::*;

fn site() -> Site {
    Site {
        name: "The Gallery".into(),
        url: Some("https://gallery.example".into()),
        logo: None,
        postal_address: None,
        accent: "#1f4e79".into(),
    }
}

fn report() -> DryRunPage {
    DryRunPage {
        at: "21 April 2014, 09:30 UTC".into(),
        counts: vec!["digest 2014-04-21 09:30 UTC: 1,234 due; 12 unconfirmed".into()],
        warnings: vec!["no mail leaves: 12 of the last 50 emails failed".into()],
        emails: DryRunEmails {
            digests: emails(1_234, "New works"),
            failures: Vec::new(),
        },
    }
}

fn emails(mails: u64, heading: &str) -> EmailSummary {
    EmailSummary {
        mails,
        events: 8 * mails,
        sizes: Sizes {
            measured: mails,
            failed: 0,
            smallest: 6_012,
            median: 14_000,
            largest: 41_234,
            over: 0,
            clip: crate::render::CLIP_BYTES,
        },
        samples: vec![Sample {
            to: "a…@example.org".into(),
            subject: format!("{heading}: Norham Castle"),
            html: r#"<body><p title="x">Norham & Castle</p></body>"#.into(),
            text: "Norham Castle".into(),
            bytes: 6_012,
            events: 1,
        }],
    }
}

fn page(report: &DryRunPage) -> String {
    ReportPage::new(&site()).unwrap().render(report).unwrap()
}

#[test]
fn the_page_shows_counts_warnings_sizes_and_samples() {
    let page = page(&report());

    for shown in [
        "<h1>1,234 digests would be sent</h1>",
        "1,234 due; 12 unconfirmed",
        "no mail leaves: 12 of the last 50 emails failed",
        "<p>1,234 emails with 9,872 events.</p>",
        "Largest</th><td class=\"n\">41,234</td>",
        "a…@example.org",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
}

#[test]
fn the_page_has_no_scripts_and_loads_nothing() {
    let page = page(&report());

    for outside in [
        "<script", "<link", "<img", " src=", "url(", "@import", "https://",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn email_content_cannot_escape_its_frame() {
    let attack = r#""></iframe><script>alert(1)</script><iframe srcdoc=""#;
    let mut bad = report();
    let sample = &mut bad.emails.digests.samples[0];
    for text in [&mut sample.html, &mut sample.text, &mut sample.subject] {
        attack.clone_into(text);
    }
    attack.clone_into(&mut bad.counts[0]);
    attack.clone_into(&mut bad.warnings[0]);

    let page = page(&bad);

    assert!(!page.contains("<script") && !page.contains(r#""></iframe><s"#));
    let frames = page.matches("<iframe").count();
    assert_eq!((frames, page.matches(" sandbox ").count()), (2, 2));
}

#[test]
fn a_page_without_digests_shows_counts_and_warnings() {
    let mut report = report();
    report.emails.digests = emails(0, "New works");
    let none = page(&report);

    assert!(none.contains("<h1>0 digests would be sent</h1>"));
    assert!(!none.contains("Sizes") && none.contains("12 unconfirmed"));
}
