//! Batch mails: a burst of events as one mail.
//!
//! The rule: what a mail says depends on what happened, the time zone and the site, and on nothing
//! else of the person, so that people who are told the same share their mail. If all of it is of
//! one type, that type's own templates are used where a folder holds some. `bulletin` is what
//! templates see.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use minijinja::Value;
use minijinja::value::Serde;

use super::bulletin::BulletinView;
use super::templates::{BATCH, Error, Mail, Template};
use super::{Links, Rendered, Renderer};
use crate::domain::{Bulletin, EventType, User};

/// A batch to be rendered.
#[derive(Debug, Clone)]
pub struct BatchMail<'a> {
    /// Whom it is for; templates see their id, name and locale.
    pub user: &'a User,
    /// What it tells.
    pub bulletin: &'a Bulletin,
    /// The moment the mail is of: times leave out its day, and days its year.
    pub at: DateTime<Utc>,
    /// The zone in which its times are told.
    pub tz: Tz,
    /// The recipient's own links, or marks where they will go.
    pub links: Links,
}

impl Renderer {
    /// Renders a batch. Where that would be too long, the longest sections show fewer items and
    /// count the rest.
    pub fn batch(&self, mail: &BatchMail<'_>) -> Result<Rendered, Error> {
        let only = mail.bulletin.only.as_ref();
        let own = only.and_then(|kind| self.own.get(kind));
        self.batch_by(own.unwrap_or(&BATCH), mail)
    }

    pub(super) fn batch_by(&self, by: &Mail, mail: &BatchMail<'_>) -> Result<Rendered, Error> {
        let sections = mail.bulletin.sections.iter();
        let shown = sections.map(|section| section.shown() as usize);
        self.fit(by, shown.collect(), |shown| {
            Value::from(Serde(BulletinView::new(mail, shown)))
        })
    }
}

/// The templates of single types in a folder of templates: folders below `batch/` whose name is
/// that of a type. They are listed and never looked up by name, so the name of a type that is no
/// file's name leads nowhere.
pub(super) fn own(overrides: Option<&Path>) -> Result<BTreeMap<EventType, Mail>, Error> {
    let mut own = BTreeMap::new();
    let Some(folder) = overrides.map(|overrides| overrides.join("batch")) else {
        return Ok(own);
    };
    let unreadable = |cause| Error::Folder {
        path: folder.clone(),
        cause,
    };
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(own),
        entries => entries.map_err(unreadable)?,
    };
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let kind = name.to_str().and_then(|name| EventType::new(name).ok());
        let Some(kind) = kind.filter(|_| entry.path().is_dir()) else {
            continue;
        };
        let mut mail = BATCH.clone();
        for (file, template) in [
            ("subject.txt", &mut mail.subject),
            ("body.txt", &mut mail.text),
            ("body.html", &mut mail.html),
        ] {
            if entry.path().join(file).exists() {
                *template = Template {
                    name: format!("batch/{kind}/{file}").into(),
                    built_in: template.built_in,
                };
            }
        }
        own.insert(kind, mail);
    }
    Ok(own)
}
