//! What is one brand's own of a process: its look, its pages, its links and who sends its mails.
//!
//! The rule: the default is made as it was before there were brands; a brand is made the same way,
//! of the configuration as it holds for it. Brands at one account share what holds its calls back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::mailer::mailer;
use super::{Account, Headers, Look, Outlet, Pacer, account_prefix};
use crate::config::{Config, Transport};
use crate::domain::BrandName;
use crate::email::Mailer;
use crate::engine::access::links::Links;
use crate::render::{self, Pages, Renderer, Site};
use crate::store::Store;

/// Who sends the mails, of the default and of each brand.
#[derive(Clone)]
pub struct Mailers {
    /// For whoever is of no brand.
    pub default: Arc<dyn Mailer>,
    /// For each brand of the configuration.
    pub brands: BTreeMap<BrandName, Arc<dyn Mailer>>,
}

impl Mailers {
    /// Those that are configured.
    pub fn of(config: &Config) -> anyhow::Result<Self> {
        let brands = config.brands.iter();
        let brands = brands.map(|(name, brand)| {
            let mailer = mailer(&config.of_brand(brand));
            let mailer = mailer.map_err(|error| error.context(format!("the brand {name}")))?;
            Ok((name.clone(), mailer))
        });
        Ok(Self {
            default: mailer(config)?,
            brands: brands.collect::<anyhow::Result<_>>()?,
        })
    }

    /// The same for all.
    pub fn one(mailer: Arc<dyn Mailer>, config: &Config) -> Self {
        let brands = config.brands.keys();
        Self {
            brands: brands.map(|name| (name.clone(), mailer.clone())).collect(),
            default: mailer,
        }
    }

    /// Wraps each mailer.
    pub(crate) fn map(self, wrap: impl Fn(Arc<dyn Mailer>) -> Arc<dyn Mailer>) -> Self {
        let brands = self.brands.into_iter();
        Self {
            default: wrap(self.default),
            brands: brands.map(|(name, mailer)| (name, wrap(mailer))).collect(),
        }
    }
}

/// Whether mails or pages are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// Some are: every template of the configuration is read and checked.
    Something,
    /// Some are shown beside other things: built-in templates replace those that cannot be read.
    Aside,
    /// None are. No configured template is read, so a broken one does not stop commands that need
    /// no template.
    Nothing,
}

pub(crate) fn site(config: &Config) -> Site {
    Site {
        name: config.site.name.clone(),
        url: config.site.url.clone(),
        logo: config.site.logo.clone(),
        postal_address: config.site.postal_address.clone(),
        accent: config.site.accent.clone(),
    }
}

/// Says in headers what a mail is.
pub(crate) fn headers(config: &Config, brand: Option<&BrandName>) -> Headers {
    Headers {
        brand: brand.cloned(),
        list_domain: config.mail.list_domain.clone(),
        feedback_id: config.site.feedback_id.clone(),
    }
}

/// What mails and pages are made by.
pub(crate) struct Face {
    pub pages: Arc<Pages>,
    pub renderer: Arc<Renderer>,
}

/// The same of the default and of each brand.
pub(crate) struct Looks {
    pub default: Face,
    pub brands: BTreeMap<BrandName, Face>,
}

impl Looks {
    pub(crate) fn of(config: &Config, made: Made) -> Result<Self, render::Error> {
        if made == Made::Aside {
            let own = Self::of(config, Made::Something);
            return own.or_else(|_| Self::of(config, Made::Nothing));
        }
        let look = |config: &Config| -> Result<Face, render::Error> {
            let site = site(config);
            let own = config.mail.templates.clone();
            let templates = own.filter(|_| made == Made::Something);
            Ok(Face {
                pages: Arc::new(Pages::new(&site, templates.clone())?),
                renderer: Arc::new(Renderer::new(site, templates)?),
            })
        };
        let brands = config.brands.iter();
        let brands = brands.map(|(name, brand)| Ok((name.clone(), look(&config.of_brand(brand))?)));
        Ok(Self {
            default: look(config)?,
            brands: brands.collect::<Result<_, render::Error>>()?,
        })
    }
}

/// All brands of a process.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub looks: Arc<BTreeMap<BrandName, Look>>,
    pub outlets: Arc<BTreeMap<BrandName, Outlet>>,
    pub pages: Arc<BTreeMap<BrandName, Arc<Pages>>>,
}

/// What tells the account of a mailer from any other; a relay's name does not say which it is.
fn told_apart(config: &Config, mailer: &dyn Mailer) -> String {
    let account = mailer.account();
    match &config.mail.transport {
        Transport::Smtp(server) => {
            let user = server
                .login
                .as_ref()
                .map_or("", |login| login.user.expose());
            format!("{account} {}:{} {user}", server.host, server.port)
        }
        Transport::Outbox | Transport::Api(_) => account,
    }
}

/// So many calls a second; a folder takes as many as there are.
pub(crate) fn pacer(config: &Config) -> Arc<Pacer> {
    let mail = &config.mail;
    let leaves = !matches!(mail.transport, Transport::Outbox);
    Arc::new(Pacer::new(leaves.then_some(mail.calls_per_second)))
}

impl Parts {
    pub(crate) fn of(
        config: &Config,
        store: &Arc<dyn Store>,
        looks: BTreeMap<BrandName, Face>,
        mailers: &Mailers,
        pacer_of_default: &Arc<Pacer>,
    ) -> Self {
        let default = Account::of_default(&*mailers.default);
        let of_default = told_apart(config, &*mailers.default);
        let mut pacers = BTreeMap::from([(default.clone(), pacer_of_default.clone())]);
        let (mut all, mut outlets, mut pages) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (name, made) in looks {
            let (Some(brand), Some(mailer)) = (config.brands.get(&name), mailers.brands.get(&name))
            else {
                continue;
            };
            let own = config.of_brand(brand);
            let account = match told_apart(&own, &**mailer) {
                text if text == of_default => default.clone(),
                text => Account::of_brand(&text),
            };
            let known = pacers.entry(account.clone());
            let pacer = known.or_insert_with(|| pacer(&own)).clone();
            outlets.insert(
                name.clone(),
                Outlet {
                    mailer: mailer.clone(),
                    account_prefix: account_prefix(&**mailer, Some(&name)),
                    account,
                    pacer,
                },
            );
            let secret = own.server.link_secret.clone();
            let links = Links::new(store.clone(), own.server.public_url.clone(), secret);
            all.insert(
                name.clone(),
                Look {
                    renderer: made.renderer,
                    links: Arc::new(links.of_brand(name.clone())),
                    headers: headers(&own, Some(&name)),
                },
            );
            pages.insert(name, made.pages);
        }
        Self {
            looks: Arc::new(all),
            outlets: Arc::new(outlets),
            pages: Arc::new(pages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brands_share_an_account_where_provider_and_login_are_the_same() {
        let smtp = "mail.provider = \"smtp\"\nmail.from = \"a@a.example\"\nmail.smtp_host = \"a.example\"\n";
        let api = "mail.provider = \"resend\"\nmail.from = \"a@a.example\"\nmail.key = \"key-1\"\n";
        for (default, brand, same) in [
            (smtp, "mail.from = \"b@b.example\"", true),
            (smtp, "mail.smtp_host = \"b.example\"", false),
            (smtp, "mail.smtp_port = 2525", false),
            (
                smtp,
                "mail.smtp_user = \"b\"\nmail.smtp_password = \"x\"",
                false,
            ),
            (api, "site.name = \"B\"", true),
            (api, "mail.key = \"key-2\"", false),
        ] {
            let config = Config::parse(&format!("{default}[brands.b]\n{brand}\n")).unwrap();
            let mailers = Mailers::of(&config).unwrap();
            let own = config.of_brand(config.brands.values().next().unwrap());
            let of_brand = &**mailers.brands.values().next().unwrap();

            let [ours, theirs] = [
                told_apart(&config, &*mailers.default),
                told_apart(&own, of_brand),
            ];

            assert_eq!(ours == theirs, same, "{brand}: {ours} and {theirs}");
        }
    }
}
