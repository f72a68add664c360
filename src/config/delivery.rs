//! How mails are cut, tried, given up and held back.

use chrono::TimeDelta;

use super::reader::Reader;
use crate::domain::Share;
use crate::domain::delivery::Guarantee;

/// The section `delivery`; what each option means stands in `config.default.toml`.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    pub chunk: usize,
    pub in_flight: usize,
    pub lease: TimeDelta,
    pub retry_after: TimeDelta,
    pub attempts: u32,
    pub give_up_after: TimeDelta,
    pub ask_after: TimeDelta,
    pub ask_until: TimeDelta,
    pub resolve_within: TimeDelta,
    pub guarantee: Guarantee,
    pub stop_after: u32,
    pub stop_share: Share,
    pub mails_per_hour: u32,
    pub patience: TimeDelta,
}

impl Delivery {
    pub(super) fn read(r: &mut Reader<'_>) -> Self {
        let (second, hour, day) = (
            TimeDelta::seconds(1),
            TimeDelta::hours(1),
            TimeDelta::days(1),
        );
        let delivery = Self {
            chunk: r.number("delivery.chunk", 1..=1000) as usize,
            in_flight: r.number("delivery.in_flight", 1..=64) as usize,
            lease: r.duration("delivery.lease", second * 10..=hour),
            retry_after: r.duration("delivery.retry_after", second..=day),
            attempts: r.number("delivery.attempts", 1..=100) as u32,
            give_up_after: r.duration("delivery.give_up_after", second * 60..=day * 30),
            ask_after: r.duration("delivery.ask_after", second..=hour),
            ask_until: r.duration("delivery.ask_until", second..=day),
            resolve_within: r.duration("delivery.resolve_within", second..=day * 7),
            guarantee: r.parse(
                "delivery.guarantee",
                "at-most-once or at-least-once",
                |text| match text {
                    "at-most-once" => Some(Guarantee::AtMostOnce),
                    "at-least-once" => Some(Guarantee::AtLeastOnce),
                    _ => None,
                },
            ),
            stop_after: r.number("delivery.stop_after", 1..=1_000_000) as u32,
            stop_share: r.parse(
                "delivery.stop_share",
                "a percentage such as 20% or 0.5%",
                |text| text.parse().ok(),
            ),
            mails_per_hour: r.number("delivery.mails_per_hour", 0..=100_000_000) as u32,
            patience: r.duration("delivery.patience", second..=day),
        };
        if delivery.ask_until < delivery.ask_after {
            r.problem("delivery.ask_until", "is shorter than delivery.ask_after");
        }
        delivery
    }
}
