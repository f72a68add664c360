//! Amazon SES, API version 2: one email per call, as separate fields, signed with an access key.
//!
//! SES has no idempotency key and cannot be queried, so a lost answer stays unknown (P2, P5). A
//! call holds one email, so that no other is affected. The exception's name decides the outcome,
//! and then the status. `docs/decisions/0006-providers.md` cites the sources, and explains why bulk
//! calls are not used. [`super::ses_hook`] reads the reports.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::domain::Address;
use crate::email::api_calls::{AwsSigner, PreparedEmail, post, set_text};
use crate::email::http::{
    Account, ApiClient, NoAnswer, ProviderResponse, RequestBody, accepted_outcome,
    failed_key_check, outcome_of_status, rejected_key_check, repeat_outcome, status_and_body,
};
use crate::email::mime::mailbox_in_ascii;
use crate::email::placeholders::in_text;
use crate::email::{CheckResult, Mailer, Message, Outcome, SendPermit};

/// The option that names the access key whose secret is `mail.key`.
pub(super) const KEY_ID: &str = "mail.access_key_id";
/// The option that names the configuration set of all emails.
pub(super) const CONFIGURATION_SET: &str = "mail.configuration_set";

/// The wait after a used-up quota, which SES counts over the last 24 hours.
const QUOTA_WAIT: Duration = Duration::from_secs(60 * 60);

/// The maximum number of identities to query: domain, parent domains and address.
const MAX_IDENTITIES: usize = 6;
/// The exception for a key that may only send, which is sufficient.
const ACCESS_DENIED: &str = "AccessDeniedException";

/// The remedy for a rejected key.
const KEY_REMEDY: &str = "set mail.access_key_id and mail.key to an access key that may ses:SendEmail, \
                      and see that mail.region and this machine's clock are right";

/// Exceptions after which no email is accepted until an operator acts.
const STOPPING_EXCEPTIONS: [&str; 14] = [
    "AccountSuspendedException",
    "SendingPausedException",
    "MailFromDomainNotVerifiedException",
    "NotFoundException",
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "NotAuthorized",
    "OptInRequired",
    "RequestExpired",
    "UnrecognizedClientException",
];

/// A mailer for one SES account in one region.
pub(super) struct Ses {
    api: ApiClient,
    from: String,
    reply_to: Vec<String>,
    configuration_set: String,
}

impl Ses {
    /// Creates a mailer. Fails if the sender's address is invalid, or this machine has no root
    /// certificates.
    pub(super) fn new(account: Account) -> Result<Self, String> {
        let signer = AwsSigner {
            id: account.option(KEY_ID),
            secret: account.key.clone(),
            region: account.option("mail.region"),
            service: "ses",
        };
        let sender = &account.sender;
        Ok(Self {
            from: mailbox_in_ascii(&sender.from, Some(&in_text(&sender.from_name)))?,
            reply_to: sender
                .reply_to
                .iter()
                .map(|address| mailbox_in_ascii(address, None))
                .collect::<Result<_, _>>()?,
            configuration_set: account.option(CONFIGURATION_SET),
            api: ApiClient::new(account, signer)?,
        })
    }

    /// Returns the recipient in ASCII, or the reason why SES does not accept the message.
    fn recipient(message: &Message) -> Result<String, String> {
        let name = message.to_name.as_deref().map(in_text);
        mailbox_in_ascii(&message.to, name.as_deref())
    }

    fn body(&self, email: &PreparedEmail<'_>, to: &str) -> Value {
        let part = |text: &str| json!({ "Data": text, "Charset": "UTF-8" });
        let content = email.message.fill_links();
        let to_header = |(name, value): &(String, String)| json!({ "Name": name, "Value": value });
        let mut parts = json!({});
        for (name, text) in [("Html", content.html), ("Text", content.text)] {
            if !text.is_empty() {
                parts[name] = part(&text);
            }
        }
        let mut body = json!({
            "FromEmailAddress": self.from,
            "Destination": { "ToAddresses": [to] },
            "Content": { "Simple": {
                "Subject": part(&email.subject),
                "Body": parts,
                "Headers": email.headers.iter().map(to_header).collect::<Value>(),
            }},
            "EmailTags": [{ "Name": "delivery", "Value": email.tag }],
            "ConfigurationOverrides": { "Tracking": {
                "OpenTrackingEnabled": "DISABLED",
                "ClickTrackingEnabled": "DISABLED",
            }},
        });
        if !self.reply_to.is_empty() {
            body["ReplyToAddresses"] = self.reply_to.clone().into();
        }
        set_text(&mut body, "ConfigurationSetName", &self.configuration_set);
        body
    }

    /// Sends one email, and returns the outcome as a list.
    async fn send_one(&self, message: &Message, permit: &SendPermit) -> Vec<Outcome> {
        let to = match Self::recipient(message) {
            Ok(to) => to,
            Err(reason) => return vec![Outcome::Unsendable(reason)],
        };
        let api = (&self.api, "/v2/email/outbound-emails");
        let body = |emails: &[PreparedEmail<'_>]| RequestBody::json(&self.body(&emails[0], &to));
        let judge = |answer: &ProviderResponse, email_count: usize| {
            repeat_outcome(judge(answer, &self.api.account.sender.from), email_count)
        };
        post(std::slice::from_ref(message), permit, api, body, judge).await
    }

    /// Checks whether the account may send, after the key was verified.
    async fn check_state(&self, state: &Value) -> CheckResult {
        let region = self.api.account.option("mail.region");
        if state["SendingEnabled"] != true || state["EnforcementStatus"] == "SHUTDOWN" {
            return CheckResult::wrong(
                format!(
                    "Amazon SES knows the key, but the account's sending is paused in {region}"
                ),
                "see the account's status in the console of SES",
            );
        }
        if state["ProductionAccessEnabled"] != true {
            return CheckResult::wrong(
                format!(
                    "the account is in the sandbox of {region}: it sends only to verified addresses"
                ),
                "ask for production access in the console of SES",
            );
        }
        let max_rate = state["SendQuota"]["MaxSendRate"].as_f64();
        let rate_note =
            max_rate.map_or(String::new(), |rate| format!("; it accepts {rate} emails a second"));
        let from = &self.api.account.sender.from;
        let domain = from.domain_in_ascii();
        let address = format!("{}@{domain}", from.local_part());
        for identity in identities(&domain, &address) {
            let path = format!("/v2/email/identities/{}", identity.replace('@', "%40"));
            let answer = self.api.get(&path).await;
            if !answer.as_ref().is_ok_and(|answer| answer.status == 404) {
                return check_identity(&identity, answer, &rate_note);
            }
        }
        CheckResult::wrong(
            format!("Amazon SES knows the key, but nothing that {} sends from", from.domain()),
            "verify the domain in that region of SES, or set mail.from to an address of one that is verified",
        )
    }
}

fn check_identity(
    identity: &str,
    answer: Result<ProviderResponse, NoAnswer>,
    rate_note: &str,
) -> CheckResult {
    // The identity may be an address, which is not displayed.
    let domain = identity.rsplit('@').next().unwrap_or(identity);
    let (status, state) = status_and_body(&answer);
    if state["VerifiedForSendingStatus"] == true {
        let dkim = &state["DkimAttributes"];
        let is_signing = dkim["SigningEnabled"] == true;
        let tokens = dkim["Tokens"].as_array().filter(|_| is_signing).into_iter().flatten();
        let to_name = |token: &str| format!("{token}._domainkey.{domain}");
        return CheckResult::Ready(
            format!("Amazon SES knows the key, and {domain} is verified{rate_note}"),
            tokens.filter_map(Value::as_str).map(to_name).collect(),
        );
    }
    if status == 200 && state.is_object() {
        return CheckResult::wrong(
            format!("Amazon SES knows the key, but {domain} is not verified"),
            "finish its DNS records in the console of SES",
        );
    }
    let finding = format!(
        "Amazon SES knows the key, which may not ask about {domain} (ses:GetEmailIdentity){rate_note}"
    );
    unless_denied(answer, finding)
}

/// Returns the result of a check whose answer shows no state. AWS authenticates the key before it
/// denies access. So a denial means that the key is valid: `finding`.
fn unless_denied(
    answer: Result<ProviderResponse, NoAnswer>,
    finding: impl Into<String>,
) -> CheckResult {
    match answer {
        Ok(answer) if exception(&answer).0 == ACCESS_DENIED => CheckResult::ready(finding),
        // SES also rejects a key with status 400.
        Ok(answer) if answer.status == 400 => {
            rejected_key_check("Amazon SES", &describe(&answer), KEY_REMEDY)
        }
        answer => failed_key_check("Amazon SES", answer, describe, KEY_REMEDY),
    }
}

/// Returns the identities that may be verified for a sender: domain, parent domains, address.
fn identities(domain: &str, address: &str) -> Vec<String> {
    let labels: Vec<&str> = domain.split('.').collect();
    let domains = (0..labels.len().saturating_sub(1)).map(|start| labels[start..].join("."));
    let mut identities: Vec<String> = domains.take(MAX_IDENTITIES - 1).collect();
    identities.push(address.to_owned());
    identities
}

#[async_trait]
impl Mailer for Ses {
    async fn send(
        &self,
        _reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            outcomes.extend(self.send_one(message, permit).await);
        }
        outcomes
    }

    async fn check(&self) -> CheckResult {
        let answer = self.api.get("/v2/email/account").await;
        let (status, state) = status_and_body(&answer);
        if status == 200 && state.is_object() {
            return self.check_state(&state).await;
        }
        let finding = "Amazon SES knows the key, which may not ask for more (ses:GetAccount)";
        unless_denied(answer, finding)
    }

    fn name(&self) -> &str {
        "ses"
    }

    fn account_id(&self) -> String {
        self.api.account(self.name())
    }
}

/// Returns an exception's name and message. Both may be empty.
fn exception(answer: &ProviderResponse) -> (String, String) {
    let body = answer.json();
    let text = |name: &str| body[name].as_str();
    let message = text("message").or(text("Message")).unwrap_or_default();
    // A URL may follow the name in the header. A namespace may precede it in the body.
    let qualified = answer.header("x-amzn-errortype").or(text("__type")).unwrap_or_default();
    let name = qualified.split(':').next().and_then(|name| name.rsplit('#').next());
    (name.unwrap_or_default().to_owned(), message.to_owned())
}

/// Returns a text for the ledger with the status and the exception's name and message.
fn describe(answer: &ProviderResponse) -> String {
    let (name, message) = exception(answer);
    let is_known = !(name.is_empty() && message.is_empty());
    answer.describe(is_known.then(|| format!("{name}: {message}")))
}

/// Returns the outcome that an answer means for the email of its call.
fn judge(answer: &ProviderResponse, from: &Address) -> Outcome {
    if answer.is_success() {
        return accepted_outcome("Amazon SES", answer, answer.json()["MessageId"].as_str());
    }
    let (name, message) = exception(answer);
    let reason = format!("Amazon SES: {}", describe(answer));
    let later =
        |min_wait: Option<Duration>| Outcome::TryLater(reason.clone(), answer.wait().max(min_wait));
    let quota_wait = message.to_lowercase().contains("quota").then_some(QUOTA_WAIT);
    match (answer.status, name.as_str()) {
        (429, _) | (_, "TooManyRequestsException" | "ThrottlingException" | "Throttling") => {
            later(quota_wait)
        }
        (_, "LimitExceededException") => later(Some(QUOTA_WAIT)),
        // The request was aborted, so its effect is unknown.
        (408, _) | (_, "RequestAbortedException" | "RequestTimeoutException") => {
            Outcome::Unknown(reason)
        }
        (500.., _) => outcome_of_status(answer, reason),
        (_, name) if STOPPING_EXCEPTIONS.contains(&name) => Outcome::Stop(reason),
        (_, "MessageRejected") if is_ours_unverified(&message, from) => Outcome::Stop(reason),
        _ => outcome_of_status(answer, reason),
    }
}

/// Returns whether the unverified identity is our sender: "Email address is not verified. The
/// following identities failed the check in region EU-WEST-1: digest@art.example". In the sandbox,
/// SES uses the same words for a recipient, which concerns only that email.
fn is_ours_unverified(message: &str, from: &Address) -> bool {
    let message = message.to_lowercase();
    let Some((_, identities)) = message.rsplit_once(':') else {
        return false;
    };
    // SES repeats the address as in the call, in Punycode, or as it was registered.
    let spellings = from.spellings();
    let is_ours = |identity: &str| {
        spellings.iter().any(|from| identity.contains(from.reveal()) || identity == from.domain())
    };
    message.contains("not verified") && identities.split(',').map(str::trim).any(is_ours)
}

/// Returns the domain of AWS in this region, if the name has the form of one: `eu-west-1`,
/// `us-gov-east-1`.
pub(super) fn aws_domain(region: &str) -> Option<&'static str> {
    let parts: Vec<&str> = region.split('-').collect();
    let (number, names) = parts.split_last()?;
    let is_word = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase());
    let is_valid = (2..=4).contains(&names.len())
        && region.len() <= 32
        && names.iter().all(is_word)
        && !number.is_empty()
        && number.bytes().all(|b| b.is_ascii_digit());
    let is_chinese = region.starts_with("cn-");
    is_valid.then_some(if is_chinese { "amazonaws.com.cn" } else { "amazonaws.com" })
}

/// Returns the base URL in this region.
pub(super) fn base_url(region: &str) -> Option<String> {
    aws_domain(region).map(|domain| format!("https://email.{region}.{domain}"))
}

#[cfg(test)]
#[path = "ses_tests.rs"]
mod tests;
