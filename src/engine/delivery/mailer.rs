//! Builds the configured mailer.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock as _, SystemClock};
use crate::config::{self, Config, Login, SmtpServer, SmtpTls, Transport};
use crate::email::{Account, Dkim, Mailer, Outbox, Relay, Security, Sender, Smtp};

/// Returns the mailer that writes `.eml` files.
pub fn outbox(config: &Config) -> Outbox {
    Outbox::new(&config.mail.outbox, sender(&config.mail)).with_pages(config.mail.outbox_pages)
}

/// Builds the configured mailer.
///
/// # Errors
///
/// Names the option that cannot be used, such as the key that signs emails.
pub fn mailer(config: &Config) -> anyhow::Result<Arc<dyn Mailer>> {
    let mail = &config.mail;
    let timeout = mail.timeout.to_std()?;
    let made = match &mail.transport {
        Transport::Outbox => return Ok(Arc::new(outbox(config))),
        Transport::Smtp(server) => smtp(mail, server, timeout),
        Transport::Api(api) => (api.provider.mailer)(Account {
            url: api.url.clone(),
            key: api.key.clone(),
            session: api.session.clone(),
            options: api.options.clone(),
            now: || SystemClock.now(),
            timeout,
            per_call: mail.per_call,
            tags: mail.tags.clone(),
            sender: sender(mail),
        }),
    };
    made.map_err(anyhow::Error::msg)
}

fn smtp(
    mail: &config::Mail,
    server: &SmtpServer,
    timeout: Duration,
) -> Result<Arc<dyn Mailer>, String> {
    let login = |login: &Login| (login.user.clone(), login.password.clone());
    let smtp = Smtp::new(Relay {
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
    })?;
    Ok(Arc::new(smtp.with_dkim(dkim(mail)?)))
}

/// Returns the key that signs emails sent by SMTP. Providers with an API sign emails themselves.
pub(crate) fn dkim(mail: &config::Mail) -> Result<Option<Arc<Dkim>>, String> {
    let signing = match (&mail.transport, &mail.dkim) {
        (Transport::Smtp(_), Some(signing)) => signing,
        _ => return Ok(None),
    };
    let dkim = Dkim::new(&signing.domain, &signing.selector, &signing.key);
    let dkim = dkim.map_err(|why| format!("mail.dkim_key_file cannot be used: {why}"))?;
    Ok(Some(Arc::new(dkim)))
}

fn sender(mail: &config::Mail) -> Sender {
    Sender {
        from: mail.from.clone(),
        from_name: mail.from_name.clone(),
        reply_to: mail.reply_to.clone(),
    }
}
