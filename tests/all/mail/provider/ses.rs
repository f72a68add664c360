//! The dialect of Amazon SES: one email a call, signed requests, and its account data.
//!
//! Only the form of a signature is checked here. Tests beside the code check its computation.

use serde_json::{Value, json};

use super::{AcceptedEmail, Request, bare};

/// The access key id of all tests, from Amazon's examples.
pub const KEY_ID: &str = "AKIAIOSFODNN7EXAMPLE";

/// The `Authorization` header up to the signature.
pub const PROOF: &str = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/19700101/eu-west-1/ses/aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature=";

/// Returns the email of a call.
pub(super) fn email(request: &Request) -> AcceptedEmail {
    let proof = request.header("authorization");
    assert!(proof.starts_with("AWS4-HMAC-SHA256 Credential="), "{proof}");
    let body = request.json();
    let named = |list: &Value, name: &str| {
        let mut list = list.as_array().unwrap().iter();
        let found = list.find(|one| one["Name"] == name);
        found.map_or(String::new(), |one| one["Value"].as_str().unwrap().to_owned())
    };
    let to = body["Destination"]["ToAddresses"].as_array().unwrap().iter();
    AcceptedEmail {
        to: to.flat_map(|to| bare(to.as_str().unwrap())).collect(),
        delivery: named(&body["EmailTags"], "delivery"),
        call: String::new(),
        unsubscribe: named(&body["Content"]["Simple"]["Headers"], "List-Unsubscribe"),
    }
}

/// Answers queries for the account or an identity.
pub(super) fn look_up(path: &str) -> Value {
    match path {
        "/v2/email/account" => json!({
            "SendingEnabled": true, "ProductionAccessEnabled": true, "EnforcementStatus": "HEALTHY",
            "SendQuota": { "Max24HourSend": 50_000.0, "MaxSendRate": 14.0, "SentLast24Hours": 3.0 },
        }),
        _ => json!({
            "IdentityType": "DOMAIN", "VerifiedForSendingStatus": true,
            "DkimAttributes": { "SigningEnabled": true, "Status": "SUCCESS", "Tokens": ["t1", "t2"] },
        }),
    }
}
