//! Tests the content, the validity and the proof of tokens.

use super::*;

fn keys() -> LinkKeys {
    LinkKeys("a secret of the tests".to_owned())
}

fn at(days: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_124_800, 0).unwrap() + TimeDelta::days(days)
}

fn link(user: &UserId, stop: &StopAction, days: i64) -> Link {
    Link { user: user.clone(), stop: stop.clone(), brand: None, address: None, issued_at: at(days) }
}

fn seal(user: &UserId, stop: &StopAction, days: i64) -> String {
    keys().seal(&link(user, stop, days))
}

fn mara() -> UserId {
    UserId::stored("mara")
}

fn names() -> Vec<UserId> {
    let long = "x".repeat(256);
    let names = ["0", "mara", "533998b1c9dc24c371000041", "éve—🎨", &long];
    names.map(UserId::stored).to_vec()
}

fn types(names: &[&str]) -> StopAction {
    StopAction::Types(names.iter().map(EventType::stored).collect())
}

fn subject(name: &str, title: Option<&str>) -> StopAction {
    StopAction::Subject(Subject::stored(name), title.map(Title::stored))
}

fn stops() -> Vec<StopAction> {
    let long = "y".repeat(256);
    vec![
        StopAction::All,
        StopAction::Digest,
        StopAction::OutsideDigest,
        types(&["Comment"]),
        types(&["Comment", "Réponse 🎨", "\0\u{2}\0"]),
        types(&[&long]),
        StopAction::Follow(FollowKey::stored("artist:7")),
        StopAction::Follow(FollowKey::stored(&long)),
        subject("Thread:9", Some("Budget")),
        subject("https://docs.example/budget?v=é", None),
        subject(&"z".repeat(256), Some(&"ä".repeat(60))),
    ]
}

#[test]
fn a_token_opens_with_its_user_and_effect() {
    for user in names() {
        for stop in stops() {
            let token = seal(&user, &stop, 0);

            let opened = keys().open(&token, at(1));
            assert_eq!(opened, Ok(link(&user, &stop, 0)));
            let repeated = seal(&user, &stop, 0);
            assert_eq!(token, repeated, "the same email, the same bytes");
            let next = seal(&user, &stop, 7);
            assert_ne!(token, next, "each email has its own");
            assert!(token.len() < MAX_CHARS, "{} characters", token.len());
        }
    }
}

/// A token of version 1, with the secret, user and time of [`keys`].
const OLD: &str = "13NLmPw8kWFZbcKYeW8rRDwnr13RshSHO";

#[test]
fn a_token_of_version_1_still_stops_all_emails() {
    let opened = keys().open(OLD, at(1)).unwrap();

    assert_eq!((opened.user, opened.stop), (mara(), StopAction::All));
    assert_eq!(seal(&mara(), &StopAction::All, 0), OLD);
}

#[test]
fn a_token_is_valid_for_a_year() {
    for stop in stops() {
        let token = seal(&mara(), &stop, 0);

        for (days, expected) in [
            (0, Ok(mara())),
            (30, Ok(mara())),
            (365, Ok(mara())),
            (366, Err(LinkError::Expired)),
            (3_660, Err(LinkError::Expired)),
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
    for stop in [StopAction::All, types(&["Comment"])] {
        let sealed = |name| seal(&UserId::stored(name), &stop, 0);
        let (token, other) = (sealed("mara@example.org"), sealed("mara@example.com"));
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&token[1..]).unwrap();

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
    for stop in [StopAction::All, StopAction::Digest, types(&["Comment"]), thread] {
        let token = seal(&mara(), &stop, 0);

        for (position, _) in token.char_indices() {
            let others = "AZaz0129-_=+/.%".chars();
            for other in others.filter(|c| !token[position..].starts_with(*c)) {
                let mut forged = token.clone();
                forged.replace_range(position..=position, &other.to_string());
                let opened = keys().open(&forged, at(1));
                assert_eq!(opened, Err(LinkError::Forged), "{forged}");
            }
            assert_eq!(keys().open(&token[..position], at(1)), Err(LinkError::Forged));
        }
        for forged in
            [format!("{token}A"), format!("{token}="), format!(" {token}"), "x".repeat(100_000)]
        {
            assert_eq!(keys().open(&forged, at(1)), Err(LinkError::Forged));
        }
    }
}

#[test]
fn a_user_id_that_resembles_an_encoded_effect_is_only_an_id() {
    // The id of this user looks like an encoded effect. The proof covers it and the version.
    let mut effect = Vec::new();
    put_stop(&mut effect, &types(&["Comment"]));
    let inside = String::from_utf8(effect).unwrap();
    let odd = UserId::stored(format!("{inside}mara"));
    let token = seal(&odd, &StopAction::All, 0);

    let renamed = format!("{V2_EFFECT}{}", &token[1..]);

    assert_eq!(keys().open(&renamed, at(1)), Err(LinkError::Forged));
    assert_eq!(keys().open(&token, at(1)).unwrap().user, odd);
}

#[test]
fn a_token_signed_with_another_secret_is_rejected() {
    let other = LinkKeys("another secret of the tests".to_owned());
    let token = other.seal(&link(&mara(), &StopAction::Digest, 0));

    assert_eq!(keys().open(&token, at(1)), Err(LinkError::Forged));
}

#[test]
fn a_token_is_valid_only_for_its_brand() {
    let brands = ["acme", "umbra"].map(BrandName::stored);
    for user in names() {
        for stop in stops() {
            let with_brand =
                |brand: Option<&BrandName>| Link { brand: brand.cloned(), ..link(&user, &stop, 0) };
            let links = [Some(&brands[0]), Some(&brands[1]), None].map(with_brand);
            let [ours, theirs, neither] = links.map(|link| keys().seal(&link));

            let opened = keys().open(&ours, at(1)).unwrap();

            let content = (opened.user, opened.stop, opened.brand);
            assert_eq!(content, (user.clone(), stop.clone(), Some(brands[0].clone())));
            assert!(ours != theirs && ours != neither);
            assert!(ours.len() < MAX_CHARS, "{} characters", ours.len());
            // Each version has its own keys.
            let forged = format!("2{}", &ours[1..]);
            assert_eq!(keys().open(&forged, at(1)), Err(LinkError::Forged));
        }
    }
}

#[test]
fn a_token_contains_the_address_that_its_email_was_sent_to() {
    let (address, brand) = (Address::new("mara@example.org").unwrap(), BrandName::stored("acme"));
    for brand in [None, Some(&brand)] {
        for (user, stop) in names().iter().zip(stops().iter().cycle()) {
            let sent = Link {
                brand: brand.cloned(),
                address: Some(address.clone()),
                ..link(user, stop, 0)
            };
            let token = keys().seal(&sent);
            let opened = keys().open(&token, at(1)).unwrap();

            let content = (&opened.user, &opened.stop, opened.brand.as_ref());
            assert_eq!(content, (user, stop, brand));
            let short = token.starts_with('4');
            assert_eq!(opened.address, short.then(|| address.clone()));
            assert!(token.len() < MAX_CHARS && !token.contains("mara"), "{token}");
        }
    }
    let sent = Link { address: Some(address.clone()), ..link(&mara(), &StopAction::Digest, 0) };
    let token = keys().seal(&sent);
    assert_eq!(keys().open(&token, at(1)).unwrap().address, Some(address));
}
