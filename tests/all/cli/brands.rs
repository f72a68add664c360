//! Brands: commands show each brand, name it in lists, and report one that is not configured.

use super::Desk;
#[cfg(unix)]
use super::previews::Served;
use crate::support::assert_contains;

const TWO: &str = r#"
site.name = "Kiosk"
mail.from = "news@kiosk.example"
mail.from_name = "The Kiosk"
[brands.acme]
site.name = "Acmeish"
site.logo = "https://acme.example/logo.png"
mail.from = "hello@acme.example"
[brands.acme.hooks]
mailgun_key = "hunter2"
[brands.umbra]
site.name = "Umbrage"
"#;

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("tidings.toml", TWO);
    desk
}

/// Returns the contents of all files in a folder, concatenated.
fn read_all(desk: &Desk, folder: &str) -> String {
    let files = std::fs::read_dir(desk.path().join(folder)).unwrap();
    let read = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    read.collect()
}

#[cfg(unix)]
#[tokio::test]
async fn preview_shows_a_configured_brand_and_rejects_an_unknown_one() {
    let desk = desk();

    let served = |brand: &[&str]| Served::start(&desk, brand);
    let (of_acme, own) = (served(&["--brand", "acme"]), served(&[]));
    let refused = desk.run(&["preview", "--brand", "gone"]);

    let (acme, default) = (of_acme.sheets().await, own.sheets().await);
    assert!(acme.contains("Acmeish") && acme.contains("https://acme.example/logo.png"));
    assert!(!acme.contains("Kiosk") && !default.contains("Acmeish"));
    assert!(default.contains("Kiosk") && !default.contains("logo.png"));
    assert_ne!(refused.code, 0);
    assert_contains!(refused.err, "the brands are acme, umbra");
}

#[test]
fn a_test_email_of_a_brand_uses_its_sender() {
    let desk = desk();

    desk.done(&["send-test", "me@example.org", "--brand", "acme"]);

    let email = read_all(&desk, "outbox");
    assert_contains!(email, "From: Acmeish <hello@acme.example>");
    assert_contains!(email, "List-Id: <digest.acme.acme.example>");
    assert!(email.contains("acme.example/logo.png") && !email.to_lowercase().contains("kiosk"));
}

#[test]
fn config_shows_brands_without_their_secrets() {
    let shown = desk().run(&["config"]).done();

    assert!(shown.contains("[brands.acme.mail]"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("hello@"), "{shown}");
}

#[test]
fn deliveries_name_their_brand_and_runs_count_brands() {
    let desk = desk();
    let users = r#"{"id": "ada", "email": "ada@example.org", "confirmed": true, "brand": "acme"}
{"id": "ben", "email": "ben@example.org", "confirmed": true}
"#;
    desk.write("users.ndjson", users);
    desk.write("objects.ndjson", "{\"id\": \"a1\", \"title\": \"Night Ferry\"}\n");
    desk.done(&["import", "users", "users.ndjson"]);
    desk.done(&["import", "objects", "objects.ndjson"]);
    desk.done(&["notify", "Work", "a1", "--to", "ada", "--to", "ben"]);

    let dry_run = desk.run(&["digest", "--dry-run", "--now"]);
    desk.done(&["digest", "--now"]);

    assert_contains!(dry_run.err, "emails of the brand acme: 1");
    let listed = desk.done(&["deliveries"]);
    assert_eq!(listed.matches("sent, acme").count(), 1, "{listed}");
    let rows = desk.run(&["deliveries", "--json"]).json();
    let brands: Vec<_> = rows.as_array().unwrap().iter().map(|row| &row["brand"]).collect();
    assert!(brands.contains(&&"acme".into()) && brands.contains(&&serde_json::Value::Null));
    let explained = desk.done(&["explain", "ada"]);
    assert!(explained.contains("brand   acme"), "{explained}");
}

#[test]
fn doctor_reports_open_batches_of_an_unconfigured_brand() {
    let desk = Desk::with_people();
    let branded = "[types.Comment]\nroute = \"batch\"\nwindow = \"1h\"\nbranded = true\n";
    desk.write("tidings.toml", &format!("{branded}[brands.acme]\nsite.name = \"Acmeish\"\n"));
    let audience = ["--to", "ada", "--to", "cem", "--brand", "acme"];
    desk.done(&[&["notify", "Comment", "c1"][..], &audience].concat());

    let before = desk.run(&["doctor", "--offline", "--json"]).json();
    desk.write("tidings.toml", branded);
    let after = desk.run(&["doctor", "--offline", "--json"]).json();

    let of_brands = |report: &serde_json::Value| {
        let findings = report["findings"].as_array().unwrap();
        let mut brands = findings.iter().filter(|of| of["check"] == "brands");
        brands.next().map(|of| of["found"].clone())
    };
    assert_eq!(of_brands(&before), None);
    assert_eq!(
        of_brands(&after).unwrap(),
        "not configured, so emails wait: the brand acme (pending emails: 0, open batches: 2)"
    );
}
