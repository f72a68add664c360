//! One address, however it is written (P7): a domain in its own letters or as `xn--…`, accents in
//! one character or in two.
//!
//! The rule: what was suppressed in one form holds for every other, also where an older program
//! wrote it down.

use bson::doc;
use tidings::domain::{Address, Reason, Suppression, User};

use crate::support::town::{Town, monday, on_both_stores, to};
use crate::support::{Fresh, noon, user};

on_both_stores! {
    an_address_that_is_suppressed_in_one_form_is_not_mailed_in_another
    an_address_that_was_suppressed_by_an_older_program_stays_so
}

/// Forms of two addresses.
const FORMS: [&str; 6] = [
    "x@пример.example",
    "x@xn--e1afmkfd.example",
    "X@ПРИМЕР.example",
    "x@XN--E1AFMKFD.Example",
    "rené@пример.example",
    "rene\u{301}@xn--e1afmkfd.example",
];
/// Pairs of forms that are one address.
const PAIRS: [(usize, usize); 5] = [(0, 1), (1, 0), (2, 3), (3, 0), (4, 5)];

async fn mailed(town: &Town, week: i64, form: &str) -> u64 {
    let person = format!("p{week}");
    let record = User {
        email: Some(Address::new(form).unwrap()),
        confirmed: true,
        ..User::new(user(&person))
    };
    town.store.put_users(&[record]).await.unwrap();
    town.happens(&["a1"], to(&[&person])).await;
    town.digests_at(monday(week)).await.mails.sent
}

async fn an_address_that_is_suppressed_in_one_form_is_not_mailed_in_another(fresh: Fresh) {
    for (suppressed, written) in PAIRS {
        fresh.clear().await;
        let town = Town::of(&fresh).await;
        let address = Address::new(FORMS[suppressed]).unwrap();
        let news = Suppression::new(&address, Reason::Complaint, noon(), "esp");
        town.store.suppress(&[news]).await.unwrap();

        let sent = mailed(&town, 0, FORMS[written]).await;

        assert_eq!(sent, 0, "{} and {}", FORMS[suppressed], FORMS[written]);
        let written = Address::new(FORMS[written]).unwrap();
        assert!(town.store.lift(&written, noon(), noon()).await.unwrap());
        assert_eq!(town.store.suppressed(&[address]).await.unwrap(), [None]);
    }
}

async fn an_address_that_was_suppressed_by_an_older_program_stays_so(fresh: Fresh) {
    for (stored, written) in PAIRS {
        fresh.clear().await;
        let town = Town::of(&fresh).await;
        // Only in lower case, as addresses were compared before.
        as_it_was(&fresh, &FORMS[stored].to_lowercase()).await;

        let sent = mailed(&town, 0, FORMS[written]).await;

        assert_eq!(sent, 0, "{} and {}", FORMS[stored], FORMS[written]);
        let listed = town.store.suppressions(None, 10).await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        let written = Address::new(FORMS[written]).unwrap();
        assert!(town.store.lift(&written, noon(), noon()).await.unwrap());
        assert_eq!(town.store.suppressions(None, 10).await.unwrap(), []);
    }
}

/// Writes an address down as an older program did.
async fn as_it_was(fresh: &Fresh, address: &str) {
    let url = fresh.url();
    let Some(file) = url.strip_prefix("sqlite:") else {
        let client = mongodb::Client::with_uri_str(url).await.unwrap();
        let suppressions = client
            .default_database()
            .unwrap()
            .collection("suppressions");
        let at = bson::DateTime::from_millis(noon().timestamp_millis());
        let row = doc! {"_id": address, "reason": "complaint", "at": at, "source": "esp"};
        suppressions.insert_one(row).await.unwrap();
        return;
    };
    let row = (address, noon().timestamp_millis());
    let sql = "INSERT INTO suppressions (address, reason, at, source) VALUES (?1, 'complaint', ?2, 'esp')";
    rusqlite::Connection::open(file)
        .unwrap()
        .execute(sql, row)
        .unwrap();
}
