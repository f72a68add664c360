//! Whether the provider's reports arrive at all.

use chrono::{DateTime, TimeDelta, Utc};

use crate::store::{Feedbacks, Result};

/// Returns how many emails left more than a day ago without a report of any email since. Looks at
/// the last two days, and then at a week, for digests that are sent weekly.
///
/// # Errors
///
/// Fails where the store does.
pub(crate) async fn unreported<F: Feedbacks + ?Sized>(
    feedbacks: &F,
    now: DateTime<Utc>,
) -> Result<u64> {
    let lately = feedbacks.report_counts(now - TimeDelta::days(1)).await?;
    if lately.reported() > 0 {
        return Ok(0);
    }
    for days in [2, 7] {
        let counts = feedbacks.report_counts(now - TimeDelta::days(days)).await?;
        if counts.reported() == 0 && counts.sent > lately.sent {
            return Ok(counts.sent - lately.sent);
        }
    }
    Ok(0)
}
