//! Tests the content, the validity and the proof of tokens.

use super::*;

fn keys() -> Keys {
    Keys::new("a secret of the tests")
}

fn at(days: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800, 0).unwrap() + TimeDelta::days(days)
}

fn mara() -> UserId {
    UserId::stored("mara")
}

fn names() -> Vec<UserId> {
    let long = "x".repeat(256);
    let names = ["0", "mara", "533998b1c9dc24c371000041", "éve—🎨", &long];
    names.map(UserId::stored).to_vec()
}

fn types(names: &[&str]) -> Stop {
    Stop::Types(names.iter().map(EventType::stored).collect())
}

fn subject(name: &str, title: Option<&str>) -> Stop {
    Stop::Subject(Subject::stored(name), title.map(Title::stored))
}

fn stops() -> Vec<Stop> {
    let long = "y".repeat(256);
    vec![
        Stop::All,
        Stop::Digest,
        Stop::Alone,
        types(&["Comment"]),
        types(&["Comment", "Réponse 🎨", "\0\u{2}\0"]),
        types(&[&long]),
        Stop::Follow(FollowKey::stored("artist:7")),
        Stop::Follow(FollowKey::stored(&long)),
        subject("Thread:9", Some("Budget")),
        subject("https://docs.example/budget?v=é", None),
        subject(&"z".repeat(256), Some(&"ä".repeat(60))),
    ]
}

#[test]
fn a_token_opens_with_its_user_and_effect() {
    for user in names() {
        for stop in stops() {
            let token = keys().seal(&user, &stop, at(0));

            let opened = Opened {
                user: user.clone(),
                stop: stop.clone(),
                brand: None,
                address: None,
                issued: at(0),
            };
            assert_eq!(keys().open(&token, at(1)), Ok(opened));
            let again = keys().seal(&user, &stop, at(0));
            assert_eq!(token, again, "the same mail, the same bytes");
            let next = keys().seal(&user, &stop, at(7));
            assert_ne!(token, next, "each mail has its own");
            assert!(token.len() < MAX_CHARS, "{} characters", token.len());
        }
    }
}

/// A token of version 1, with the secret, user and time of [`keys`].
const OLD: &str = "13NLmPw8kWFZbcKYeW8rRDwnr13RshSHO";

#[test]
fn a_token_of_version_1_still_stops_all_emails() {
    let opened = keys().open(OLD, at(1)).unwrap();

    assert_eq!((opened.user, opened.stop), (mara(), Stop::All));
    assert_eq!(keys().seal(&mara(), &Stop::All, at(0)), OLD);
}

#[test]
fn a_token_is_valid_for_a_year() {
    for stop in stops() {
        let token = keys().seal(&mara(), &stop, at(0));

        for (days, expected) in [
            (0, Ok(mara())),
            (30, Ok(mara())),
            (365, Ok(mara())),
            (366, Err(Refused::Expired)),
            (3_660, Err(Refused::Expired)),
        ] {
            let opened = keys().open(&token, at(days)).map(|opened| opened.user);
            assert_eq!(opened, expected, "{stop:?} after {days} days");
        }
        // The clock of the verifying machine may be behind.
        assert!(keys().open(&token, at(-1)).is_ok());
    }
}

#[test]
fn a_token_reveals_neither_names_nor_common_parts() {
    for stop in [Stop::All, types(&["Comment"])] {
        let sealed = |name| keys().seal(&UserId::stored(name), &stop, at(0));
        let (token, other) = (sealed("mara@example.org"), sealed("mara@example.com"));
        let bytes = URL_SAFE_NO_PAD.decode(&token[1..]).unwrap();

        let holds = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
        assert!(!token.contains("mara") && !holds(b"mara") && !holds(b"Comment"));
        let common = token.chars().zip(other.chars()).take_while(|(a, b)| a == b);
        assert!(common.count() < 8, "{token} {other}");
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        assert!(token.chars().all(plain));
    }
}

#[test]
fn a_changed_token_is_rejected() {
    let thread = subject("Thread:9", Some("Budget"));
    for stop in [Stop::All, Stop::Digest, types(&["Comment"]), thread] {
        let token = keys().seal(&mara(), &stop, at(0));

        for (place, _) in token.char_indices() {
            let others = "AZaz0129-_=+/.%".chars();
            for other in others.filter(|c| !token[place..].starts_with(*c)) {
                let mut forged = token.clone();
                forged.replace_range(place..=place, &other.to_string());
                let opened = keys().open(&forged, at(1));
                assert_eq!(opened, Err(Refused::Forged), "{forged}");
            }
            assert_eq!(keys().open(&token[..place], at(1)), Err(Refused::Forged));
        }
        for forged in [
            format!("{token}A"),
            format!("{token}="),
            format!(" {token}"),
            "x".repeat(100_000),
        ] {
            assert_eq!(keys().open(&forged, at(1)), Err(Refused::Forged));
        }
    }
}

#[test]
fn a_user_id_that_resembles_an_encoded_effect_is_only_an_id() {
    // The id of this user looks like an encoded effect. The proof covers it and the version.
    let inside = String::from_utf8(written(&types(&["Comment"]), None, None)).unwrap();
    let odd = UserId::stored(format!("{inside}mara"));
    let token = keys().seal(&odd, &Stop::All, at(0));

    let renamed = format!("{NAMED}{}", &token[1..]);

    assert_eq!(keys().open(&renamed, at(1)), Err(Refused::Forged));
    assert_eq!(keys().open(&token, at(1)).unwrap().user, odd);
}

#[test]
fn a_placeholder_has_the_length_of_a_token_and_is_rejected() {
    for (user, stop) in names().iter().zip(stops()) {
        let stand_in = stand_in(None, user, &stop, None);

        let token = keys().seal(user, &stop, at(0));
        assert_eq!(stand_in.len(), token.len(), "{user}");
        assert_eq!(keys().open(&stand_in, at(0)), Err(Refused::Forged));
    }
}

#[test]
fn a_token_signed_with_another_secret_is_rejected() {
    let other = Keys::new("another secret of the tests");
    let token = other.seal(&mara(), &Stop::Digest, at(0));

    assert_eq!(keys().open(&token, at(1)), Err(Refused::Forged));
}

#[test]
fn a_token_is_valid_only_for_its_brand() {
    let brands = ["acme", "umbra"].map(BrandName::stored);
    for user in names() {
        for stop in stops() {
            let of = |brand| keys().seal_in(brand, &user, &stop, at(0));
            let [ours, theirs] = [of(Some(&brands[0])), of(Some(&brands[1]))];

            let opened = keys().open(&ours, at(1)).unwrap();

            let content = (opened.user, opened.stop, opened.brand);
            assert_eq!(
                content,
                (user.clone(), stop.clone(), Some(brands[0].clone()))
            );
            assert!(ours != theirs && ours != of(None));
            let stand_in = stand_in(Some(&brands[0]), &user, &stop, None);
            assert_eq!(stand_in.len(), ours.len());
            assert!(ours.len() < MAX_CHARS, "{} characters", ours.len());
            // Each version has its own keys.
            let forged = format!("2{}", &ours[1..]);
            assert_eq!(keys().open(&forged, at(1)), Err(Refused::Forged));
        }
    }
}

#[test]
fn a_token_contains_the_address_that_its_email_was_sent_to() {
    let (address, brand) = (
        Address::new("mara@example.org").unwrap(),
        BrandName::stored("acme"),
    );
    for brand in [None, Some(&brand)] {
        for (user, stop) in names().iter().zip(stops().iter().cycle()) {
            let token = keys().seal_to(Some(&address), brand, user, stop, at(0));
            let opened = keys().open(&token, at(1)).unwrap();

            let content = (&opened.user, &opened.stop, opened.brand.as_ref());
            assert_eq!(content, (user, stop, brand));
            let short = token.starts_with('4');
            assert_eq!(opened.address, short.then(|| address.clone()));
            assert!(
                token.len() < MAX_CHARS && !token.contains("mara"),
                "{token}"
            );
            assert_eq!(
                stand_in(brand, user, stop, Some(&address)).len(),
                token.len()
            );
        }
    }
    let token = keys().seal_to(Some(&address), None, &mara(), &Stop::Digest, at(0));
    assert_eq!(keys().open(&token, at(1)).unwrap().address, Some(address));
}
