//! Tests that valid tokens are accepted and forged ones rejected.

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::*;

const SECRET: &str = "a-secret-that-only-these-tests-have";

fn now() -> DateTime<Utc> {
    "2014-04-19T10:00:00Z".parse().unwrap()
}

fn at(seconds: i64) -> i64 {
    now().timestamp() + seconds
}

fn hs256(id: &str, secret: &str) -> TokenKey {
    TokenKey { id: id.into(), material: KeyMaterial::Hs256(Secret::new(secret)) }
}

fn pair() -> Ed25519KeyPair {
    let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap()
}

fn eddsa(id: &str, pair: &Ed25519KeyPair) -> TokenKey {
    let public = pair.public_key().as_ref().try_into().unwrap();
    TokenKey { id: id.into(), material: KeyMaterial::EdDsa(public) }
}

fn claims() -> Value {
    json!({"sub": "ada", "aud": "tidings", "exp": at(3_600)})
}

/// Changes one claim; `null` removes it.
fn with(claim: &str, value: Value) -> Value {
    let mut claims = claims();
    let fields = claims.as_object_mut().unwrap();
    match value {
        Value::Null => fields.remove(claim),
        value => fields.insert(claim.into(), value),
    };
    claims
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// Creates a token with an HMAC, independent of the algorithm in its header.
fn sealed(header: &Value, claims: &Value, key: &[u8]) -> String {
    let message = unsigned(header, claims);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message.as_bytes());
    format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
}

fn signed(header: &Value, claims: &Value, pair: &Ed25519KeyPair) -> String {
    let message = unsigned(header, claims);
    let signature = pair.sign(message.as_bytes());
    format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

fn opened(keys: &[TokenKey], token: &str) -> Result<String, TokenError> {
    let opened = UserTokens::new("tidings", keys.to_vec()).open(token, now());
    if let Err(refused) = &opened {
        let error = refused.to_string();
        for part in token.split('.').filter(|part| part.len() > 8) {
            assert!(!error.contains(part), "{error}");
        }
    }
    opened.map(|opened| opened.user.to_string())
}

#[test]
fn a_token_opens_with_its_subject_under_either_algorithm() {
    let pair = pair();
    let keys = [hs256("old", SECRET), eddsa("new", &pair)];
    let several = with("aud", json!(["others", "tidings"]));

    for token in [
        sealed(&json!({"alg": "HS256", "kid": "old"}), &claims(), SECRET.as_bytes()),
        signed(&json!({"alg": "EdDSA", "kid": "new", "typ": "JWT"}), &claims(), &pair),
        signed(&json!({"alg": "EdDSA", "kid": "new"}), &several, &pair),
    ] {
        assert_eq!(opened(&keys, &token).unwrap(), "ada");
    }
    // A single key needs no name.
    let nameless = sealed(&json!({"alg": "HS256"}), &claims(), SECRET.as_bytes());
    assert_eq!(opened(&keys[..1], &nameless).unwrap(), "ada");
    assert_eq!(opened(&keys, &nameless), Err(TokenError::WithoutKey));
}

#[test]
fn issued_tokens_are_accepted() {
    let tokens = UserTokens::new("tidings", vec![eddsa("a", &pair()), hs256("b", SECRET)]);
    let user = UserId::new("mara/1").unwrap();

    let token = tokens.issue(&user, now(), MAX_LIFETIME).unwrap().unwrap();

    assert_eq!(
        tokens.open(token.expose(), now()),
        Ok(UserToken { user: user.clone(), expires_at: now() + MAX_LIFETIME, issued_at: now() })
    );
    let later = now() + MAX_LIFETIME + LEEWAY;
    assert_eq!(tokens.open(token.expose(), later), Err(TokenError::Expired));
    assert!(tokens.issue(&user, now(), TimeDelta::hours(25)).is_err());
    assert!(tokens.issue(&user, now(), TimeDelta::zero()).is_err());
    let unsigned = UserTokens::new("tidings", vec![eddsa("a", &pair())]);
    assert_eq!(unsigned.issue(&user, now(), MAX_LIFETIME), Ok(None));
}

/// If the token could choose the algorithm, a public key would be enough to forge one.
#[test]
fn a_token_cannot_choose_its_algorithm() {
    let pair = pair();
    let keys = [eddsa("pub", &pair), hs256("sec", SECRET)];
    let public = pair.public_key().as_ref();
    let kid = |alg: &str, kid: &str| json!({"alg": alg, "kid": kid});
    let none = |alg: &str, kid: &str| {
        let kid = json!({"alg": alg, "kid": kid});
        format!("{}.", unsigned(&kid, &claims()))
    };

    let as_secret = opened(&keys, &sealed(&kid("HS256", "pub"), &claims(), public));
    assert_eq!(as_secret, Err(TokenError::Algorithm("EdDSA")));
    let labeled = opened(&keys, &sealed(&kid("EdDSA", "pub"), &claims(), public));
    assert_eq!(labeled, Err(TokenError::Signature));
    let of_other = opened(&keys, &signed(&kid("EdDSA", "sec"), &claims(), &pair));
    assert_eq!(of_other, Err(TokenError::Algorithm("HS256")));
    let longer = opened(&keys, &sealed(&kid("HS512", "sec"), &claims(), SECRET.as_bytes()));
    assert_eq!(longer, Err(TokenError::Algorithm("HS256")));
    for alg in ["none", "None", "NONE", ""] {
        for kid in ["pub", "sec"] {
            let refused = opened(&keys, &none(alg, kid)).unwrap_err();
            assert!(matches!(refused, TokenError::Algorithm(_)), "{refused}");
        }
    }
    for alg in ["HS256", "EdDSA"] {
        for kid in ["pub", "sec"] {
            assert!(opened(&keys, &none(alg, kid)).is_err(), "{alg} {kid}");
        }
    }
}

#[test]
fn a_signature_by_another_key_is_rejected() {
    let pair = pair();
    let keys = [
        hs256("one", SECRET),
        hs256("two", "another-secret-of-these-tests-alone"),
        eddsa("three", &pair),
    ];
    let kid = |kid: &str| json!({"alg": "HS256", "kid": kid});
    let good = sealed(&kid("one"), &claims(), SECRET.as_bytes());
    let (_, signature) = good.rsplit_once('.').unwrap();
    let other = format!("{}.{signature}", unsigned(&kid("one"), &with("sub", json!("ben"))));
    let foreign = signed(&json!({"alg": "EdDSA", "kid": "three"}), &claims(), &self::pair());

    assert_eq!(opened(&keys, &other), Err(TokenError::Signature));
    assert_eq!(opened(&keys, &foreign), Err(TokenError::Signature));
    let crossed = sealed(&kid("two"), &claims(), SECRET.as_bytes());
    assert_eq!(opened(&keys, &crossed), Err(TokenError::Signature));
    let unknown = sealed(&kid("four"), &claims(), SECRET.as_bytes());
    assert_eq!(opened(&keys, &unknown), Err(TokenError::UnknownKey));
    // A wrong key name is rejected even if there is only one key.
    assert_eq!(opened(&keys[..1], &unknown), Err(TokenError::UnknownKey));
    assert_eq!(opened(&[], &good), Err(TokenError::Unconfigured));
    let critical = json!({"alg": "HS256", "kid": "one", "crit": ["b64"], "b64": false});
    let critical = sealed(&critical, &claims(), SECRET.as_bytes());
    assert_eq!(opened(&keys, &critical), Err(TokenError::Unreadable));
    for garbled in ["..", "a.b.c", "ey.ey.ey", "é.é.é"] {
        assert_eq!(opened(&keys, garbled), Err(TokenError::Unreadable), "{garbled}");
    }
}

#[test]
fn missing_invalid_and_expired_claims_are_rejected() {
    let keys = [hs256("one", SECRET)];
    let open = |claims: &Value| {
        opened(&keys, &sealed(&json!({"alg": "HS256"}), claims, SECRET.as_bytes()))
    };
    let day = MAX_LIFETIME.num_seconds();
    let audience = TokenError::Audience("tidings".into());

    for (claim, value, refused) in [
        ("exp", at(-30).into(), TokenError::Expired),
        ("exp", at(-86_400).into(), TokenError::Expired),
        ("exp", 0.into(), TokenError::Expired),
        ("exp", at(day + 31).into(), TokenError::TooLong),
        ("exp", json!(1e18), TokenError::TooLong),
        ("exp", Value::Null, TokenError::MissingClaim("exp".into())),
        ("exp", json!(at(3_600).to_string()), TokenError::Unreadable),
        ("exp", json!(-1), TokenError::Expired),
        ("nbf", at(31).into(), TokenError::NotYetValid),
        ("nbf", json!("soon"), TokenError::Unreadable),
        ("iat", at(31).into(), TokenError::NotYetValid),
        ("iat", at(3_599 - day).into(), TokenError::TooLong),
        ("sub", Value::Null, TokenError::MissingClaim("sub".into())),
        ("sub", json!(7), TokenError::Unreadable),
        ("sub", json!(""), TokenError::Subject("is empty".into())),
        ("sub", json!(" ada"), TokenError::Subject("begins or ends with white space".into())),
        ("aud", Value::Null, TokenError::MissingClaim("aud".into())),
        ("aud", json!("tidings "), audience.clone()),
        ("aud", json!("other"), audience.clone()),
        ("aud", json!([]), audience.clone()),
        ("aud", json!(["other"]), audience),
    ] {
        let given = with(claim, value);
        assert_eq!(open(&given), Err(refused), "{given}");
    }
    for (claim, value) in [
        ("exp", at(-29).into()),
        ("exp", at(day).into()),
        ("exp", json!(at(10) as f64 + 0.5)),
        ("nbf", at(30).into()),
        ("iat", at(3_600 - day).into()),
        ("other", json!({"any": "thing"})),
    ] {
        let given = with(claim, value);
        assert_eq!(open(&given).unwrap(), "ada", "{given}");
    }
}
