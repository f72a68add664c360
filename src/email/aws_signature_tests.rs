//! Compares our signatures with those of Amazon's own implementation.
//!
//! The expected values were made by `botocore` 1.44, as [`signed`] shows.

use reqwest::Method;
use reqwest::header::HeaderMap;

use super::*;

const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const SEND: &str = "https://email.eu-west-1.amazonaws.com/v2/email/outbound-emails";
const JSON: (&str, &str) = ("{\"a\":\"ä\"}", "application/json");

fn aws(region: &str) -> AwsSigner {
    AwsSigner {
        id: "AKIDEXAMPLE".into(),
        secret: Secret::new(SECRET),
        region: region.into(),
        service: "ses",
    }
}

/// Returns the headers of a signed request with this body and content type. The same with
/// `botocore`, with the key and the time of Amazon's published examples:
///
/// ```python
/// auth = SigV4Auth(Credentials("AKIDEXAMPLE", SECRET), "ses", region)
/// auth.add_auth(AWSRequest(method, url, data=body, headers=headers))   # at 2015-08-30 12:36:00
/// ```
fn signed(aws: &AwsSigner, method: Method, url: &str, body: Option<(&str, &str)>) -> HeaderMap {
    let mut request = Request::new(method, url.parse().unwrap());
    if let Some((_, kind)) = body {
        let kind = HeaderValue::from_str(kind).unwrap();
        request.headers_mut().insert(CONTENT_TYPE, kind);
    }
    let at = "2015-08-30T12:36:00Z".parse().unwrap();
    aws.sign(&mut request, body.map_or("", |(text, _)| text).as_bytes(), at);
    request.headers().clone()
}

fn proof(headers: &HeaderMap) -> &str {
    headers[AUTHORIZATION.as_str()].to_str().unwrap()
}

#[test]
fn the_signature_covers_body_type_host_and_time() {
    let headers = signed(&aws("eu-west-1"), Method::POST, SEND, Some(JSON));

    assert_eq!(headers[DATE], "20150830T123600Z");
    assert_eq!(
        proof(&headers),
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/eu-west-1/ses/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date, \
         Signature=f43276f8c8b1bf94897c632b08667730d50464ef13a9ef7ddd7bc02c349f34d2"
    );
    assert!(!format!("{headers:?}").contains(SECRET));
}

#[test]
fn a_path_is_encoded_twice_and_a_host_has_its_port_for_signing() {
    let aws = aws("us-east-1");
    for (url, signature) in [
        (
            "https://email.us-east-1.amazonaws.com/v2/email/identities/digest%40art.example",
            "1f072693561f5fdb86b2fc17030ce19d294ed019da7055402ae9e4d9fb771d2e",
        ),
        (
            "http://127.0.0.1:4010/v2/email/configuration-sets",
            "faa0c38552c13b0e7d27fa5d3b74323be0e2bdaed87c96e655dffbe2f975e41c",
        ),
    ] {
        let headers = signed(&aws, Method::GET, url, None);
        let proof = proof(&headers).to_owned();
        assert!(proof.contains("SignedHeaders=host;x-amz-date, "), "{proof}");
        assert!(proof.ends_with(signature), "{url}: {proof}");
    }
}
