//! The parts that build emails from delivery rows.

use std::sync::Arc;

use super::super::identity::Identities;
use super::Headers;
use crate::context::Context;
use crate::domain::content::Caps;
use crate::domain::{BrandName, Schedule};
use crate::engine::access::links::Links;
use crate::engine::eligibility::catalog::CatalogSource;
use crate::engine::eligibility::skip_seen::SkipSeen;
use crate::render::Renderer;

/// Makes mails of rows.
#[derive(Clone)]
pub struct Compose {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    /// Leaves out of digests what was seen in the feed, where that is wanted.
    pub skip_seen: SkipSeen,
    /// Of which brand the mails are that it makes; `None` for the default.
    pub brand: Option<BrandName>,
    /// The identities of all brands.
    pub identities: Arc<Identities>,
    pub(crate) renderer: Arc<Renderer>,
    pub(crate) links: Arc<Links>,
    /// Says in headers what a mail is.
    pub(crate) headers: Headers,
    /// How many items a section and a digest show.
    pub caps: Caps,
    /// What holds for people who did not choose cadence, weekday, hour or time zone.
    pub schedule: Schedule,
}
