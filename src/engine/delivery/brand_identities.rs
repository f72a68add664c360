//! The identity of each brand: its theme, links, headers and provider account.
//!
//! The default and every brand are built in the same way, each from the configuration that applies
//! to it. Brands that use one provider account share its rate limit and its send permits. Start
//! with [`Identities::new`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::headers::Headers;
use super::throttle::{ProviderAccount, account_prefix, hash_prefix};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Config, Transport};
use crate::domain::BrandName;
use crate::email::{Account, Mailer, Outbox, Smtp};
use crate::engine::access::links::Links;
use crate::render::{self, Pages, Renderer};
use crate::store::Store;

/// A value for emails without a brand, and one for each configured brand.
#[derive(Clone)]
pub struct PerBrand<T> {
    /// The value for emails without a brand.
    pub default: T,
    /// The values of the configured brands.
    pub brands: BTreeMap<BrandName, T>,
}

/// The mailer of each brand.
pub type Mailers = PerBrand<Arc<dyn Mailer>>;

/// The theme of each brand.
pub type Themes = PerBrand<Theme>;

/// The identity of each brand.
pub type Identities = PerBrand<Identity>;

impl<T> PerBrand<T> {
    /// Builds the default's value and that of each brand from the configuration that applies to it.
    fn build<E>(
        config: &Config,
        build: impl Fn(&Config, Option<&BrandName>) -> Result<T, E>,
    ) -> Result<Self, E> {
        let brands = config.brands.iter().map(|(name, brand)| {
            let value = build(&config.with_brand(brand), Some(name))?;
            Ok((name.clone(), value))
        });
        Ok(Self { default: build(config, None)?, brands: brands.collect::<Result<_, E>>()? })
    }
}

impl Mailers {
    /// Builds the configured mailers.
    ///
    /// # Errors
    ///
    /// Names the brand whose provider or key cannot be used.
    pub fn from_config(config: &Config) -> anyhow::Result<Self> {
        Self::build(config, |config, brand| match brand {
            Some(name) => {
                new_mailer(config).map_err(|why| why.context(format!("the brand {name}")))
            }
            None => new_mailer(config),
        })
    }

    /// Uses one mailer for the default and for all brands.
    pub fn shared(mailer: Arc<dyn Mailer>, config: &Config) -> Self {
        let brands = config.brands.keys();
        Self {
            brands: brands.map(|name| (name.clone(), mailer.clone())).collect(),
            default: mailer,
        }
    }
}

/// How a command uses the configured templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplateUse {
    /// It renders emails or pages: a broken template is an error.
    Required,
    /// It shows them beside other things: built-in templates replace broken ones.
    Fallback,
    /// It renders nothing. Configured templates are not read.
    BuiltIn,
}

/// The templates for emails and public pages of one brand.
#[derive(Clone)]
pub struct Theme {
    /// Renders the public pages.
    pub pages: Arc<Pages>,
    /// Renders emails.
    pub renderer: Arc<Renderer>,
}

impl Theme {
    /// Reads and checks the templates in a folder; `None` for the built-in ones.
    pub fn new(config: &Config, templates: Option<PathBuf>) -> Result<Self, render::Error> {
        Ok(Self {
            pages: Arc::new(Pages::new(&config.site, templates.clone())?),
            renderer: Arc::new(Renderer::new(config.site.clone(), templates)?),
        })
    }
}

impl Themes {
    /// Reads and checks the templates of the default and of each brand.
    pub fn load(config: &Config, templates: TemplateUse) -> Result<Self, render::Error> {
        let built_in = || Self::build(config, |config, _| Theme::new(config, None));
        let configured =
            || Self::build(config, |config, _| Theme::new(config, config.mail.templates.clone()));
        match templates {
            TemplateUse::Required => configured(),
            TemplateUse::Fallback => configured().or_else(|_| built_in()),
            TemplateUse::BuiltIn => built_in(),
        }
    }
}

/// The parts that render and send the emails of one brand.
#[derive(Clone)]
pub struct Identity {
    /// Renders emails.
    pub renderer: Arc<Renderer>,
    /// Renders the public pages.
    pub pages: Arc<Pages>,
    /// Makes and opens the links to these pages.
    pub links: Arc<Links>,
    /// Makes the headers that name lists and threads.
    pub headers: Headers,
    /// Sends emails under the brand's address.
    pub mailer: Arc<dyn Mailer>,
    /// The prefix of the references of the brand's calls.
    pub account_prefix: String,
    /// The provider account, which brands may share.
    pub account: Arc<ProviderAccount>,
}

impl Identities {
    /// Builds the identity of each brand.
    pub fn new(
        config: &Config,
        store: &Arc<dyn Store>,
        themes: Themes,
        mut mailers: Mailers,
    ) -> Self {
        let mut accounts: BTreeMap<String, Arc<ProviderAccount>> = BTreeMap::new();
        let mut identity =
            |config: &Config, brand: Option<&BrandName>, theme: Theme, mailer: Arc<dyn Mailer>| {
                let key = account_key(config, &*mailer);
                let account = accounts.entry(key).or_insert_with_key(|key| {
                    // Writing files to a folder is not limited.
                    let is_limited = !matches!(config.mail.transport, Transport::Outbox);
                    let rate = is_limited.then_some(config.mail.calls_per_second);
                    let in_flight = config.delivery.in_flight;
                    Arc::new(ProviderAccount::new(hash_prefix(key), in_flight, rate))
                });
                Identity {
                    renderer: theme.renderer,
                    pages: theme.pages,
                    links: Arc::new(Links::from_config(config, store.clone(), brand)),
                    headers: Headers::new(config, brand),
                    account_prefix: account_prefix(&*mailer, brand),
                    mailer,
                    account: account.clone(),
                }
            };
        let default = identity(config, None, themes.default, mailers.default);
        let brands = themes.brands.into_iter().filter_map(|(name, theme)| {
            let (brand, mailer) = (config.brands.get(&name)?, mailers.brands.remove(&name)?);
            let identity = identity(&config.with_brand(brand), Some(&name), theme, mailer);
            Some((name, identity))
        });
        Self { brands: brands.collect(), default }
    }

    /// Returns the folder that emails are written to; `None` if they are sent.
    pub fn outbox(&self) -> Option<&Path> {
        self.default.mailer.outbox()
    }

    /// Returns whether emails are sent without links, because no public address is configured.
    pub fn lacks_links(&self) -> bool {
        self.default.links.public_url.is_none() && self.outbox().is_none()
    }

    /// Returns the pages of a brand; those of the default for an unknown brand, so that a link
    /// works after its brand was removed.
    pub fn pages_of(&self, brand: Option<&BrandName>) -> &Pages {
        let own = brand.and_then(|brand| self.brands.get(brand));
        &own.unwrap_or(&self.default).pages
    }

    /// Returns the brand that a call with this reference was made for; `None` for the default and
    /// for brands that are not configured.
    pub fn brand_of_call(&self, call: &str) -> Option<&BrandName> {
        let mut brands = self.brands.iter();
        let brand = brands.find(|(_, identity)| call.starts_with(&identity.account_prefix));
        brand.map(|(name, _)| name)
    }
}

/// Identifies the provider account that a mailer uses. For a relay, the name of the account does
/// not identify the server.
fn account_key(config: &Config, mailer: &dyn Mailer) -> String {
    let account = mailer.account_id();
    match &config.mail.transport {
        Transport::Smtp(relay) => {
            let user = relay.login.as_ref().map_or("", |(user, _)| user.expose());
            format!("{account} {}:{} {user}", relay.host, relay.port)
        }
        Transport::Outbox | Transport::Api(_) => account,
    }
}

/// Returns the mailer that writes `.eml` files.
pub fn new_outbox(config: &Config) -> Outbox {
    let mail = &config.mail;
    Outbox::new(&mail.outbox, mail.sender.clone(), mail.outbox_pages)
}

/// Builds the configured mailer.
///
/// # Errors
///
/// Names the option that cannot be used, such as the key of the account.
pub fn new_mailer(config: &Config) -> anyhow::Result<Arc<dyn Mailer>> {
    let mail = &config.mail;
    let mailer = match &mail.transport {
        Transport::Outbox => return Ok(Arc::new(new_outbox(config))),
        Transport::Smtp(relay) => {
            Smtp::new(relay.clone()).map(|smtp| Arc::new(smtp) as Arc<dyn Mailer>)
        }
        Transport::Api(api) => (api.provider.new_mailer)(Account {
            base_url: api.base_url.clone(),
            key: api.api_key.clone(),
            options: api.options.clone(),
            now: || SystemClock.now(),
            timeout: mail.timeout.to_std()?,
            max_per_call: mail.max_per_call,
            sender: mail.sender.clone(),
        }),
    };
    mailer.map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brands_share_an_account_if_provider_and_login_are_equal() {
        let smtp = "mail.provider = \"smtp\"\nmail.from = \"a@a.example\"\nmail.smtp_host = \"a.example\"\n";
        let api = "mail.provider = \"resend\"\nmail.from = \"a@a.example\"\nmail.key = \"key-1\"\n";
        for (default, brand, is_shared) in [
            (smtp, "mail.from = \"b@b.example\"", true),
            (smtp, "mail.smtp_host = \"b.example\"", false),
            (smtp, "mail.smtp_port = 2525", false),
            (smtp, "mail.smtp_user = \"b\"\nmail.smtp_password = \"x\"", false),
            (api, "site.name = \"B\"", true),
            (api, "mail.key = \"key-2\"", false),
        ] {
            let config = Config::parse(&format!("{default}[brands.b]\n{brand}\n")).unwrap();

            let keys = PerBrand::build(&config, |config, _| {
                anyhow::Ok(account_key(config, &*new_mailer(config)?))
            })
            .unwrap();

            let brand_key = keys.brands.values().next().unwrap();
            assert_eq!(&keys.default == brand_key, is_shared, "{brand}: {brand_key}");
        }
    }
}
