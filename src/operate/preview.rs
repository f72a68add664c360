//! Previews emails and pages, with invented content ([`Samples`]) or the content that a user would
//! get now ([`UserEmails`]).
//!
//! A preview writes nothing. Templates are read again for each, so it shows the latest saved
//! version. Links that stop emails lead nowhere, as in a dry run. Start with [`Previewer::sheets`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::clock::Clock;
use crate::config::Config;
use crate::domain::name::named_enum;
use crate::domain::{BatchState, BrandName, DeliverySource, StopAction, User, UserId};
use crate::email::LinkPlaceholder;
use crate::engine::batches::{BatchFilter, BatchService};
use crate::engine::digest::{DigestRequest, DigestService};
use crate::engine::{self, NoProgress};
use crate::render::pages::PageUser;
use crate::render::{self, EmailLinks, Pages, Renderer, Samples, sample_user};

pub use crate::render::{Catalogs, EmailDraft};

named_enum! {
    /// The kinds of previews, in the order in which they are shown.
    PreviewKind("kind") {
        /// Digest emails.
        Digest = "digest",
        /// Batch emails.
        Batch = "batch",
        /// The public pages that emails link to.
        Page = "page",
    }
}

impl EmailDraft {
    /// Returns the kind of the preview.
    pub fn kind(&self) -> PreviewKind {
        match self.occasion {
            DeliverySource::Digest(..) => PreviewKind::Digest,
            DeliverySource::Batch(..) => PreviewKind::Batch,
        }
    }
}

/// A rendered email or page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewSheet {
    /// The kind of the preview.
    pub kind: PreviewKind,
    /// A short description, unique within the kind.
    pub name: String,
    /// The subject of an email.
    pub subject: Option<String>,
    /// The HTML of the page or email.
    pub html: String,
    /// The text part of an email.
    pub text: Option<String>,
}

/// Renders emails and pages with the configuration and the templates.
pub struct Previewer {
    /// The configuration, as it applies to the brand.
    pub config: Config,
    /// The brand; `None` for the default.
    pub brand: Option<BrandName>,
    /// The recipient, and what finds their emails; `None` for a fictional user.
    pub recipient: Option<(UserEmails, UserId)>,
    /// The kinds of emails and pages.
    pub kinds: Vec<PreviewKind>,
    /// The locale; `None` for each user's own.
    pub locale: Option<String>,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
}

/// Returns the note that a user has no email or page of this kind.
fn note(kind: PreviewKind, user: &UserId) -> String {
    match kind {
        PreviewKind::Digest => format!(
            "{user} would get no digest now: nothing is pending, or they had one this period, or no \
             email may be sent (tidings explain {user})"
        ),
        PreviewKind::Batch => format!("no batch of {user} is open, or no email may be sent"),
        PreviewKind::Page => format!("there is no record of {user}"),
    }
}

impl Previewer {
    /// Renders the emails and pages with the latest templates. Also explains which kinds are
    /// missing. `pictures` is the base URL of the pictures of fictional objects.
    pub async fn sheets(
        &self,
        pictures: Option<&str>,
    ) -> anyhow::Result<(Vec<PreviewSheet>, Vec<String>)> {
        let (now, is_wanted) = (self.clock.now(), |kind| self.kinds.contains(&kind));
        let (mut drafts, reader) = match &self.recipient {
            None => (self.invented(pictures, now), Some(sample_user())),
            Some((emails, user)) => {
                let drafts = emails.draft_emails(user, self.brand.as_ref()).await?;
                (drafts, emails.reader(user).await?)
            }
        };
        drafts.retain(|draft| is_wanted(draft.kind()));
        let page_user = reader.filter(|_| is_wanted(PreviewKind::Page));
        let sheets = self.render(&drafts, page_user.as_ref(), now)?;
        let is_missing = |kind: &&PreviewKind| !sheets.iter().any(|sheet| sheet.kind == **kind);
        let missing = self.kinds.iter().filter(is_missing);
        let user = self.recipient.as_ref().map(|(_, user)| user);
        let notes = missing.filter_map(|kind| Some(note(*kind, user?))).collect();
        Ok((sheets, notes))
    }

    /// Returns emails with invented content, of the configured types.
    fn invented(&self, pictures: Option<&str>, now: DateTime<Utc>) -> Vec<EmailDraft> {
        let policies = &self.config.policies;
        let samples = Samples { pictures, first: 0, now };
        let mut drafts = samples.digests(policies, self.config.digest.caps);
        drafts.extend(samples.batches(policies));
        drafts
    }

    /// Renders these emails and the pages of this user.
    fn render(
        &self,
        drafts: &[EmailDraft],
        reader: Option<&User>,
        now: DateTime<Utc>,
    ) -> Result<Vec<PreviewSheet>, render::Error> {
        let (site, templates) = (&self.config.site, &self.config.mail.templates);
        let renderer = Renderer::new(site.clone(), templates.clone())?;
        let in_locale = |user: &User| User {
            locale: self.locale.clone().or_else(|| user.locale.clone()),
            ..user.clone()
        };
        let render_draft =
            |draft: &EmailDraft| self.render_email(&renderer, draft, &in_locale(&draft.user), now);
        let mut sheets: Vec<PreviewSheet> =
            drafts.iter().map(render_draft).collect::<Result<_, _>>()?;
        if let Some(reader) = reader {
            let (pages, user) = (Pages::new(site, templates.clone())?, in_locale(reader));
            let (default, policies) = (&self.config.digest.schedule, &self.config.policies);
            let samples = pages.samples(PageUser::new(&user, default, policies), now)?;
            sheets.extend(samples.into_iter().map(|(name, html)| PreviewSheet {
                kind: PreviewKind::Page,
                name,
                subject: None,
                html,
                text: None,
            }));
        }
        Ok(sheets)
    }

    /// Loads the messages of all locales, in their latest version.
    pub fn catalogs(&self) -> Result<Catalogs, render::Error> {
        Catalogs::load(self.config.mail.templates.as_deref())
    }

    fn render_email(
        &self,
        renderer: &Renderer,
        draft: &EmailDraft,
        user: &User,
        now: DateTime<Utc>,
    ) -> Result<PreviewSheet, render::Error> {
        let dead_link = |place: LinkPlaceholder| Some(place.preview_url().to_owned());
        let stop = StopAction::for_email(&draft.content, &draft.occasion, &self.config.policies);
        let mute =
            StopAction::for_only_topic(&draft.content, &draft.occasion, &self.config.policies);
        let rendered = renderer.render(&render::EmailInput {
            user,
            content: &draft.content,
            occasion: &draft.occasion,
            at: now,
            tz: user.schedule(&self.config.digest.schedule).tz,
            links: EmailLinks {
                preferences: dead_link(LinkPlaceholder::Preferences),
                mute: mute.and_then(|_| dead_link(LinkPlaceholder::Mute)),
                unsubscribe: stop.as_ref().and_then(|_| dead_link(LinkPlaceholder::Unsubscribe)),
            },
            stop: stop.as_ref(),
        })?;
        Ok(PreviewSheet {
            kind: draft.kind(),
            name: draft.name.clone(),
            subject: Some(rendered.subject),
            html: rendered.html,
            text: Some(rendered.text),
        })
    }
}

/// Returns the files in a folder and its subfolders, sorted. Skips unreadable folders.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let list = |path: PathBuf| if path.is_dir() { files_in(&path) } else { vec![path] };
    let mut files: Vec<PathBuf> = entries.flat_map(|entry| list(entry.path())).collect();
    files.sort();
    files
}

/// The most open batches of a user that are shown, and the most closing ones.
const MAX_BATCHES: usize = 20;

/// Finds the emails that one user would get.
pub struct UserEmails {
    /// Finds the user's digest.
    pub digests: DigestService,
    /// Finds the user's batches.
    pub batches: BatchService,
}

impl UserEmails {
    /// Returns the user's record, if there is one.
    pub async fn reader(&self, user: &UserId) -> engine::Result<Option<User>> {
        let store = &self.digests.context.store;
        Ok(store.users(std::slice::from_ref(user)).await?.pop().flatten())
    }

    /// Returns the emails that the user would get now: the digest of their period, and one per
    /// unsent batch of the brand. There are none for a user who may not be emailed.
    pub async fn draft_emails(
        &self,
        user: &UserId,
        brand: Option<&BrandName>,
    ) -> engine::Result<Vec<EmailDraft>> {
        let request = DigestRequest {
            users: Some(vec![user.clone()]),
            ignore_hours: true,
            ..DigestRequest::default()
        };
        let mut drafts = Vec::new();
        let mut add = |draft| drafts.push(draft);
        self.digests.dry_run(&request, &mut add, &NoProgress).await?;
        let Some(user) = self.reader(user).await? else {
            return Ok(drafts);
        };
        let (mut batches, mut filter) = (Vec::new(), BatchFilter::of_user(&user.id));
        for state in [BatchState::Closing, BatchState::Open] {
            filter.state = Some(state);
            batches.extend(self.batches.list(&filter, MAX_BATCHES).await?);
        }
        batches.retain(|batch| batch.key.brand().or(user.brand.as_ref()) == brand);
        // A batch that closed between the two reads is in both.
        batches.sort_by_key(|batch| std::cmp::Reverse(batch.id));
        batches.dedup_by_key(|batch| batch.id);
        let compose = &self.digests.sender.compose;
        let emails = compose.select_sendable_batches(batches, &user).await?;
        drafts.extend(emails.into_iter().map(|(batch, content)| EmailDraft {
            name: format!("{} {}", batch.key, batch.id),
            user: user.clone(),
            content,
            occasion: DeliverySource::Batch(batch.id, batch.opened_at),
        }));
        Ok(drafts)
    }
}

#[cfg(test)]
#[path = "preview_tests.rs"]
mod tests;
