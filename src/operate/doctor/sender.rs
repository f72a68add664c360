//! Looks up the DNS records of the sender's domain, which [`spf`], [`dkim`] and [`dmarc`] check.
//!
//! If a name server does not answer, the check is `unchecked`.

use super::dkim::{self, DKIM};
use super::dmarc::{self, DMARC};
use super::spf::{self, Bounces, Cost, MOST_LOOKUPS, SPF};
use super::{Doctor, Finding, LEFT, Outside};
use crate::config::Transport;
use crate::engine::delivery::identity;
use crate::operate::probe::Names;

impl Doctor {
    pub(super) async fn spf(&self) -> Finding {
        self.asking(SPF, |names| self.look_at_spf(names)).await
    }

    pub(super) async fn dmarc(&self) -> Finding {
        self.asking(DMARC, |names| self.look_at_dmarc(names)).await
    }

    /// Checks the key that this instance signs with. Otherwise checks those that the provider
    /// named, or else the configured one.
    pub(super) async fn dkim(&self, named: &[String]) -> Vec<Finding> {
        // A key that cannot be used is reported with the mailer.
        if let Ok(Some(key)) = identity::dkim(&self.config.mail) {
            let (place, record) = (key.name(), key.record());
            let look = |names| self.look_at_own_key(names, &place, &record);
            let found = self.asking(DKIM, look).await;
            return vec![dkim::or_to_publish(found, &place, &record)];
        }
        let domain = self.config.mail.from.domain();
        let configured = self.config.mail.dkim_selector.iter();
        let configured = configured.map(|selector| format!("{selector}._domainkey.{domain}"));
        let places: Vec<String> = match named {
            [] => configured.collect(),
            named => named.to_vec(),
        };
        if places.is_empty() {
            let why = self.unasked().unwrap_or(
                "the provider does not say what it signs with; mail.dkim_selector can say it",
            );
            return vec![Finding::unchecked(DKIM, why)];
        }
        let looks = places.iter().map(|place| {
            self.asking(DKIM, move |names| async move {
                Ok(dkim::judge(place, &names.texts(place).await?))
            })
        });
        futures::future::join_all(looks).await
    }

    /// Returns why the DNS is not queried, if it is not.
    fn unasked(&self) -> Option<&'static str> {
        match (self.look.outside, &self.config.mail.transport) {
            (Outside::Leave, _) => Some(LEFT),
            (Outside::Look, Transport::Outbox) => Some("nothing leaves: mails become files"),
            (Outside::Look, Transport::Smtp(_) | Transport::Api(_)) => None,
        }
    }

    async fn asking<'a, F>(
        &'a self,
        check: &'static str,
        look: impl FnOnce(&'a Names) -> F,
    ) -> Finding
    where
        F: Future<Output = Result<Finding, String>>,
    {
        if let Some(why) = self.unasked() {
            return Finding::unchecked(check, why);
        }
        let names = match &self.names {
            Ok(names) => names,
            Err(why) => return Finding::unchecked(check, why),
        };
        let found = self.within(look(names), Err).await;
        found.unwrap_or_else(|why| Finding::unchecked(check, why))
    }

    async fn look_at_own_key(
        &self,
        names: &Names,
        place: &str,
        record: &str,
    ) -> Result<Finding, String> {
        Ok(dkim::judge_own(place, &names.texts(place).await?, record))
    }

    async fn look_at_spf(&self, names: &Names) -> Result<Finding, String> {
        let from = self.config.mail.from.domain();
        let own = match &self.config.mail.transport {
            Transport::Outbox => None,
            Transport::Smtp(_) => Some(from),
            Transport::Api(api) => {
                let option = api.provider.bounces;
                option.and_then(|option| Some(api.options.get(option)?.as_str()))
            }
        };
        let (domain, bounces) = match own {
            Some(domain) => (domain, Bounces::Here),
            None => (from, Bounces::Elsewhere),
        };
        let texts = names.texts(domain).await?;
        let [text] = spf::records(&texts)[..] else {
            let records = spf::records(&texts).len();
            return Ok(spf::judge_absent(domain, records, bounces));
        };
        let record = spf::read(text);
        let cost = cost(names, &record).await?;
        Ok(spf::judge(domain, text, &record, &cost))
    }

    async fn look_at_dmarc(&self, names: &Names) -> Result<Finding, String> {
        let domain = self.config.mail.from.domain();
        for place in dmarc::places(domain) {
            let texts = names.texts(&format!("_dmarc.{place}")).await?;
            let records = dmarc::records(&texts);
            if !records.is_empty() {
                return Ok(dmarc::judge(domain, Some((&place, &records))));
            }
        }
        Ok(dmarc::judge(domain, None))
    }
}

/// Counts the look-ups of a record and all records it includes. Stops above the limit.
async fn cost(names: &Names, record: &spf::Record) -> Result<Cost, String> {
    let mut lookups = record.lookups;
    let mut open = record.brings.clone();
    while let Some(domain) = open.pop()
        && lookups <= MOST_LOOKUPS
    {
        let texts = names.texts(&domain).await?;
        let [text] = spf::records(&texts)[..] else {
            return Ok(Cost::Broken(domain));
        };
        let brought = spf::read(text);
        lookups += brought.lookups;
        open.extend(brought.brings);
    }
    Ok(Cost::Lookups(lookups))
}
