//! Signs reports as each provider does, with test keys.

use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::Value;

pub const MAILGUN: &str = "the mailgun key of the tests";
pub const POSTMARK: &str = "hook:the password of the tests";
pub const RESEND: &[u8] = b"the resend key of the tests";

pub const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:tidings";

/// The key of the certificate that replaces Amazon's in these tests.
static SNS: LazyLock<RsaKeyPair> = LazyLock::new(|| {
    let text = include_str!("sns-key.txt").replace('\n', "");
    RsaKeyPair::from_pkcs8(&BASE64_STANDARD.decode(text).unwrap()).unwrap()
});

static SENDGRID: LazyLock<EcdsaKeyPair> = LazyLock::new(key_pair);

fn key_pair() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let kind = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let key = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(kind, key.as_ref(), &random).unwrap()
}

/// Encodes a key as SendGrid shows it: the prefix of P-256 public keys (RFC 5480), then the point.
fn encode_public_key(key: &EcdsaKeyPair) -> String {
    let head = BASE64_STANDARD.decode("MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgA=");
    BASE64_STANDARD.encode([&head.unwrap(), key.public_key().as_ref()].concat())
}

/// The headers and body of a request.
#[derive(Debug, Clone, Default)]
pub struct Signed {
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

impl Signed {
    /// Returns the same headers with another body.
    pub fn with_body(&self, body: impl Into<Vec<u8>>) -> Self {
        Self { headers: self.headers.clone(), body: body.into() }
    }

    /// Removes a header, or replaces its value.
    pub fn with_header(&self, name: &str, value: Option<&str>) -> Self {
        let mut signed = self.clone();
        signed.headers.retain(|(known, _)| *known != name || value.is_some());
        for (_, current) in signed.headers.iter_mut().filter(|(known, _)| *known == name) {
            *current = value.unwrap_or_default().to_owned();
        }
        signed
    }
}

/// A configuration with every provider's key.
pub fn config() -> String {
    let sendgrid = encode_public_key(&SENDGRID);
    let resend = BASE64_STANDARD.encode(RESEND);
    let password = POSTMARK.strip_prefix("hook:").unwrap();
    format!(
        r#"
        server.listen = "127.0.0.1:0"
        delivery.soft_bounces = 3
        [hooks]
        mailgun_key = "{MAILGUN}"
        sendgrid_public_key = "{sendgrid}"
        postmark_user = "hook"
        postmark_password = "{password}"
        resend_secret = "whsec_{resend}"
        ses_topic = "{TOPIC}"
        "#
    )
}

/// Signs a body at this time. `n` makes the ids of each call unique.
pub fn sign(provider: &str, body: &Value, at: i64, n: u32) -> Signed {
    match provider {
        "mailgun" => mailgun(MAILGUN, body, at, &format!("token {n}")),
        "sendgrid" => sendgrid(&SENDGRID, body, at),
        "postmark" => postmark(POSTMARK, body),
        "ses" => ses(body, at, n),
        _ => resend(RESEND, body, at, n),
    }
}

/// Signs like [`sign`], but with keys that are not the provider's.
pub fn forge(provider: &str, body: &Value, at: i64, n: u32) -> Signed {
    match provider {
        "mailgun" => mailgun("another key", body, at, &format!("token {n}")),
        "sendgrid" => sendgrid(&key_pair(), body, at),
        "postmark" => postmark("hook:another password", body),
        "ses" => {
            let signed = ses(body, at, n);
            let mut forged: Value = serde_json::from_slice(&signed.body).unwrap();
            forged["Signature"] = BASE64_STANDARD.encode([7; 256]).into();
            signed.with_body(forged.to_string())
        }
        _ => resend(b"another key", body, at, n),
    }
}

pub fn mailgun(key: &str, body: &Value, at: i64, token: &str) -> Signed {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let digits = hmac::sign(&key, format!("{at}{token}").as_bytes());
    let digits = digits.as_ref().iter();
    let digits: String = digits.map(|byte| format!("{byte:02x}")).collect();
    let mut body = body.clone();
    body["signature"] =
        serde_json::json!({"timestamp": at.to_string(), "token": token, "signature": digits});
    Signed { headers: Vec::new(), body: body.to_string().into_bytes() }
}

fn sendgrid(key: &EcdsaKeyPair, body: &Value, at: i64) -> Signed {
    // SendGrid ends its bodies with CRLF, which the signature covers.
    let body = format!("{body}\r\n").into_bytes();
    let signed = [at.to_string().as_bytes(), &body].concat();
    let signature = key.sign(&SystemRandom::new(), &signed).unwrap();
    let signature = BASE64_STANDARD.encode(signature);
    Signed {
        headers: vec![
            ("x-twilio-email-event-webhook-timestamp", at.to_string()),
            ("x-twilio-email-event-webhook-signature", signature),
        ],
        body,
    }
}

fn postmark(login: &str, body: &Value) -> Signed {
    Signed {
        headers: vec![("authorization", format!("Basic {}", BASE64_STANDARD.encode(login)))],
        body: body.to_string().into_bytes(),
    }
}

fn resend(key: &[u8], body: &Value, at: i64, n: u32) -> Signed {
    let (id, body) = (format!("msg_{n}"), body.to_string().into_bytes());
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let signed = [format!("{id}.{at}.").as_bytes(), &body].concat();
    let signature = BASE64_STANDARD.encode(hmac::sign(&key, &signed));
    Signed {
        headers: vec![
            ("svix-id", id),
            ("svix-timestamp", at.to_string()),
            ("svix-signature", format!("v1,bm90IG91cnM= v1,{signature}")),
        ],
        body,
    }
}

/// An SNS message.
pub struct Envelope<'a> {
    pub kind: &'a str,
    pub message: &'a str,
    /// Makes the message id unique.
    pub n: u32,
    pub at: i64,
    /// The token that confirms a subscription.
    pub token: Option<&'a str>,
}

impl Envelope<'_> {
    pub fn signed(&self) -> Signed {
        let at = chrono::DateTime::from_timestamp(self.at, 0).unwrap();
        let at = at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let id = format!("{:032x}", self.n);
        let mut parts = vec![("Message", self.message), ("MessageId", &id)];
        if let Some(token) = self.token {
            parts.push(("SubscribeURL", "https://evil.example/?Action=ConfirmSubscription"));
            parts.push(("Timestamp", &at));
            parts.push(("Token", token));
        } else {
            parts.push(("Timestamp", &at));
        }
        parts.extend([("TopicArn", TOPIC), ("Type", self.kind)]);
        let text: String = parts.iter().map(|(name, value)| format!("{name}\n{value}\n")).collect();
        let mut signature = vec![0; SNS.public().modulus_len()];
        let random = SystemRandom::new();
        SNS.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).unwrap();
        let mut body: serde_json::Map<String, Value> =
            parts.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        body.insert("SignatureVersion".into(), "2".into());
        body.insert("Signature".into(), BASE64_STANDARD.encode(signature).into());
        let certificate = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-7ff5.pem";
        body.insert("SigningCertURL".into(), certificate.into());
        Signed { headers: Vec::new(), body: Value::from(body).to_string().into_bytes() }
    }
}

fn ses(body: &Value, at: i64, n: u32) -> Signed {
    let message = &body.to_string();
    let kind = "Notification";
    let token = None;
    Envelope { kind, message, n, at, token }.signed()
}
