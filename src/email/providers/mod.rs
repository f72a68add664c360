//! The providers with an HTTP API, and one table of their differences.
//!
//! A difference is in the provider's row, or in the file that calls it and reads its reports. The
//! rest of the program reads the row. A new provider needs a file, a row, and its options in
//! `config.default.toml`. Start with [`PROVIDERS`].

mod mailgun;
mod postmark;
mod resend;
mod sendgrid;
mod ses;
mod ses_hook;

use std::fmt;
use std::sync::Arc;

use super::Mailer;
use super::hooks::{LocateCertificate, ReadReports};
use super::http::Account;
use crate::domain::text_checks::plain_word;

/// All providers.
pub static PROVIDERS: &[Provider] = &[
    Provider {
        name: "mailgun",
        title: "Mailgun",
        options: &[MailOption {
            path: mailgun::DOMAIN,
            expected: "a domain such as mg.example.org",
            parse: |text| {
                let domain = plain_word(text, "-.", 1..=253)?.to_ascii_lowercase();
                Some(domain).filter(|domain| !domain.starts_with('.'))
            },
            if_empty: IfEmpty::Required(
                "is needed with Mailgun: the domain that sends the emails, as Mailgun names it",
            ),
        }],
        regions: Regions::Each(&[
            ("us", "https://api.mailgun.net"),
            ("eu", "https://api.eu.mailgun.net"),
        ]),
        calls_per_second: 60,
        new_mailer: |account| Ok(Arc::new(mailgun::Mailgun::new(account)?)),
        // Mailgun's envelope sender is in this domain.
        bounce_domain_option: Some(mailgun::DOMAIN),
        hook_key: HookKey::Key("hooks.mailgun_key", |text| Ok(text.into())),
        read_reports: mailgun::read_reports,
        locate_certificate: None,
    },
    Provider {
        name: "sendgrid",
        title: "SendGrid",
        options: &[],
        regions: Regions::Each(&[
            ("us", "https://api.sendgrid.com"),
            ("eu", "https://api.eu.sendgrid.com"),
        ]),
        calls_per_second: 100,
        new_mailer: |account| Ok(Arc::new(sendgrid::SendGrid::new(account)?)),
        bounce_domain_option: None,
        hook_key: HookKey::Key("hooks.sendgrid_public_key", sendgrid::parse_key),
        read_reports: sendgrid::read_reports,
        locate_certificate: None,
    },
    Provider {
        name: "postmark",
        title: "Postmark",
        options: &[MailOption {
            path: postmark::STREAM,
            expected: "up to 64 letters, digits, - and _",
            parse: |text| plain_word(text, "-_", 1..=64),
            if_empty: IfEmpty::Default("broadcast"),
        }],
        regions: Regions::One("https://api.postmarkapp.com"),
        calls_per_second: 10,
        new_mailer: |account| Ok(Arc::new(postmark::Postmark::new(account)?)),
        bounce_domain_option: None,
        hook_key: HookKey::Login("hooks.postmark_user", "hooks.postmark_password"),
        read_reports: postmark::read_reports,
        locate_certificate: None,
    },
    Provider {
        name: "resend",
        title: "Resend",
        options: &[],
        regions: Regions::One("https://api.resend.com"),
        calls_per_second: 2,
        new_mailer: |account| Ok(Arc::new(resend::Resend::new(account)?)),
        bounce_domain_option: None,
        hook_key: HookKey::Key("hooks.resend_secret", resend::parse_key),
        read_reports: resend::read_reports,
        locate_certificate: None,
    },
    Provider {
        name: "ses",
        title: "Amazon SES",
        options: &[
            MailOption {
                path: ses::KEY_ID,
                expected: "the id of an access key: 16 or more letters and digits, such as AKIA…",
                parse: |text| plain_word(text, "", 16..=128),
                if_empty: IfEmpty::Required(
                    "is needed with Amazon SES: the id of the access key whose secret is mail.key",
                ),
            },
            MailOption {
                path: ses::CONFIGURATION_SET,
                expected: "up to 64 letters, digits, - and _",
                parse: |text| plain_word(text, "-_", 1..=64),
                if_empty: IfEmpty::Default(""),
            },
        ],
        regions: Regions::Named("a region of AWS such as eu-west-1", ses::base_url),
        calls_per_second: 14,
        new_mailer: |account| Ok(Arc::new(ses::Ses::new(account)?)),
        bounce_domain_option: None,
        hook_key: HookKey::Key("hooks.ses_topic", ses_hook::parse_topic),
        read_reports: ses_hook::read_reports,
        locate_certificate: Some(ses_hook::certificate_url),
    },
];

/// The properties of one provider.
pub struct Provider {
    /// The name in `mail.provider`, in the path of its hook (`/hooks/mailgun`), and as the source
    /// of suppressions.
    pub name: &'static str,
    /// The name for readers.
    pub title: &'static str,
    /// The options of `[mail]` that only this provider has.
    pub options: &'static [MailOption],
    /// The base URLs of the API.
    pub regions: Regions,
    /// The calls per second that it accepts from every account, at least 1.
    /// `docs/guides/providers.md` describes their effect.
    pub calls_per_second: u32,
    /// Creates the mailer of an account. Fails if the key cannot be a header value, the sender's
    /// address is invalid, or this machine has no root certificates.
    pub new_mailer: fn(Account) -> Result<Arc<dyn Mailer>, String>,
    /// The option that names the domain that receives bounces; `None` if the domain is the
    /// provider's.
    pub bounce_domain_option: Option<&'static str>,
    /// The key that verifies its reports.
    pub hook_key: HookKey,
    /// Verifies and reads a request to its hook.
    pub read_reports: ReadReports,
    /// If its reports come through Amazon SNS, a function that returns the URL of the certificate
    /// that verifies a request. SNS posts JSON with the content type `text/plain`, and does not
    /// retry a request that is answered by 4xx, except 429. See
    /// <https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html>.
    pub locate_certificate: Option<LocateCertificate>,
}

/// An option of `[mail]` that only one provider has. Its value is displayed, so it is not a secret.
pub struct MailOption {
    /// Section and name, such as `mail.domain`.
    pub path: &'static str,
    /// A description of valid values, for error messages.
    pub expected: &'static str,
    /// Returns the value in its normal form, or `None` if it is invalid.
    pub parse: fn(&str) -> Option<String>,
    /// The meaning of an empty option.
    pub if_empty: IfEmpty,
}

/// The meaning of an empty option.
pub enum IfEmpty {
    /// The option has this default value.
    Default(&'static str),
    /// The option is required. This is the error message.
    Required(&'static str),
}

/// The base URLs of a provider's API, by `mail.region`.
pub enum Regions {
    /// One for all regions.
    One(&'static str),
    /// Names of regions, each with its URL.
    Each(&'static [(&'static str, &'static str)]),
    /// A description of valid names, and a function that returns the URL for a name, or `None` if
    /// the name is invalid.
    Named(&'static str, fn(&str) -> Option<String>),
}

/// The options that hold the key for reports, by section and name, such as `hooks.mailgun_key`. The
/// last one has a variant that names a file, `…_file`.
pub enum HookKey {
    /// A secret, a public key or the name of a topic.
    Key(&'static str, ParseKey),
    /// User and password, which the operator chooses. The key is `user:password`.
    Login(&'static str, &'static str),
}

/// Returns the key in an option's value, or a description of valid values.
pub type ParseKey = fn(&str) -> Result<Vec<u8>, &'static str>;

impl Provider {
    /// Returns the provider with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.name == name)
    }

    /// Returns all names as a list for readers. `and` precedes the last.
    pub fn list_names(and: &str) -> String {
        let names: Vec<&str> = PROVIDERS.iter().map(|provider| provider.name).collect();
        list(&names, and)
    }

    /// Returns the base URL in this region, or the reason why the provider has no such region.
    pub fn url_in(&self, region: &str) -> Result<String, String> {
        match self.regions {
            Regions::One(url) if region == "us" => Ok(url.to_owned()),
            Regions::One(_) => {
                Err(format!("{} has one API for all regions; leave it \"us\"", self.title))
            }
            Regions::Named(wanted, url) => {
                url(region).ok_or_else(|| format!("{region:?} is not {wanted}"))
            }
            Regions::Each(regions) => {
                if let Some((_, url)) = regions.iter().find(|(name, _)| *name == region) {
                    return Ok((*url).to_owned());
                }
                let names: Vec<&str> = regions.iter().map(|(name, _)| *name).collect();
                Err(format!("{region:?} is not {}", list(&names, "or")))
            }
        }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title)
    }
}

impl HookKey {
    /// Returns the two options, or the same one twice. A file can replace the last one.
    pub fn options(&self) -> (&'static str, &'static str) {
        match *self {
            Self::Key(option, _) => (option, option),
            Self::Login(user, password) => (user, password),
        }
    }
}

/// Formats names as a list for readers: "us, eu or ap".
fn list(names: &[&str], and: &str) -> String {
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => {
            format!("{} {and} {last}", others.join(", "))
        }
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_names_are_unique_and_lists_are_readable() {
        for provider in PROVIDERS {
            let named = Provider::find(provider.name).map(|found| found.title);
            assert_eq!(named, Some(provider.title));
        }
        assert!(Provider::find("Mailgun").is_none());
        assert_eq!(["us", "eu", "ap"].map(|one| list(&[one], "or")).concat(), "useuap");
        assert_eq!(list(&["us", "eu", "ap"], "or"), "us, eu or ap");
    }
}
