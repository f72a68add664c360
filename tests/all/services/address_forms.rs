//! Tests that all spellings of an address are one address (P7): domains in Unicode or as `xn--…`,
//! accents as one character or two.
//!
//! A suppression of one form applies to every form, including rows that older versions wrote.

use bson::doc;
use tidings::domain::{Address, Suppression, SuppressionReason, User};

use crate::support::town::{Town, monday, on_both_stores, to};
use crate::support::{Fresh, Shorthand, noon, user};

on_both_stores! {
    a_suppression_applies_to_every_form_of_an_address
    a_suppression_from_an_older_version_applies_to_every_form
}

/// Spellings of two addresses.
const FORMS: [&str; 6] = [
    "x@пример.example",
    "x@xn--e1afmkfd.example",
    "X@ПРИМЕР.example",
    "x@XN--E1AFMKFD.Example",
    "rené@пример.example",
    "rene\u{301}@xn--e1afmkfd.example",
];
/// Pairs of indexes into [`FORMS`] that are one address.
const PAIRS: [(usize, usize); 5] = [(0, 1), (1, 0), (2, 3), (3, 0), (4, 5)];

/// Adds a user with this address and an event, and returns the number of emails sent that week.
async fn count_sent(town: &Town, week: i64, form: &str) -> u64 {
    let person = format!("p{week}");
    let record = User {
        email: Some(Address::new(form).unwrap()),
        confirmed: true,
        ..User::new(user(&person))
    };
    town.store.put_users(&[record]).await.unwrap();
    town.happens(&["a1"], to(&[&person])).await;
    town.digests_at(monday(week)).await.emails.sent
}

async fn a_suppression_applies_to_every_form_of_an_address(fresh: Fresh) {
    for (suppressed, written) in PAIRS {
        fresh.clear().await;
        let town = Town::of(&fresh).await;
        let address = Address::new(FORMS[suppressed]).unwrap();
        let suppression = Suppression::new(&address, SuppressionReason::Complaint, noon(), "esp");
        town.store.suppress(&[suppression]).await;

        let sent = count_sent(&town, 0, FORMS[written]).await;

        assert_eq!(sent, 0, "{} and {}", FORMS[suppressed], FORMS[written]);
        let written = Address::new(FORMS[written]).unwrap();
        assert!(town.store.lift(&written, noon(), noon()).await);
        assert_eq!(town.store.suppressed(&[address]).await, [None]);
    }
}

async fn a_suppression_from_an_older_version_applies_to_every_form(fresh: Fresh) {
    for (stored, written) in PAIRS {
        fresh.clear().await;
        let town = Town::of(&fresh).await;
        // Older versions only lowercased addresses.
        insert_legacy_suppression(&fresh, &FORMS[stored].to_lowercase()).await;

        let sent = count_sent(&town, 0, FORMS[written]).await;

        assert_eq!(sent, 0, "{} and {}", FORMS[stored], FORMS[written]);
        let listed = town.store.suppressions(None, 10).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        let written = Address::new(FORMS[written]).unwrap();
        assert!(town.store.lift(&written, noon(), noon()).await);
        assert_eq!(town.store.suppressions(None, 10).await.unwrap(), []);
    }
}

/// Inserts a suppression in the form that older versions stored.
async fn insert_legacy_suppression(fresh: &Fresh, address: &str) {
    let url = fresh.url();
    let Some(file) = url.strip_prefix("sqlite:") else {
        let client = mongodb::Client::with_uri_str(url).await.unwrap();
        let suppressions = client.default_database().unwrap().collection("suppressions");
        let at = bson::DateTime::from_millis(noon().timestamp_millis());
        let row = doc! {"_id": address, "reason": "complaint", "at": at, "source": "esp"};
        suppressions.insert_one(row).await.unwrap();
        return;
    };
    let row = (address, noon().timestamp_millis());
    let sql = "INSERT INTO suppressions (address, reason, at, source) VALUES (?1, 'complaint', ?2, 'esp')";
    rusqlite::Connection::open(file).unwrap().execute(sql, row).unwrap();
}
