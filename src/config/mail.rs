//! The section `[mail]`: the provider, the sender, and limits.
//!
//! All settings that a provider requires are checked here, before the first email. Keys are sent
//! only over encrypted connections, or to this machine. [`PROVIDERS`] lists what each provider
//! requires. Start with [`MailSettings`].

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use chrono::TimeDelta;
use url::Url;

use super::reader::TableReader;
use super::sections::{is_safe, is_this_machine};
use crate::domain::text_checks::plain_word;
use crate::domain::{Address, Secret};
use crate::email::providers::{IfEmpty, MailOption, PROVIDERS, Provider};
use crate::email::{Relay, Security, SenderAddress};

/// The section `[mail]`, validated.
#[derive(Debug, Clone)]
pub struct MailSettings {
    /// The provider, with the settings that it requires.
    pub transport: Transport,
    /// The folder for `.eml` files, used if there is no provider.
    pub outbox: PathBuf,
    /// Whether the outbox also writes each email as a web page.
    pub outbox_pages: bool,
    /// The sender of all emails. With a provider, its address is never the default one. Its name is
    /// never empty.
    pub sender: SenderAddress,
    /// The domain of list and thread ids, in ASCII and lower case. By default the sender's domain.
    pub list_domain: String,
    /// A folder with the operator's own templates; `None` for the built-in ones only.
    pub templates: Option<PathBuf>,
    /// The longest duration of a call, 1 second to 5 minutes.
    pub timeout: TimeDelta,
    /// The most calls to start per second. By default the provider's usual limit.
    pub calls_per_second: NonZeroU32,
    /// The most emails in one call; `None` for the provider's limit.
    pub max_per_call: Option<usize>,
    /// The DKIM selector: the name of the public key in the DNS.
    pub dkim_selector: Option<String>,
}

/// How emails are sent.
#[derive(Debug, Clone)]
pub enum Transport {
    /// They are not sent, but written to a folder.
    Outbox,
    /// By an SMTP server.
    Smtp(Relay),
    /// By a provider's HTTP API.
    Api(ProviderApi),
}

/// A provider's API and its settings.
#[derive(Debug, Clone)]
pub struct ProviderApi {
    /// The provider.
    pub provider: &'static Provider,
    /// The API key; never empty after validation.
    pub api_key: Secret,
    /// The base URL. By default the provider's own.
    pub base_url: String,
    /// The values of the provider's own options and of `mail.region`, by path.
    pub options: BTreeMap<&'static str, String>,
}

/// The values of `mail.provider`.
#[derive(Clone, Copy)]
enum ProviderName {
    Outbox,
    Smtp,
    Api(&'static Provider),
}

impl ProviderName {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "outbox" => Some(Self::Outbox),
            "smtp" => Some(Self::Smtp),
            other => Provider::find(other).map(Self::Api),
        }
    }

    fn api(self) -> Option<&'static Provider> {
        match self {
            Self::Api(provider) => Some(provider),
            Self::Outbox | Self::Smtp => None,
        }
    }
}

impl MailSettings {
    /// Reads the section `[mail]`. Adds a problem for each invalid or missing value.
    pub(super) fn read(r: &mut TableReader<'_>, lease: TimeDelta) -> Self {
        let names = format!("outbox, smtp, {}", Provider::list_names("or"));
        let name = r
            .parse_non_empty_with("mail.provider", &names, ProviderName::parse)
            .unwrap_or(ProviderName::Outbox);
        let from = r.address("mail.from").unwrap_or_else(|| {
            if !r.has_problem("mail.from") {
                r.add_problem("mail.from", "must be an email address");
            }
            Address::new("nobody@localhost.localdomain").expect("this is an address")
        });
        let range = TimeDelta::seconds(1)..=TimeDelta::minutes(5);
        let timeout = r.duration("mail.timeout", range);
        let is_sending = !matches!(name, ProviderName::Outbox);
        if is_sending && from.is_placeholder() && !r.has_problem("mail.from") {
            let title = name.api().map_or("SMTP", |provider| provider.title);
            let problem =
                format!("is still the default; {title} sends only for an address that you own");
            r.add_problem("mail.from", problem);
        }
        if is_sending && timeout * 2 > lease {
            r.add_problem(
                "mail.timeout",
                "must be at most half of delivery.lease, or deliveries are lost to other workers while their emails are being sent",
            );
        }
        let from_name = r.non_empty("mail.from_name");
        let sender = SenderAddress {
            from,
            from_name: from_name.unwrap_or_else(|| r.string("site.name")),
            reply_to: r.address("mail.reply_to"),
        };
        let calls_per_second = NonZeroU32::new(r.number("mail.calls_per_second", 0..=1000));
        let provider_rate = name.api().map_or(20, |provider| provider.calls_per_second);
        let default_rate = NonZeroU32::new(provider_rate).unwrap_or(NonZeroU32::MIN);
        let per_call = r.number("mail.per_call", 0..=1000);
        let domains =
            "a domain such as art.example: letters, digits, hyphens and dots, 190 at most";
        let list_domain = r.parse_non_empty_with("mail.list_domain", domains, to_domain);
        let selectors = "a DKIM selector: letters, digits, -, _ and dots";
        Self {
            dkim_selector: r.parse_non_empty_with("mail.dkim_selector", selectors, parse_selector),
            transport: transport(r, name, timeout, sender.clone()),
            outbox: r.string("mail.outbox").into(),
            outbox_pages: r.flag("mail.outbox_pages"),
            // An IP address literal is no domain.
            list_domain: list_domain
                .or_else(|| to_domain(sender.from.domain()))
                .unwrap_or_else(|| "localhost".to_owned()),
            sender,
            templates: r.non_empty("mail.templates").map(PathBuf::from),
            timeout,
            calls_per_second: calls_per_second.unwrap_or(default_rate),
            max_per_call: (per_call > 0).then_some(per_call),
        }
    }
}

/// Reads the transport. It also reads options that the provider does not use, to report invalid
/// values.
fn transport(
    r: &mut TableReader<'_>,
    name: ProviderName,
    timeout: TimeDelta,
    sender: SenderAddress,
) -> Transport {
    let key = r.secret("mail.key");
    let wanted = "an address that begins with https://, or with http:// and a host of this machine";
    let url = r.parse_non_empty_with("mail.url", wanted, |text| {
        let is_safe = is_safe(&Url::parse(text).ok()?);
        is_safe.then(|| text.trim_end_matches('/').to_owned())
    });
    let (region, default_url) = region(r, name.api());
    let mut values = BTreeMap::new();
    let providers = name.api().into_iter().chain(PROVIDERS);
    for option in providers.flat_map(|provider| provider.options) {
        // If providers share an option, the selected provider's rules apply.
        let read = || r.parse_non_empty_with(option.path, option.expected, option.parse);
        values.entry(option.path).or_insert_with(read);
    }
    let relay = smtp_relay(r, name, timeout, sender);
    let provider = match name {
        ProviderName::Outbox => return Transport::Outbox,
        ProviderName::Smtp => return Transport::Smtp(relay),
        ProviderName::Api(provider) => provider,
    };
    let mut options = BTreeMap::from([("mail.region", region)]);
    for MailOption { path, if_empty: unset, .. } in provider.options {
        let value = match (values.remove(path).flatten(), unset) {
            (Some(value), _) => value,
            (None, IfEmpty::Default(default)) => (*default).to_owned(),
            (None, IfEmpty::Required(problem)) => {
                r.add_problem(path, *problem);
                continue;
            }
        };
        options.insert(path, value);
    }
    if key.is_none() {
        let title = provider.title;
        let problem = format!("is needed with {title}; mail.key_file names a file that holds it");
        r.add_problem("mail.key", problem);
    }
    Transport::Api(ProviderApi {
        provider,
        api_key: Secret::new(key.unwrap_or_default()),
        base_url: url.unwrap_or(default_url),
        options,
    })
}

/// Returns the region, and the base URL of the API there. Without a provider, a region of any
/// provider is valid.
fn region(r: &mut TableReader<'_>, provider: Option<&Provider>) -> (String, String) {
    let region = r.non_empty("mail.region").unwrap_or_else(|| "us".into());
    let has_region = |provider: &&Provider| provider.url_in(&region).is_ok();
    let regional = provider.or_else(|| PROVIDERS.iter().find(has_region)).unwrap_or(&PROVIDERS[0]);
    let url = regional.url_in(&region).unwrap_or_else(|problem| {
        r.add_problem("mail.region", problem);
        String::new()
    });
    (region, url)
}

fn smtp_relay(
    r: &mut TableReader<'_>,
    name: ProviderName,
    timeout: TimeDelta,
    sender: SenderAddress,
) -> Relay {
    let host = r.non_empty("mail.smtp_host").unwrap_or_default();
    let port = r.number("mail.smtp_port", 1..=65_535);
    let security =
        r.parse_non_empty("mail.smtp_tls", "starttls, tls or none").unwrap_or(Security::StartTls);
    let user = r.non_empty("mail.smtp_user");
    let password = r.secret("mail.smtp_password");
    if matches!(name, ProviderName::Smtp) {
        if host.is_empty() {
            r.add_problem(
                "mail.smtp_host",
                "is needed with SMTP: the server that accepts the emails",
            );
        }
        if security == Security::Plain && !is_this_machine(&host) {
            r.add_problem(
                "mail.smtp_tls",
                "can be \"none\" only for a server on this machine; use \"starttls\" or \"tls\"",
            );
        }
        match (&user, &password) {
            (Some(_), None) => r.add_problem("mail.smtp_password", "is needed with mail.smtp_user"),
            (None, Some(_)) => r.add_problem("mail.smtp_user", "is needed with mail.smtp_password"),
            _ => {}
        }
    }
    let login = user.zip(password);
    Relay {
        host,
        port,
        security,
        login: login.map(|(user, password)| (Secret::new(user), Secret::new(password))),
        timeout: timeout.to_std().unwrap_or_default(),
        sender,
    }
}

fn parse_selector(text: &str) -> Option<String> {
    let selector = plain_word(text, "-_.", 1..=63)?.to_ascii_lowercase();
    Some(selector).filter(|selector| !selector.starts_with('.'))
}

/// The longest domain in bytes, so that it fits into a List-Id of 255 bytes (RFC 2919, section 2).
const MAX_LIST_DOMAIN: usize = 190;

/// Returns the domain in ASCII and lower case; `None` if it is invalid or too long.
fn to_domain(text: &str) -> Option<String> {
    let ascii = idna::domain_to_ascii(text).ok()?;
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_allowed);
    let is_valid = ascii.len() <= MAX_LIST_DOMAIN && ascii.split('.').all(is_label);
    is_valid.then_some(ascii)
}

#[cfg(test)]
#[path = "mail_tests.rs"]
mod tests;
