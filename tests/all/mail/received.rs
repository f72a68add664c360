//! Emails as their recipients get them: a provider's request with all variables filled in.
//!
//! Variables are replaced in every part and in any letter case. Variables of the provider itself
//! become [`STOLEN`]. So a test notices if content could inject a variable.

use mail_parser::MessageParser;
use serde_json::Value;

use super::provider::{Dialect, Request};

/// The value of a provider's own variables, such as its personal links.
pub const STOLEN: &str = "a-personal-link-of-the-provider";

/// An email as one recipient reads it.
#[derive(Debug)]
pub struct Received {
    pub to: String,
    pub subject: String,
    pub html: String,
    pub text: String,
    pub headers: Vec<(String, String)>,
}

/// Returns the emails of a call.
pub fn received(dialect: Dialect, request: &Request) -> Vec<Received> {
    match dialect {
        Dialect::Mailgun => mailgun(request),
        Dialect::SendGrid => sendgrid(&request.json()),
        Dialect::Postmark => whole(&request.json(), ["To", "Subject", "HtmlBody", "TextBody"]),
        Dialect::Resend => whole(&request.json(), ["to", "subject", "html", "text"]),
        Dialect::Ses => vec![ses(&request.json())],
    }
}

/// Parses an email that was sent over SMTP. A provider may replace its variables there too.
pub fn by_smtp(email: &str) -> Received {
    let parsed = MessageParser::new().parse(email.as_bytes()).unwrap();
    let to = parsed.to().unwrap().first().unwrap();
    let header = |name: &str| parsed.header_raw(name).unwrap_or_default().trim().to_owned();
    Received {
        to: filled(&[], to.address().unwrap()),
        subject: filled(&[], parsed.subject().unwrap()),
        html: filled(&[], &parsed.body_html(0).unwrap()),
        text: filled(&[], &parsed.body_text(0).unwrap()),
        headers: parsed.headers_raw().map(|(name, _)| (name.to_owned(), header(name))).collect(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn mailgun(request: &Request) -> Vec<Received> {
    let variables: Value = request.fields("recipient-variables")[0].parse().unwrap();
    let variables = variables.as_object().unwrap();
    let one = |name: &str| request.fields(name).remove(0);
    let email = |to: String| {
        let (_, own) = variables.iter().find(|(to_, _)| to.contains(*to_)).unwrap();
        let own = own.as_object().unwrap().iter();
        let own: Vec<_> =
            own.map(|(name, value)| (format!("%recipient.{name}%"), text(value))).collect();
        let lines = request.body.lines();
        let headers = lines.filter_map(|line| {
            let header = line.strip_prefix("Content-Disposition: form-data; name=\"h:")?;
            let header = header.trim_end().trim_end_matches('"');
            let value = filled(&own, &one(&format!("h:{header}")));
            Some((header.to_owned(), value))
        });
        Received {
            subject: filled(&own, &one("subject")),
            html: filled(&own, &one("html")),
            text: filled(&own, &one("text")),
            headers: headers.collect(),
            to: filled(&own, &to),
        }
    };
    request.fields("to").into_iter().map(email).collect()
}

fn sendgrid(body: &Value) -> Vec<Received> {
    let part = |kind: &str| {
        let parts = body["content"].as_array().unwrap();
        let part = parts.iter().find(|part| part["type"] == kind).unwrap();
        text(&part["value"])
    };
    let email = |person: &Value| {
        let own = person["substitutions"].as_object().unwrap().iter();
        let own: Vec<_> = own.map(|(name, value)| (name.clone(), text(value))).collect();
        let headers = person["headers"].as_object().unwrap().iter();
        Received {
            to: format!("{}", person["to"]),
            subject: filled(&own, &text(&body["subject"])),
            html: filled(&own, &part("text/html")),
            text: filled(&own, &part("text/plain")),
            headers: headers.map(|(name, value)| (name.clone(), text(value))).collect(),
        }
    };
    let people = body["personalizations"].as_array().unwrap();
    people.iter().map(email).collect()
}

fn whole(body: &Value, [to, subject, html, plain]: [&str; 4]) -> Vec<Received> {
    let headers = |email: &Value| -> Vec<(String, String)> {
        if let Some(headers) = email["headers"].as_object() {
            return headers.iter().map(|(name, value)| (name.clone(), text(value))).collect();
        }
        let headers = email["Headers"].as_array().unwrap().iter();
        headers.map(|header| (text(&header["Name"]), text(&header["Value"]))).collect()
    };
    let email = |email: &Value| Received {
        to: filled(&[], &email[to].to_string()),
        subject: filled(&[], &text(&email[subject])),
        html: filled(&[], &text(&email[html])),
        text: filled(&[], &text(&email[plain])),
        headers: headers(email),
    };
    body.as_array().unwrap().iter().map(email).collect()
}

fn ses(email: &Value) -> Received {
    let content = &email["Content"]["Simple"];
    let part = |part: &Value| filled(&[], &text(&part["Data"]));
    let headers = content["Headers"].as_array().unwrap().iter();
    Received {
        to: filled(&[], &email["Destination"].to_string()),
        subject: part(&content["Subject"]),
        html: part(&content["Body"]["Html"]),
        text: part(&content["Body"]["Text"]),
        headers: headers.map(|header| (text(&header["Name"]), text(&header["Value"]))).collect(),
    }
}

/// The variables that providers replace by themselves: opening, names, and closing.
const OWN: [(&str, &[&str], &str); 3] = [
    ("%", &["recipient", "unsubscribe", "mailing_list", "tag_unsubscribe"], "%"),
    ("<%", &["asm_"], "%>"),
    ("{{", &["pm:", "resend_", "amazonses"], "}}"),
];

/// Replaces these variables and the providers' own ones in the text.
fn filled(variables: &[(String, String)], text: &str) -> String {
    let mut text = text.to_owned();
    for (name, value) in variables {
        let mut done = String::new();
        while let Some(at) = text.to_ascii_lowercase().find(&name.to_ascii_lowercase()) {
            done.push_str(&text[..at]);
            done.push_str(value);
            text.drain(..at + name.len());
        }
        text.insert_str(0, &done);
    }
    for (open, names, close) in OWN {
        let mut done = String::new();
        while let Some(at) = text.find(open) {
            let inside =
                text[at + open.len()..].trim_start_matches(['{', ' ']).to_ascii_lowercase();
            done.push_str(&text[..at]);
            let begins = names.iter().any(|name| inside.starts_with(name));
            let end = begins.then(|| text[at + open.len()..].find(close)).flatten();
            match end {
                Some(end) => {
                    done.push_str(STOLEN);
                    text.drain(..at + open.len() + end + close.len());
                }
                None => {
                    done.push_str(open);
                    text.drain(..at + open.len());
                }
            }
        }
        text.insert_str(0, &done);
    }
    text
}
