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

fn line(label: &str, count: u64) -> Line {
    Line {
        label: label.into(),
        count,
    }
}

fn report() -> DryRunPage {
    DryRunPage {
        at: "21 April 2014, 09:30 UTC".into(),
        scope: vec!["only weekly digests".into()],
        warnings: vec!["Sending is paused: 12 of the last 50 emails failed.".into()],
        people: vec![line("Would get an email", 1_234), line("Unconfirmed", 12)],
        mails_per_hour: 2_000,
        digests: emails(1_234, "New works", "ArtworkPublished", "the smallest"),
        batches: Some(batches()),
    }
}

fn batches() -> BatchSummary {
    BatchSummary {
        lines: vec![line("Would get an email", 321), line("Suppressed", 3)],
        next: Some("21 April, 10:00 UTC".into()),
        emails: emails(321, "Comments", "Comment", "the largest"),
    }
}

fn emails(mails: u64, heading: &str, kind: &str, why: &'static str) -> EmailSummary {
    EmailSummary {
        mails,
        events: 8 * mails,
        types: vec![TypeLine {
            heading: heading.into(),
            kind: kind.into(),
            events: 8 * mails,
            people: mails,
        }],
        sizes: Sizes {
            measured: mails,
            failed: 0,
            estimated: false,
            smallest: 6_012,
            median: 14_000,
            largest: 41_234,
            capped: 100,
            over: 0,
            clip: crate::render::CLIP_BYTES,
        },
        samples: vec![Sample {
            why: vec![why],
            to: "a…@example.org".into(),
            subject: format!("{heading}: Norham Castle"),
            html: r#"<body><p title="x">Norham & Castle</p></body>"#.into(),
            text: "Norham Castle".into(),
            bytes: 6_012,
            events: 1,
            types: 1,
        }],
    }
}

fn page(report: &DryRunPage) -> String {
    ReportPage::new(&site()).unwrap().render(report).unwrap()
}

#[test]
fn the_page_shows_users_content_sizes_and_samples() {
    let page = page(&report());

    for shown in [
        "<h1>1,234 digests and 321 emails of batches would be sent</h1>",
        "(only weekly digests)",
        "Sending is paused: 12 of the last 50 emails failed.",
        "at delivery.mails_per_hour = 2,000</dt><dd>0.6</dd>",
        "Unconfirmed</th><td class=\"n\">12</td>",
        "<code class=\"soft\">ArtworkPublished</code></th><td class=\"n\">9,872</td>",
        "Largest</th><td class=\"n\">41,234</td>",
        "<p class=\"why\">The smallest</p>",
        "a…@example.org",
        "The next batch closes on 21 April, 10:00 UTC.",
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
    let sample = &mut bad.digests.samples[0];
    for text in [&mut sample.html, &mut sample.text, &mut sample.subject] {
        attack.clone_into(text);
    }
    attack.clone_into(&mut bad.digests.types[0].heading);
    attack.clone_into(&mut bad.warnings[0]);

    let page = page(&bad);

    assert!(!page.contains("<script") && !page.contains(r#""></iframe><s"#));
    let frames = page.matches("<iframe").count();
    assert_eq!((frames, page.matches(" sandbox ").count()), (4, 4));
}

#[test]
fn the_page_mentions_batches_only_if_they_were_counted() {
    let with = |mails, batches| {
        let mut report = report();
        report.digests.mails = mails;
        report.batches = batches;
        page(&report)
    };
    let none = BatchSummary {
        lines: vec![line("Would get an email", 0)],
        emails: EmailSummary {
            mails: 0,
            ..batches().emails
        },
        next: None,
    };

    assert!(!with(1, None).contains("atches"));
    assert!(with(0, Some(none)).contains("<h1>0 digests would be sent</h1>"));
    let both = with(1, Some(batches()));
    assert!(both.contains("<h1>1 digest and 321 emails of batches would be sent</h1>"));
}

#[test]
fn a_page_without_emails_shows_only_the_users() {
    let mut report = report();
    report.digests.mails = 0;
    report.batches = None;

    let page = page(&report);

    assert!(page.contains("<h1>0 digests would be sent</h1>"), "{page}");
    assert!(!page.contains("<h2>Sizes") && page.contains("Unconfirmed"));
}
