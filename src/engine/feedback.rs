//! Applies the reports that providers post about sent emails.
//!
//! Each report is verified first ([`crate::email::hooks`]). It only names an email; the ledger
//! tells the recipient (P7, P8). All steps can be repeated, in any order and by several processes.
//! A report is marked as seen last, so the provider's next attempt repeats a report that was
//! applied in part. Start with [`FeedbackService::receive`].

pub mod suppressions;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest as _, Sha256};

use super::Error as ServiceError;
use super::users::service::UserService;
use crate::context::Context;
use crate::domain::{
    Address, Delivery, DeliveryId, Feedback, ReportKind, Suppression, SuppressionReason, Tag, User,
    UserId, distinct,
};
use crate::email::Provider;
pub use crate::email::hooks::HookRejection;
use crate::email::hooks::{
    EmailReport, HookRequest, PinnedClient, SingleUseToken, VerifiedReports,
};
use crate::store::DeliveryFilter;
use crate::wire::delivery::ReportOutcomes;

/// Why a posted report changed nothing. Messages do not quote the report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No provider has this name.
    #[error("there is no provider of this name; there are {}", Provider::list_names("and"))]
    UnknownProvider,
    /// No key is configured to verify this provider's reports.
    #[error("no key is configured to verify {0}'s reports by; see hooks.* in the configuration")]
    Unconfigured(&'static str),
    /// The report is not verified, not readable, or cannot be verified now.
    #[error(transparent)]
    Rejected(#[from] HookRejection),
    /// A verified report could not be stored completely. The provider can post it again.
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl From<crate::store::Error> for Error {
    fn from(error: crate::store::Error) -> Self {
        Self::Service(error.into())
    }
}

/// Verifies reports of providers and applies them to the ledger and the suppressions.
pub struct FeedbackService {
    pub(crate) context: Arc<Context>,
    /// Ends the subscriptions of users who unsubscribed at the provider.
    pub(crate) users: UserService,
    /// Fetches and caches the providers' certificates.
    pub(crate) pinned: Arc<PinnedClient>,
}

/// How long report ids are stored. No provider retries for longer.
const RECEIPTS_EXPIRE_AFTER: TimeDelta = TimeDelta::days(7);
/// Older soft bounces are ignored, because the mailbox may work today.
const SOFT_BOUNCES_WITHIN: TimeDelta = TimeDelta::days(30);
/// The number of a user's latest emails that are searched for a delivered one.
const LATEST_EMAILS: usize = 50;
/// The mark that is stored for a seen report.
const SEEN: &str = "seen";

/// A report and the delivery that it is about.
type MatchedReport<'a> = (&'a EmailReport, Delivery);

impl FeedbackService {
    /// Returns the provider with this name, or an error if no key could verify its reports.
    pub fn find_provider(&self, provider: &str) -> Result<&'static Provider, Error> {
        self.provider_with_keys(provider).map(|(provider, _)| provider)
    }

    /// Returns the provider with this name, and the keys of the default's and the brands' accounts.
    fn provider_with_keys(&self, provider: &str) -> Result<(&'static Provider, Vec<&[u8]>), Error> {
        let provider = Provider::find(provider).ok_or(Error::UnknownProvider)?;
        let config = &self.context.config;
        let brands = config.brands.values().map(|brand| &brand.hooks);
        let accounts = std::iter::once(&config.hooks.keys).chain(brands);
        let keys: Vec<&[u8]> = accounts.filter_map(|keys| keys.get(provider.name)).collect();
        if keys.is_empty() { Err(Error::Unconfigured(provider.name)) } else { Ok((provider, keys)) }
    }

    /// Verifies a request of this provider and applies its reports. Can be repeated. `header`
    /// returns the value of a header by its name in lower case; `body` is the original bytes.
    pub async fn receive<'a>(
        &'a self,
        provider: &str,
        header: &'a dyn Fn(&str) -> Option<&'a str>,
        body: &'a [u8],
    ) -> Result<ReportOutcomes, Error> {
        let (provider, keys) = self.provider_with_keys(provider)?;
        let now = self.context.clock.now();
        let mut verified = Err(HookRejection::Unverified(String::new()));
        for key in keys {
            let posted = HookRequest { key, now, header, body, certificate: None };
            verified = self.verify(provider, posted).await;
            // Another account's key may fit. After any other error, no key would help.
            if !matches!(verified, Err(HookRejection::Unverified(_))) {
                break;
            }
        }
        let verified = verified?;
        if let Some(once) = &verified.single_use_token {
            self.bind_token(provider, once, now).await?;
        }
        if let Some(url) = &verified.confirmation_url {
            self.pinned.request(url).await?;
            tracing::info!(provider = provider.name, "reports were subscribed to");
        }
        let mut outcome = self.apply(provider, &verified.reports, now).await?;
        outcome.ignored = verified.ignored_count;
        outcome.unreadable = verified.unreadable_count;
        tracing::info!(provider = provider.name, ?outcome, "a provider reported");
        if outcome.unreadable > 0 {
            let unreadable = outcome.unreadable;
            tracing::warn!(
                provider = provider.name,
                "skipped {unreadable} reports that do not have the documented form"
            );
        }
        Ok(outcome)
    }

    /// Verifies and parses a request with one of the keys.
    async fn verify(
        &self,
        provider: &Provider,
        mut posted: HookRequest<'_>,
    ) -> Result<VerifiedReports, HookRejection> {
        let Some(certificate_url) = provider.locate_certificate else {
            return (provider.read_reports)(&posted);
        };
        let url = certificate_url(&posted)?;
        let certificate = self.pinned.certificate(&url).await?;
        posted.certificate = Some(certificate.clone());
        let verified = (provider.read_reports)(&posted)?;
        self.pinned.cache_certificate(url, certificate);
        Ok(verified)
    }

    /// Binds a token to the body that it first arrived with. Rejects it with any other body.
    async fn bind_token(
        &self,
        provider: &Provider,
        once: &SingleUseToken,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        let mark = (key(provider, "token", &once.token), once.body_digest.clone());
        // After `until`, the token itself is too old. The margin covers clock differences.
        let until = once.expires_at + TimeDelta::minutes(10);
        let store = &self.context.store;
        let bound = store.webhook_receipts(&[mark], now, Some(until)).await?;
        if bound == [Some(once.body_digest.clone())] {
            return Ok(());
        }
        let why = "the signature was used before, for another report";
        Err(HookRejection::Unverified(why.into()).into())
    }

    async fn apply(
        &self,
        provider: &Provider,
        reports: &[EmailReport],
        now: DateTime<Utc>,
    ) -> Result<ReportOutcomes, Error> {
        let (mut outcome, store) = (ReportOutcomes::default(), &self.context.store);
        let unseen = self.unseen(provider, reports, now).await?;
        outcome.duplicates = (reports.len() - unseen.len()) as u64;
        let matched = self.match_deliveries(&unseen).await?;
        outcome.recorded = matched.len() as u64;
        outcome.not_ours = (unseen.len() - matched.len()) as u64;

        let feedback = matched.iter().map(|(report, row)| {
            let (news, at) = (report.kind, whole_millis(report.at));
            (row.id.clone(), Feedback { news, at })
        });
        let feedback: Vec<_> = feedback.collect();
        store.note_feedback(&feedback).await?;
        for (report, _) in &matched {
            if report.kind == ReportKind::Refused {
                let why = report.detail.as_deref().unwrap_or("no reason");
                tracing::warn!(
                    provider = provider.name,
                    "a receiver refused the sender or the content of an email: {why}"
                );
            }
        }
        let users = self.load_users(&matched).await?;
        let current = self.exclude_lifted(matched, &users).await?;
        // A user who unsubscribed at the provider gets no more email, at any address.
        for (report, row) in &current {
            if report.kind == ReportKind::Unsubscribed {
                self.users.unsubscribe(&row.user).await?;
            }
        }
        let suppressions = self.suppressions(provider, &current, &users, now, &mut outcome).await?;
        store.add_suppressions(&suppressions).await?;
        outcome.suppressed = suppressions.len() as u64;

        let seen = |report: &&EmailReport| (key(provider, "event", &report.id), SEEN.to_owned());
        let seen: Vec<_> = unseen.iter().map(seen).collect();
        let until = Some(now + RECEIPTS_EXPIRE_AFTER);
        store.webhook_receipts(&seen, now, until).await?;
        Ok(outcome)
    }

    /// Returns the reports that are new. Repetitions in the list are duplicates.
    async fn unseen<'a>(
        &self,
        provider: &Provider,
        reports: &'a [EmailReport],
        now: DateTime<Utc>,
    ) -> Result<Vec<&'a EmailReport>, Error> {
        let mark = |report: &EmailReport| (key(provider, "event", &report.id), SEEN.to_owned());
        let marks: Vec<(String, String)> = reports.iter().map(mark).collect();
        let stored = self.context.store.webhook_receipts(&marks, now, None).await?;
        let mut seen_here = HashSet::new();
        let mut unseen = Vec::new();
        for ((report, (key, _)), stored) in reports.iter().zip(&marks).zip(stored) {
            if stored.is_none() && seen_here.insert(key) {
                unseen.push(report);
            }
        }
        Ok(unseen)
    }

    /// Finds the delivery of each report by our tag, or without a tag by the provider's id. Drops
    /// reports without a delivery.
    async fn match_deliveries<'a>(
        &self,
        reports: &[&'a EmailReport],
    ) -> Result<Vec<MatchedReport<'a>>, Error> {
        let store = &self.context.store;
        let tags: Vec<Tag> = distinct(reports.iter().filter_map(|report| report.tag.clone()));
        let tagged = store.find_deliveries(&DeliveryFilter::Tags(&tags), usize::MAX).await?;
        let by_tag: HashMap<Tag, Delivery> =
            tagged.into_iter().map(|row| (row.id.tag(), row)).collect();
        let untagged = reports.iter().filter(|report| report.tag.is_none());
        let ids = untagged.flat_map(|report| report.provider_ids.clone());
        let ids: Vec<String> = distinct(ids.filter(|id| !id.is_empty()));
        // An id that several deliveries share, as after a batch call, identifies none.
        let mut by_id: HashMap<String, Option<Delivery>> = HashMap::new();
        let named = DeliveryFilter::ProviderIds(&ids);
        for row in store.find_deliveries(&named, usize::MAX).await? {
            let id = row.outcome.provider_id.clone().unwrap_or_default();
            by_id.entry(id).and_modify(|shared| *shared = None).or_insert(Some(row));
        }
        let find = |report: &EmailReport| match &report.tag {
            Some(tag) => by_tag.get(tag).cloned(),
            None => report.provider_ids.iter().find_map(|id| by_id.get(id)?.clone()),
        };
        Ok(reports.iter().filter_map(|report| Some((*report, find(report)?))).collect())
    }

    /// Excludes the reports from before the last lift of their user's address.
    async fn exclude_lifted<'a>(
        &self,
        matched: Vec<MatchedReport<'a>>,
        users: &HashMap<UserId, User>,
    ) -> Result<Vec<MatchedReport<'a>>, Error> {
        let address_of = |row: &Delivery| users.get(&row.user)?.email.as_ref().map(Address::folded);
        let addresses: Vec<Address> =
            distinct(matched.iter().filter_map(|(_, row)| address_of(row)));
        let states = self.context.store.address_states(&addresses).await?;
        let lifts = states.into_iter().map(|state| state.lifted_at);
        let lifts: HashMap<_, Option<DateTime<Utc>>> = addresses.into_iter().zip(lifts).collect();
        let is_current = |(report, row): &MatchedReport<'_>| {
            let lifted = address_of(row).and_then(|address| lifts[&address]);
            lifted.is_none_or(|lifted| whole_millis(report.at) > lifted)
        };
        Ok(matched.into_iter().filter(is_current).collect())
    }

    /// Returns the suppressions that these reports cause. Counts reports about former addresses.
    async fn suppressions(
        &self,
        provider: &Provider,
        matched: &[MatchedReport<'_>],
        users: &HashMap<UserId, User>,
        now: DateTime<Utc>,
        outcome: &mut ReportOutcomes,
    ) -> Result<Vec<Suppression>, Error> {
        let worst = worst_reports(matched);
        let mut suppressions = Vec::new();
        for (report, row) in matched {
            if !report.kind.concerns_address() {
                continue;
            }
            let user = users.get(&row.user);
            let Some(address) = user.and_then(|user| user.email.as_ref()) else {
                continue;
            };
            let recipient = report.recipient.as_ref().map(Address::folded);
            if recipient.is_some_and(|recipient| recipient != address.folded()) {
                outcome.outdated_address += 1;
                continue;
            }
            let reason = match report.kind {
                ReportKind::Delivered | ReportKind::Refused => continue,
                ReportKind::Delayed if worst[&row.id] > ReportKind::Delayed => continue,
                ReportKind::Delayed => {
                    let count = self.record_soft_bounce(address, report, row, now).await?;
                    if count < self.context.config.hooks.soft_bounces {
                        continue;
                    }
                    SuppressionReason::SoftBounces
                }
                ReportKind::Unsubscribed => SuppressionReason::Unsubscribe,
                ReportKind::Bounced => SuppressionReason::HardBounce,
                ReportKind::Complained => SuppressionReason::Complaint,
            };
            let suppression = Suppression::new(address, reason, report.at, provider.name);
            suppressions.push(suppression.with_detail(report.detail.as_deref()));
        }
        Ok(suppressions)
    }

    /// Loads the users of all reports that concern an address.
    async fn load_users(
        &self,
        matched: &[MatchedReport<'_>],
    ) -> Result<HashMap<UserId, User>, Error> {
        let about_addresses = matched.iter().filter(|(report, _)| report.kind.concerns_address());
        let ids = distinct(about_addresses.map(|(_, row)| row.user.clone()));
        let users = self.context.store.users(&ids).await?.into_iter().flatten();
        Ok(users.map(|user| (user.id.clone(), user)).collect())
    }

    /// Records a soft bounce. Returns how many emails to the address have bounced softly in the
    /// last 30 days and since the user's last delivered email.
    async fn record_soft_bounce(
        &self,
        address: &Address,
        report: &EmailReport,
        row: &Delivery,
        now: DateTime<Utc>,
    ) -> Result<u64, Error> {
        let store = &self.context.store;
        let latest = store.find_deliveries(&DeliveryFilter::User(&row.user), LATEST_EMAILS).await?;
        let reports = latest.iter().filter_map(|row| row.outcome.feedback);
        let delivered = reports.filter(|report| report.news == ReportKind::Delivered);
        let since = delivered
            .map(|report| report.at + TimeDelta::milliseconds(1))
            .fold(now - SOFT_BOUNCES_WITHIN, DateTime::max);
        let at = whole_millis(report.at);
        Ok(store.note_soft_bounce(address, &row.id, at, since).await?)
    }
}

/// Returns the worst report of each email, from the ledger and from this list.
fn worst_reports(matched: &[MatchedReport<'_>]) -> HashMap<DeliveryId, ReportKind> {
    let mut worst = HashMap::new();
    for (report, row) in matched {
        let stored = row.outcome.feedback.map_or(report.kind, |report| report.news);
        let entry = worst.entry(row.id.clone()).or_insert(stored);
        *entry = report.kind.max(stored).max(*entry);
    }
    worst
}

/// Rounds down to the precision of stored times.
fn whole_millis(time: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(time.timestamp_millis()).unwrap_or(time)
}

/// Returns the key under which a provider's id or token is stored. It is a hash, so it is short and
/// reveals nothing.
fn key(provider: &Provider, what: &str, name: &str) -> String {
    let digits = hex::encode(&Sha256::digest(name.as_bytes())[..20]);
    format!("{what}:{}:{digits}", provider.name)
}
