//! Finds the emails that a run of digests would send, and renders some of them.
//!
//! It writes nothing, not even the secret that signs links: unsubscribe links in its emails lead
//! nowhere. The scan over digests is the run's own ([`DigestService::dry_run`]). Start with
//! [`DryRun::run`].

use crate::email::LinkPlaceholder;
use crate::engine::digest::{DigestRequest, DigestService};
use crate::engine::{Progress, Result};
use crate::render::EmailDraft;
use crate::render::dry_run_page::{DryRunEmail, DryRunEmails};
use crate::wire::run_report::DigestReport;

/// The most emails that are rendered.
pub const MAX_RENDERED: u64 = 10_000;
/// The most emails that a page shows in full: the first ones.
const MAX_SHOWN: usize = 5;
/// The most reasons that are reported for emails that cannot be rendered.
const MAX_REASONS: usize = 5;

/// A run of digests that only counts and renders.
pub struct DryRun {
    /// Scans the digests.
    pub digests: DigestService,
    /// See [`MAX_RENDERED`].
    pub max_rendered: u64,
}

impl DryRun {
    /// Counts the emails that the run would send, and renders the first ones. Skips emails of
    /// brands that are not configured.
    pub async fn run(
        &self,
        request: &DigestRequest,
        progress: &dyn Progress,
    ) -> Result<(DigestReport, DryRunEmails)> {
        let now = self.digests.context.clock.now();
        let at = request.at.unwrap_or(now);
        let request = DigestRequest { at: Some(at), ..request.clone() };
        let mut result = DryRunEmails::default();
        let mut add = |draft: EmailDraft| {
            let compose = &self.digests.sender.compose;
            let Some(compose) = compose.for_brand(draft.user.brand.as_ref()) else {
                return;
            };
            result.total += 1;
            if result.total > self.max_rendered {
                return;
            }
            let (user, content) = (&draft.user, &draft.content);
            match compose.render_email(user, content, &draft.occasion, at) {
                Ok(rendered) => {
                    let email = rendered.content.fill_with(LinkPlaceholder::preview_url);
                    result.emails.push(DryRunEmail {
                        user: user.id.to_string(),
                        subject: email.subject,
                        events: content.total,
                        bytes: email.html.len(),
                        html: (result.emails.len() < MAX_SHOWN).then_some(email.html),
                    });
                }
                Err(reason) if result.failures.len() < MAX_REASONS => {
                    let failure = format!("some emails cannot be rendered: {reason}");
                    result.failures.insert(failure);
                }
                Err(_) => {}
            }
        };
        let report = self.digests.dry_run(&request, &mut add, progress).await?;
        let mut sizes: Vec<usize> = result.emails.iter().map(|email| email.bytes).collect();
        sizes.sort_unstable();
        result.median = sizes.get(sizes.len() / 2).copied().unwrap_or_default();
        result.largest = sizes.last().copied().unwrap_or_default();
        Ok((report, result))
    }
}
