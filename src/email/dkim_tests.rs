//! Tests the examples of the RFCs, and keys that cannot sign. `tests/all/mail/dkim.rs` verifies our
//! signatures with another implementation.

use super::*;

const RSA_KEY: &str = include_str!("../../tests/all/mail/keys/rsa.pem");
const RSA_PKCS1: &str = include_str!("../../tests/all/mail/keys/rsa_pkcs1.pem");
const RSA_PUBLIC: &str = include_str!("../../tests/all/mail/keys/rsa_public.pem");
/// The key of RFC 8463, appendix A.
const ED25519_KEY: &str = include_str!("../../tests/all/mail/keys/ed25519.pem");

fn dkim(key: &str) -> Result<Dkim, String> {
    Dkim::new("football.example.com", "brisbane", &Secret::new(key))
}

#[test]
fn headers_and_bodies_are_canonicalized_as_in_rfc_6376() {
    let fields = fields("A: X\r\nB : Y\t\r\n\tZ  \r\n");
    let lines: Vec<&str> = fields.iter().map(|(_, line)| line.as_str()).collect();
    assert_eq!(lines, ["a:X", "b:Y Z"]);

    for (body, canonical) in [
        (" C \r\nD \t E\r\n\r\n\r\n", " C\r\nD E\r\n"),
        ("", ""),
        ("\r\n \r\n", ""),
        ("a\r\n \t\r\nb", "a\r\n\r\nb\r\n"),
        ("a \t b\t", "a b\r\n"),
    ] {
        let made = relaxed_body(body.as_bytes());
        assert_eq!(String::from_utf8(made).unwrap(), canonical, "{body:?}");
    }
}

#[test]
fn the_signature_of_the_example_in_rfc_8463_matches() {
    let head = "From: Joe SixPack <joe@football.example.com>\r\n\
        To: Suzie Q <suzie@shopping.example.net>\r\n\
        Subject: Is dinner ready?\r\n\
        Date: Fri, 11 Jul 2003 21:00:37 -0700 (PDT)\r\n\
        Message-ID: <20030712040037.46341.5F8J@football.example.com>\r\n";
    let body = b"Hi.\r\n\r\nWe lost the game.  Are you hungry yet?\r\n\r\nJoe.\r\n";
    let unsigned = "DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/relaxed;\r\n \
        d=football.example.com; i=@football.example.com;\r\n \
        q=dns/txt; s=brisbane; t=1528637909; h=from : to :\r\n \
        subject : date : message-id : from : subject : date;\r\n \
        bh=2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=;\r\n b=";
    let names = [
        "from",
        "to",
        "subject",
        "date",
        "message-id",
        "from",
        "subject",
        "date",
    ];
    let dkim = dkim(ED25519_KEY).unwrap();

    let hash = STANDARD.encode(Sha256::digest(relaxed_body(body)));
    let covered = covered(&fields(head), &names, unsigned);
    let signature = STANDARD.encode(dkim.key.sign(&covered).unwrap());

    assert_eq!(hash, "2jUSOH9NhtVGCQWNr9BrIAPreKQjO6Sn7XIkfJVOzv8=");
    assert_eq!(
        signature,
        "/gCrinpcQOoIfuHNQIbq4pgh9kyIK3AQUdt9OdqQehSwhEIug4D11Bus\
         Fa3bT3FY5OsU7ZbnKELq+eXdp1Q1Dw=="
    );
    assert_eq!(dkim.name(), "brisbane._domainkey.football.example.com");
    assert_eq!(
        dkim.record(),
        "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
    );
}

#[test]
fn the_record_of_an_rsa_key_contains_its_public_key() {
    let lines = RSA_PUBLIC.lines().filter(|line| !line.starts_with("-----"));
    let public: String = lines.collect();
    for key in [RSA_KEY, RSA_PKCS1] {
        let record = dkim(key).unwrap().record();
        assert_eq!(record, format!("v=DKIM1; k=rsa; p={public}"));
    }
}

#[test]
fn repeated_headers_are_signed_from_the_last_and_cannot_be_added() {
    let fields = fields("From: a\r\nSubject: one\r\nX: y\r\nSubject: two\r\n");

    let names = names(&fields);
    let covered = String::from_utf8(covered(&fields, &names, "DKIM-Signature: b=")).unwrap();

    let expected = [
        "from",
        "from",
        "sender",
        "cc",
        "subject",
        "subject",
        "subject",
        "reply-to",
        "content-transfer-encoding",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        covered,
        "from:a\r\nsubject:two\r\nsubject:one\r\ndkim-signature:b="
    );
}

#[test]
fn signing_the_same_email_again_gives_the_same_short_lines() {
    let mail = b"From: a@football.example.com\r\nTo: b@c.example\r\n\r\nHello\r\n";
    for key in [RSA_KEY, ED25519_KEY] {
        let dkim = dkim(key).unwrap();

        let signed = dkim.signed(mail, DateTime::UNIX_EPOCH).unwrap();

        assert_eq!(signed, dkim.signed(mail, DateTime::UNIX_EPOCH).unwrap());
        assert!(signed.ends_with(mail));
        let signed = String::from_utf8(signed).unwrap();
        assert!(
            signed.split("\r\n").all(|line| line.len() <= 80),
            "{signed}"
        );
    }
}

#[test]
fn a_key_that_cannot_sign_is_rejected_without_printing_it() {
    for key in [
        "",
        "no key",
        RSA_PUBLIC,
        include_str!("../../tests/all/mail/keys/ec.pem"),
        include_str!("../../tests/all/mail/keys/rsa_1024.pem"),
        &RSA_KEY.replace("PRIVATE", "ENCRYPTED PRIVATE"),
        &RSA_KEY.replace('A', "B"),
    ] {
        let why = dkim(key).unwrap_err();
        assert!(why.contains("RSA") && why.contains("Ed25519"), "{why}");
        for line in key.lines().filter(|line| line.len() > 20) {
            assert!(!why.contains(line), "{why}");
        }
    }
}

#[test]
fn a_signer_prints_only_the_name_of_its_key() {
    for key in [RSA_KEY, ED25519_KEY] {
        let printed = format!("{:?}", dkim(key).unwrap());
        assert_eq!(
            printed,
            "Dkim(\"brisbane._domainkey.football.example.com\")"
        );
    }
}
