//! Detects that the reports of the provider do not arrive.

use chrono::{DateTime, TimeDelta, Utc};

use crate::store::{Feedbacks, Result};

/// Returns how many emails were sent more than a day ago without any report; 0 if reports arrive.
///
/// Checks the emails of the last two days, then those of a week, because some users get only weekly
/// digests. One report of an email in that time is enough.
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
