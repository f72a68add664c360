//! From the configured provider to a mailer.
//!
//! The rule: only here does anybody know both what is configured and who sends. Whoever goes over
//! the network is kept at a pace.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{self, Config, Login, Provider, Region, Service, SmtpServer, SmtpTls};
use crate::mail::{
    self, Account, Mailer, Mailgun, Outbox, Pace, Paced, Postmark, Relay, Resend, Security,
    SendGrid, Sender, Smtp,
};

/// The mailer that writes `.eml` files.
pub fn outbox(config: &Config) -> Outbox {
    Outbox::new(&config.mail.outbox, sender(&config.mail)).with_pages(config.mail.outbox_pages)
}

/// The mailer that is configured, at its pace.
pub fn mailer(config: &Config) -> anyhow::Result<Arc<dyn Mailer>> {
    let mail = &config.mail;
    let timeout = mail.timeout.to_std()?;
    let mailer: Arc<dyn Mailer> = match &mail.provider {
        Provider::Outbox => return Ok(Arc::new(outbox(config))),
        Provider::Smtp(server) => {
            Arc::new(smtp(mail, server, timeout).map_err(anyhow::Error::msg)?)
        }
        Provider::Api { service, key, url } => {
            let usual = match service {
                Service::Mailgun {
                    region: Region::Us, ..
                } => mail::mailgun::URL,
                Service::Mailgun {
                    region: Region::Eu, ..
                } => mail::mailgun::URL_EU,
                Service::SendGrid { region: Region::Us } => mail::sendgrid::URL,
                Service::SendGrid { region: Region::Eu } => mail::sendgrid::URL_EU,
                Service::Postmark { .. } => mail::postmark::URL,
                Service::Resend => mail::resend::URL,
            };
            let account = Account {
                url: url.clone().unwrap_or_else(|| usual.to_owned()),
                key: key.clone(),
                timeout,
                per_call: mail.per_call,
                tags: mail.tags.clone(),
                sender: sender(mail),
            };
            api(service, account).map_err(anyhow::Error::msg)?
        }
    };
    let pace = Pace {
        per_second: mail.calls_per_second,
        at_once: config.delivery.in_flight,
        // Whoever waits holds deliveries, which are others' when the lease is over.
        patience: (config.delivery.lease / 5).to_std()?,
    };
    Ok(Arc::new(Paced::new(mailer, pace)))
}

fn api(service: &Service, account: Account) -> Result<Arc<dyn Mailer>, String> {
    Ok(match service {
        Service::Mailgun { domain, .. } => Arc::new(Mailgun::new(account, domain)?),
        Service::SendGrid { .. } => Arc::new(SendGrid::new(account)?),
        Service::Postmark { stream } => Arc::new(Postmark::new(account, stream)?),
        Service::Resend => Arc::new(Resend::new(account)?),
    })
}

fn smtp(mail: &config::Mail, server: &SmtpServer, timeout: Duration) -> Result<Smtp, String> {
    let login = |login: &Login| (login.user.clone(), login.password.clone());
    Smtp::new(Relay {
        host: server.host.clone(),
        port: server.port,
        security: match server.tls {
            SmtpTls::None => Security::Plain,
            SmtpTls::StartTls => Security::StartTls,
            SmtpTls::Tls => Security::Tls,
        },
        login: server.login.as_ref().map(login),
        timeout,
        sender: sender(mail),
    })
}

fn sender(mail: &config::Mail) -> Sender {
    Sender {
        from: mail.from.clone(),
        from_name: mail.from_name.clone(),
        reply_to: mail.reply_to.clone(),
    }
}
