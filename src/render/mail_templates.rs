//! Selects the templates of an email: digest, batch, or those of the batch's one event type.
//!
//! Folders of types are listed, never opened by name. A type whose name is not a safe file name
//! therefore cannot lead outside the templates folder.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use super::error::Error;
use super::parts::{Template, template};
use crate::domain::EventType;

#[derive(Debug, Clone)]
pub(super) struct MailTemplates {
    pub subject: Template,
    pub text: Template,
    pub html: Template,
}

pub(super) static DIGEST: MailTemplates = MailTemplates {
    subject: template!("digest/subject.txt"),
    text: template!("digest/body.txt"),
    html: template!("digest/body.html"),
};
pub(super) static BATCH: MailTemplates = MailTemplates {
    subject: template!("batch/subject.txt"),
    text: template!("batch/body.txt"),
    html: template!("batch/body.html"),
};

/// The file names in the folder of a type.
pub(super) const FILES: [&str; 3] = ["subject.txt", "body.txt", "body.html"];

impl MailTemplates {
    pub(super) fn all(&self) -> [&Template; 3] {
        [&self.subject, &self.text, &self.html]
    }

    /// Returns the templates of single types: folders below `batch/` with the name of a type. A
    /// missing file falls back to the template for all batches.
    pub(super) fn of_types(overrides: Option<&Path>) -> Result<BTreeMap<EventType, Self>, Error> {
        let mut of_types = BTreeMap::new();
        let Some(folder) = overrides.map(|overrides| overrides.join("batch")) else {
            return Ok(of_types);
        };
        let unreadable = |cause| Error::Folder {
            path: folder.clone(),
            cause,
        };
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(of_types),
            entries => entries.map_err(unreadable)?,
        };
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            let kind = name.to_str().and_then(|name| EventType::new(name).ok());
            let Some(kind) = kind.filter(|_| entry.path().is_dir()) else {
                continue;
            };
            let mut own = BATCH.clone();
            let templates = [&mut own.subject, &mut own.text, &mut own.html];
            for (file, template) in FILES.into_iter().zip(templates) {
                if entry.path().join(file).exists() {
                    template.name = format!("batch/{kind}/{file}").into();
                }
            }
            of_types.insert(kind, own);
        }
        Ok(of_types)
    }
}
