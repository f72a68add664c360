//! A period beside the one before it, by the ledger.
//!
//! The rule: only what the ledger has is told of, and mails of the same cadence are set against
//! each other.

use crate::domain::delivery::PeriodCount;
use crate::domain::{Cadence, DeliveryState, Period};
use crate::render::report::{Comparison, Mailed};

/// What is due of one period.
#[derive(Debug)]
pub(super) struct OfPeriod {
    pub cadence: Cadence,
    pub period: Period,
    pub mails: u64,
    pub events: u64,
}

/// What is due beside what has been mailed of it already, and of the periods before.
pub(super) fn comparisons<'a>(
    due: impl Iterator<Item = &'a OfPeriod>,
    counted: &[PeriodCount],
) -> Vec<Comparison> {
    let compare = |due: &OfPeriod| {
        let before = due.period.previous()?;
        let already = mailed(due.cadence, due.period, counted);
        let then = mailed(due.cadence, before, counted);
        Some(Comparison {
            cadence: due.cadence.as_str(),
            period: due.period.to_string(),
            mails: due.mails,
            events: due.events,
            already,
            before: before.to_string(),
            then,
            change: change(due.mails + already.sent, then.sent),
        })
    };
    due.filter_map(compare).collect()
}

fn mailed(cadence: Cadence, period: Period, counted: &[PeriodCount]) -> Mailed {
    let period = period.to_string();
    let mut mailed = Mailed::default();
    let of_it = |count: &&PeriodCount| count.cadence == cadence && count.period == period;
    for count in counted.iter().filter(of_it) {
        match count.state {
            DeliveryState::Sent => {
                mailed.sent += count.mails;
                mailed.events += count.events;
            }
            DeliveryState::Failed => mailed.failed += count.mails,
            DeliveryState::Canceled => mailed.canceled += count.mails,
            DeliveryState::Unknown => mailed.unknown += count.mails,
            // Counted once they are settled.
            DeliveryState::Pending | DeliveryState::Sending => {}
        }
    }
    mailed
}

/// `+12%`; nothing where there is nothing to compare with.
fn change(now: u64, then: u64) -> Option<String> {
    if then == 0 {
        return None;
    }
    let percent = (now as f64 / then as f64 - 1.0) * 100.0;
    Some(match percent.round() as i64 {
        0 => "as many".to_owned(),
        percent @ 1.. => format!("+{percent}%"),
        percent => format!("\u{2212}{}%", percent.unsigned_abs()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(cadence: Cadence, period: &str, state: DeliveryState, mails: u64) -> PeriodCount {
        PeriodCount {
            cadence,
            period: period.into(),
            state,
            mails,
            events: 3 * mails,
        }
    }

    #[test]
    fn a_week_is_set_against_the_week_before_of_the_same_cadence() {
        let due = OfPeriod {
            cadence: Cadence::Weekly,
            period: Period::Week {
                year: 2014,
                week: 17,
            },
            mails: 100,
            events: 700,
        };
        let counted = [
            count(Cadence::Daily, "2014-04-20", DeliveryState::Sent, 9),
            count(Cadence::Weekly, "2014-W15", DeliveryState::Sent, 9),
            count(Cadence::Weekly, "2014-W16", DeliveryState::Failed, 2),
            count(Cadence::Weekly, "2014-W16", DeliveryState::Sent, 100),
            count(Cadence::Weekly, "2014-W17", DeliveryState::Sent, 12),
        ];

        let compared = comparisons([due].iter(), &counted);

        assert_eq!(
            (compared[0].before.as_str(), compared[0].already.sent),
            ("2014-W16", 12)
        );
        assert_eq!(
            (
                compared[0].then.sent,
                compared[0].then.events,
                compared[0].then.failed
            ),
            (100, 300, 2)
        );
        assert_eq!(compared[0].change.as_deref(), Some("+12%"));
    }

    #[test]
    fn changes_are_told_in_whole_percents() {
        assert_eq!(change(5, 0), None);
        assert_eq!(change(1_001, 1_000).as_deref(), Some("as many"));
        assert_eq!(change(50, 100).as_deref(), Some("−50%"));
    }
}
