//! Tests of the dry-run report: a snapshot, and content that must not escape its frames.

use super::*;
use crate::render::sample;

fn site() -> Site {
    Site {
        name: "The Gallery".into(),
        url: Some("https://gallery.example".into()),
        logo: None,
        postal_address: None,
        accent: "#1f4e79".into(),
    }
}

fn bar(label: &str, count: u64, percent: f64) -> Bar {
    Bar {
        label: label.into(),
        count,
        percent,
    }
}

fn rehearsed() -> Rehearsed {
    Rehearsed {
        at: "21 April 2014, 09:30 UTC".into(),
        scope: vec!["only weekly digests".into()],
        warnings: vec!["Sending is paused: 12 of the last 50 mails failed.".into()],
        mails: 1_234,
        events: 9_876,
        people: vec![
            bar("Would be mailed", 1_234, 100.0),
            bar("Unconfirmed", 12, 1.0),
        ],
        types: vec![TypeBar {
            heading: "New works".into(),
            kind: "ArtworkPublished".into(),
            events: 9_876,
            people: 1_234,
            percent: 100.0,
        }],
        sizes: Sizes {
            measured: 1_234,
            estimated: false,
            smallest: 6_012,
            median: 14_000,
            mean: 14_567,
            largest: 41_234,
            total: 23_000_000,
            bars: vec![
                bar("0 to 10 kB", 234, 23.4),
                bar("10 to 20 kB", 1_000, 100.0),
            ],
            capped: 100,
            cut: 0,
            over: 0,
            clip: crate::render::CLIP_BYTES,
            failed: 0,
        },
        pace: Pace {
            calls: Some(1_234),
            seconds: Some(2_222),
            takes: "38 min".into(),
            bounds: vec![
                Bound {
                    option: "delivery.mails_per_hour",
                    value: 2_000,
                    takes: "38 min".into(),
                    rules: true,
                },
                Bound {
                    option: "mail.calls_per_second",
                    value: 10,
                    takes: "3 min".into(),
                    rules: false,
                },
            ],
            note: "Of one process.".into(),
        },
        comparisons: vec![Comparison {
            cadence: "weekly",
            period: "2014-W17".into(),
            mails: 1_234,
            events: 9_876,
            already: Mailed::default(),
            before: "2014-W16".into(),
            then: Mailed {
                sent: 1_100,
                events: 9_000,
                failed: 2,
                ..Mailed::default()
            },
            change: Some("+12%".into()),
        }],
        samples: vec![Sample {
            why: "the smallest".into(),
            from: "The Gallery <d…@gallery.example>".into(),
            to: "a…@example.org".into(),
            subject: "New: Norham Castle".into(),
            preheader: "New works · 20 April".into(),
            html: r#"<body><p title="x">Norham & Castle</p></body>"#.into(),
            text: "Norham Castle".into(),
            bytes: 6_012,
            events: 1,
            types: 1,
        }],
        batches: Some(of_batches()),
    }
}

fn of_batches() -> OfBatches {
    OfBatches {
        mails: 321,
        events: 4_321,
        what: vec![
            bar("Would be mailed", 321, 100.0),
            bar("Suppressed", 3, 0.9),
        ],
        when: vec![bar("Close later", 321, 100.0)],
        next: Some("21 April, 10:00 UTC".into()),
        types: vec![TypeBar {
            heading: "Comments".into(),
            kind: "Comment".into(),
            events: 4_321,
            people: 321,
            percent: 100.0,
        }],
        sizes: Sizes {
            measured: 321,
            estimated: false,
            smallest: 4_012,
            median: 5_000,
            mean: 5_567,
            largest: 9_234,
            total: 2_300_000,
            bars: vec![bar("4 to 10 kB", 321, 100.0)],
            capped: 0,
            cut: 0,
            over: 0,
            clip: crate::render::CLIP_BYTES,
            failed: 0,
        },
        samples: vec![Sample {
            why: "of the median size".into(),
            from: "The Gallery <d…@gallery.example>".into(),
            to: "b…@example.org".into(),
            subject: "3 comments on Norham Castle".into(),
            preheader: "Comments".into(),
            html: "<body><p>Comments</p></body>".into(),
            text: "Comments".into(),
            bytes: 5_012,
            events: 3,
            types: 1,
        }],
    }
}

fn page(rehearsed: &Rehearsed) -> String {
    ReportPage::new(&site()).unwrap().render(rehearsed).unwrap()
}

#[test]
fn the_report_of_a_rehearsal() {
    let page = page(&rehearsed());
    let (_, body) = page.split_once("<body>").unwrap();

    insta::assert_snapshot!("report", body);
}

#[test]
fn the_page_needs_no_scripts_and_loads_nothing_itself() {
    let page = page(&rehearsed());

    for outside in [
        "<script", "<link", "<img", " src=", "url(", "@import", "https://",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn nothing_in_a_mail_gets_out_of_its_frame() {
    let attack = r#""></iframe><script>alert(1)</script><iframe srcdoc=""#;
    let mut bad = rehearsed();
    let sample = &mut bad.samples[0];
    for text in [&mut sample.html, &mut sample.text, &mut sample.subject] {
        attack.clone_into(text);
    }
    attack.clone_into(&mut bad.types[0].heading);
    attack.clone_into(&mut bad.warnings[0]);

    let page = page(&bad);

    assert!(!page.contains("<script") && !page.contains(r#""></iframe><s"#));
    let frames = page.matches("<iframe").count();
    assert_eq!((frames, page.matches(" sandbox ").count()), (4, 4));
}

#[test]
fn a_report_says_whether_batches_were_looked_at_and_had_anything() {
    let with = |mails, batches| {
        page(&Rehearsed {
            mails,
            batches,
            ..rehearsed()
        })
    };
    let none = OfBatches {
        mails: 0,
        what: vec![bar("Would be mailed", 0, 0.0)],
        ..of_batches()
    };

    assert!(!with(1, None).contains("batches"));
    assert!(with(1, Some(none.clone())).contains("No batch gathers"));
    assert!(with(0, Some(none)).contains("No mail would leave<"));
    assert!(with(0, Some(of_batches())).contains("No digest would leave, 321 mails of batches<"));
    assert!(with(1, Some(of_batches())).contains("1 mail would leave, 321 mails of batches<"));
}

#[test]
fn where_nobody_is_due_the_page_says_so() {
    let nobody = Rehearsed {
        mails: 0,
        events: 0,
        types: Vec::new(),
        comparisons: Vec::new(),
        samples: Vec::new(),
        batches: None,
        ..rehearsed()
    };

    let page = page(&nobody);

    assert!(page.contains("<h1>No mail would leave</h1>"), "{page}");
    assert!(!page.contains("<h2>How large") && page.contains("Unconfirmed"));
}

#[test]
fn the_preheader_is_what_a_mail_begins_with() {
    let own = "<head><title>no</title><style>p { }</style></head><body style=\"x\"><!-- a > b --><style>i{}</style>\n<p>Tom &amp; <b>Jerry</b> &lt;3</p> and more";
    assert_eq!(preheader(own), "Tom & Jerry <3");
    assert_eq!(preheader("plain"), "");

    let renderer = crate::render::Renderer::new(site(), None).unwrap();
    let mut seen = Vec::new();
    sample::digests(|mail| {
        let rendered = renderer.render(mail)?;
        seen.push(preheader(&rendered.html));
        Ok(())
    })
    .unwrap();

    assert_eq!(seen[1], "Somebody 0 · 22 April");
    assert_eq!(seen[2], "Sample 0 · Sample 1 · 2");
}
