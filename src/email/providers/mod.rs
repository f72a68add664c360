//! The providers that are called over HTTP, and one table of what differs between them.
//!
//! The rule: what is different at one provider is in its row, in the file that calls it, or in the
//! file that reads what it posts; the rest of the program reads the row. So a new provider is two
//! files, a row, and its options in `config.default.toml`. Start with [`PROVIDERS`].

mod mailgun;
mod mailgun_hook;
mod postmark;
mod postmark_hook;
mod resend;
mod resend_hook;
mod sendgrid;
mod sendgrid_hook;
mod ses;
mod ses_account;
mod ses_hook;

use std::fmt;
use std::sync::Arc;

use super::Mailer;
use super::hooks::{Locate, Read};
use super::http::Account;

/// All of them.
pub static PROVIDERS: &[Provider] = &[
    Provider {
        name: "mailgun",
        title: "Mailgun",
        options: &[MailOption {
            path: mailgun::DOMAIN,
            wanted: "a domain such as mg.example.org",
            parse: mailgun::domain,
            unset: Unset::Lacks(
                "is needed with Mailgun: the domain mails leave from, as it is named there",
            ),
        }],
        environment: &[],
        regions: Regions::Each(&[("us", mailgun::URL), ("eu", mailgun::URL_EU)]),
        calls_per_second: 60,
        tags: 8,
        mailer: |account| Ok(Arc::new(mailgun::Mailgun::new(account)?)),
        // Its envelope is of the domain that is named there.
        bounces: Some(mailgun::DOMAIN),
        hook_key: HookKey::Secret("hooks.mailgun_key", |text| Ok(text.into())),
        hook: mailgun_hook::read,
        certificate: None,
        posts_text: false,
        gives_up_on_4xx: false,
    },
    Provider {
        name: "sendgrid",
        title: "SendGrid",
        options: &[],
        environment: &[],
        regions: Regions::Each(&[("us", sendgrid::URL), ("eu", sendgrid::URL_EU)]),
        calls_per_second: 100,
        tags: 8,
        mailer: |account| Ok(Arc::new(sendgrid::SendGrid::new(account)?)),
        bounces: None,
        hook_key: HookKey::Public("hooks.sendgrid_public_key", sendgrid_hook::key),
        hook: sendgrid_hook::read,
        certificate: None,
        posts_text: false,
        gives_up_on_4xx: false,
    },
    Provider {
        name: "postmark",
        title: "Postmark",
        options: &[MailOption {
            path: postmark::STREAM,
            wanted: "letters, digits, - and _",
            parse: postmark::stream,
            unset: Unset::Means("broadcast"),
        }],
        environment: &[],
        regions: Regions::One(postmark::URL),
        calls_per_second: 10,
        tags: 1,
        mailer: |account| Ok(Arc::new(postmark::Postmark::new(account)?)),
        bounces: None,
        hook_key: HookKey::Login("hooks.postmark_user", "hooks.postmark_password"),
        hook: postmark_hook::read,
        certificate: None,
        posts_text: false,
        gives_up_on_4xx: false,
    },
    Provider {
        name: "resend",
        title: "Resend",
        options: &[],
        environment: &[],
        regions: Regions::One(resend::URL),
        calls_per_second: 2,
        tags: 8,
        mailer: |account| Ok(Arc::new(resend::Resend::new(account)?)),
        bounces: None,
        hook_key: HookKey::Secret("hooks.resend_secret", resend_hook::key),
        hook: resend_hook::read,
        certificate: None,
        posts_text: false,
        gives_up_on_4xx: false,
    },
    Provider {
        name: "ses",
        title: "Amazon SES",
        options: &[
            MailOption {
                path: ses::KEY_ID,
                wanted: "the id of an access key: 16 or more letters and digits, such as AKIA…",
                parse: ses::key_id,
                unset: Unset::Lacks(
                    "is needed with Amazon SES: the id of the access key whose secret is mail.key",
                ),
            },
            MailOption {
                path: ses::SET,
                wanted: "up to 64 letters, digits, - and _",
                parse: ses::set,
                unset: Unset::Means(""),
            },
        ],
        environment: &[
            &[
                ("AWS_ACCESS_KEY_ID", ses::KEY_ID),
                ("AWS_SECRET_ACCESS_KEY", "mail.key"),
                ("AWS_SESSION_TOKEN", "mail.session_token"),
            ],
            &[("AWS_REGION", "mail.region")],
            &[("AWS_DEFAULT_REGION", "mail.region")],
        ],
        regions: Regions::Named("a region of AWS such as eu-west-1", ses::url),
        calls_per_second: 14,
        tags: 8,
        mailer: |account| Ok(Arc::new(ses::Ses::new(account)?)),
        bounces: None,
        hook_key: HookKey::Public("hooks.ses_topic", ses_hook::topic),
        hook: ses_hook::read,
        certificate: Some(ses_hook::certificate),
        posts_text: true,
        gives_up_on_4xx: true,
    },
];

/// What differs at one provider.
pub struct Provider {
    /// Its name in `mail.provider`, in the path of its hook, `/hooks/mailgun`, and as the source of
    /// suppressions.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// The options of `[mail]` that it has beside those that all have.
    pub options: &'static [MailOption],
    /// The variables of the environment that its own tools read, and the options they stand in
    /// for. Those of a group are taken together, and only where none of its options is set.
    pub environment: &'static [&'static [(&'static str, &'static str)]],
    /// Where its API is.
    pub regions: Regions,
    /// How many calls a second it takes of everybody, at least 1; see docs/operations.md.
    pub calls_per_second: u32,
    /// The most tags that a mail has there.
    pub tags: usize,
    /// The mailer of an account. Fails where the key cannot stand in a header, the sender cannot be
    /// written, or this machine has no certificates.
    pub mailer: fn(Account) -> Result<Arc<dyn Mailer>, String>,
    /// The option that names the domain bounces go to; `None` where it is the provider's own.
    pub bounces: Option<&'static str>,
    /// What its reports are verified by.
    pub hook_key: HookKey,
    /// Verifies with that key what was posted, and reads what it says.
    pub hook: Read,
    /// Where the certificate is that verifies what was posted, if it is not the key alone that
    /// does.
    pub certificate: Option<Locate>,
    /// Whether it says of the JSON that it posts that it is plain text.
    pub posts_text: bool,
    /// Whether it never posts again what is answered by a status of 4xx, other than 429: see
    /// <https://docs.aws.amazon.com/sns/latest/dg/sns-message-delivery-retries.html>.
    pub gives_up_on_4xx: bool,
}

/// An option of `[mail]` that a provider has for itself. Its value is shown, so it is no secret.
pub struct MailOption {
    /// Section and name, such as `mail.domain`.
    pub path: &'static str,
    /// What a value should be, as it is told of one that is wrong.
    pub wanted: &'static str,
    /// The value that a text means, if it means one.
    pub parse: fn(&str) -> Option<String>,
    /// What it means that the option is empty.
    pub unset: Unset,
}

/// What it means that an option is empty.
pub enum Unset {
    /// This value.
    Means(&'static str),
    /// A problem, told in these words.
    Lacks(&'static str),
}

/// Where a provider's API is, by where it keeps the account (`mail.region`).
pub enum Regions {
    /// There is one for all.
    One(&'static str),
    /// Each region has its own: names and addresses.
    Each(&'static [(&'static str, &'static str)]),
    /// What is wanted as the name of one, and its address, if there can be one of this name.
    Named(&'static str, fn(&str) -> Option<String>),
}

/// The options that hold what reports are verified by, by section and name, such as
/// `hooks.mailgun_key`. Beside the last there is one that names a file instead, `…_file`.
pub enum HookKey {
    /// A key that nobody may see.
    Secret(&'static str, ParseKey),
    /// A key that anybody may see.
    Public(&'static str, ParseKey),
    /// A user and a password, which the operator chooses. The key is `user:password`.
    Login(&'static str, &'static str),
}

/// The key that a text means, or what is wrong with it.
pub type ParseKey = fn(&str) -> Result<Vec<u8>, &'static str>;

impl Provider {
    /// The provider of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.name == name)
    }

    /// Whether a variable of the environment is one that a provider's own tools read.
    pub fn reads(variable: &str) -> bool {
        let groups = PROVIDERS.iter().flat_map(|provider| provider.environment);
        groups.copied().flatten().any(|(name, _)| *name == variable)
    }

    /// The names of all, for people: `and` stands before the last.
    pub fn names(and: &str) -> String {
        let names: Vec<&str> = PROVIDERS.iter().map(|provider| provider.name).collect();
        list(&names, and)
    }

    /// Where its API is in the region of this name, or why that is no region of its.
    pub fn url_in(&self, region: &str) -> Result<String, String> {
        match self.regions {
            Regions::One(url) if region == "us" => Ok(url.to_owned()),
            Regions::One(_) => Err(format!(
                "{} has one API for all regions; leave it \"us\"",
                self.title
            )),
            Regions::Named(wanted, url) => {
                url(region).ok_or_else(|| format!("{region:?} is not {wanted}"))
            }
            Regions::Each(regions) => {
                let known = regions.iter().find(|(name, _)| *name == region);
                let names: Vec<&str> = regions.iter().map(|(name, _)| *name).collect();
                known
                    .map(|(_, url)| (*url).to_owned())
                    .ok_or_else(|| format!("{region:?} is not {}", list(&names, "or")))
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
    /// The options in their order; a file can hold what the last of them holds.
    pub fn options(&self) -> (&'static str, &'static str) {
        match *self {
            Self::Secret(option, _) | Self::Public(option, _) => (option, option),
            Self::Login(user, password) => (user, password),
        }
    }
}

/// Names as people list them: "us, eu or ap".
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
    fn names_are_one_providers_each_and_listed_for_people() {
        for provider in PROVIDERS {
            let named = Provider::named(provider.name).map(|found| found.title);
            assert_eq!(named, Some(provider.title));
        }
        assert!(Provider::named("Mailgun").is_none());
        assert_eq!(
            ["us", "eu", "ap"].map(|one| list(&[one], "or")).concat(),
            "useuap"
        );
        assert_eq!(list(&["us", "eu", "ap"], "or"), "us, eu or ap");
    }
}
