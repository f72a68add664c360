//! Checks an SES account: the key, the account's state, and the sender's identity.
//!
//! Nothing is sent. A key that may only send gets `AccessDeniedException` here, and is sufficient.
//! The verified identity may be the sender's domain, a parent domain, or the address itself.

use serde::Deserialize;

use super::ses::{Ses, said};
use crate::email::Checked;
use crate::email::http::{Answer, answered, heard, unexpected};

/// The maximum number of identities to query: domain, parent domains and address.
const MOST_ASKED: usize = 6;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    #[serde(default)]
    sending_enabled: bool,
    #[serde(default)]
    production_access_enabled: bool,
    #[serde(default)]
    enforcement_status: String,
    send_quota: Option<Quota>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Quota {
    max_send_rate: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Identity {
    #[serde(default)]
    verified_for_sending_status: bool,
    #[serde(default)]
    dkim_attributes: Dkim,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct Dkim {
    #[serde(default)]
    signing_enabled: bool,
    #[serde(default)]
    tokens: Vec<String>,
}

impl Ses {
    pub(super) async fn check_account(&self) -> Checked {
        let answer = match heard(self.api.get("/v2/email/account").await, "Amazon SES") {
            Ok(answer) => answer,
            Err(unheard) => return unheard,
        };
        let (name, said) = said(&answer);
        match (answer.status, answer.json::<State>()) {
            (200, Some(state)) => self.check_state(&state).await,
            // AWS authenticates the key before it denies access, so the key is valid.
            (400 | 403, _) if name == "AccessDeniedException" => Checked::ready(
                "Amazon SES knows the key, which may not ask for more (ses:GetAccount)",
            ),
            (400 | 401 | 403, _) => Checked::wrong(
                format!("Amazon SES turned the key away ({said})"),
                "set mail.access_key_id and mail.key to an access key that may ses:SendEmail, and see that mail.region and this machine's clock are right",
            ),
            _ => unexpected("Amazon SES", &said),
        }
    }

    /// Checks whether the account may send, after the key was verified.
    async fn check_state(&self, state: &State) -> Checked {
        let region = self.account.option("mail.region");
        if !state.sending_enabled || state.enforcement_status == "SHUTDOWN" {
            return Checked::wrong(
                format!(
                    "Amazon SES knows the key, but the account's sending is paused in {region}"
                ),
                "see the account's status in the console of SES",
            );
        }
        if !state.production_access_enabled {
            return Checked::wrong(
                format!(
                    "the account is in the sandbox of {region}: it sends to nobody but verified addresses"
                ),
                "ask for production access in the console of SES",
            );
        }
        let rate = state.send_quota.as_ref().map(|quota| quota.max_send_rate);
        let rate = rate.map_or(String::new(), |rate| {
            format!("; it takes {rate} mails a second")
        });
        let from = &self.account.sender.from;
        let domain = from.domain_in_ascii();
        let address = format!("{}@{domain}", from.local());
        for identity in identities(&domain, &address) {
            let path = format!("/v2/email/identities/{}", identity.replace('@', "%40"));
            let answer = match answered(self.api.get(&path).await) {
                Ok(answer) => answer,
                Err(reason) => {
                    return Checked::Unreached {
                        reason: format!("Amazon SES: {reason}"),
                    };
                }
            };
            if answer.status != 404 {
                return self.check_identity(&identity, &answer, &rate);
            }
        }
        Checked::wrong(
            format!(
                "Amazon SES knows the key, but nothing that {} sends from",
                from.domain()
            ),
            "verify the domain in that region of SES, or set mail.from to an address of one that is verified",
        )
    }

    fn check_identity(&self, identity: &str, answer: &Answer, rate: &str) -> Checked {
        // The identity may be an address, which is not displayed.
        let shown = identity.rsplit('@').next().unwrap_or(identity);
        match (answer.status, answer.json::<Identity>()) {
            (200, Some(found)) if found.verified_for_sending_status => Checked::Ready {
                found: format!("Amazon SES knows the key, and {shown} is verified{rate}"),
                dkim: match found.dkim_attributes.signing_enabled {
                    true => found.dkim_attributes.tokens,
                    false => Vec::new(),
                }
                .into_iter()
                .map(|token| format!("{token}._domainkey.{shown}"))
                .collect(),
            },
            (200, Some(_)) => Checked::wrong(
                format!("Amazon SES knows the key, but {shown} is not verified"),
                "finish its DNS records in the console of SES",
            ),
            _ if said(answer).0 == "AccessDeniedException" => Checked::ready(format!(
                "Amazon SES knows the key, which may not ask about {shown} (ses:GetEmailIdentity){rate}"
            )),
            _ => unexpected("Amazon SES", &said(answer).1),
        }
    }
}

/// Returns the identities that may be verified for a sender: domain, parent domains, address.
fn identities(domain: &str, address: &str) -> Vec<String> {
    let labels: Vec<&str> = domain.split('.').collect();
    let domains = (0..labels.len().saturating_sub(1)).map(|from| labels[from..].join("."));
    let mut identities: Vec<String> = domains.take(MOST_ASKED - 1).collect();
    identities.push(address.to_owned());
    identities
}
