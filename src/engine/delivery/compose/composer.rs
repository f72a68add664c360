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

/// Builds emails from delivery rows.
#[derive(Clone)]
pub struct Compose {
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    /// Excludes events that were seen in the feed, if `digest.skip_seen` is on.
    pub skip_seen: SkipSeen,
    /// The brand of the emails that it builds; `None` for the default.
    pub brand: Option<BrandName>,
    /// The identities of all brands.
    pub identities: Arc<Identities>,
    pub(crate) renderer: Arc<Renderer>,
    pub(crate) links: Arc<Links>,
    /// Makes the headers that name lists and threads.
    pub(crate) headers: Headers,
    /// The most items in a section and in a digest.
    pub caps: Caps,
    /// The default schedule, for users who did not choose a cadence, weekday, hour or time zone.
    pub schedule: Schedule,
}
