//! The section `[delivery]`: sending, retries, expiry and circuit breakers.

use chrono::TimeDelta;

use super::reader::Reader;
use crate::domain::delivery::Guarantee;
use crate::domain::{Sending, Share};

pub(super) fn read(r: &mut Reader<'_>) -> Sending {
    let (second, hour, day) = (
        TimeDelta::seconds(1),
        TimeDelta::hours(1),
        TimeDelta::days(1),
    );
    let sending = Sending {
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
        stop_share: share(r, "delivery.stop_share"),
        stop_bounces: share(r, "delivery.stop_bounces"),
        stop_complaints: share(r, "delivery.stop_complaints"),
        mails_per_hour: r.number("delivery.mails_per_hour", 0..=100_000_000) as u32,
        patience: r.duration("delivery.patience", second..=day),
        keep: r.duration("delivery.keep", day * 14..=day * 3_650),
    };
    if sending.ask_until < sending.ask_after {
        r.problem("delivery.ask_until", "is shorter than delivery.ask_after");
    }
    sending
}

fn share(r: &mut Reader<'_>, option: &'static str) -> Share {
    r.parse(option, "a percentage such as 20% or 0.5%", |text| {
        text.parse().ok()
    })
}
