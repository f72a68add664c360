//! The sections `[types.NAME]`: the policy of each event type.

use super::batch;
use super::reader::Reader;
use crate::domain::{BatchPolicy, EventType, Mandate, ModelName, Policies, Policy, Route};

pub(super) fn read(r: &mut Reader<'_>, standard: &BatchPolicy) -> Policies {
    let types = r.each("types", |r, name, path| {
        Some((r.name::<EventType>(name, path)?, policy(r, path, standard)))
    });
    for (index, (name, policy)) in types.iter().enumerate() {
        // One warning per type is enough: the first difference.
        let others = &types[..index];
        let same_key = |other: &Policy| other.key.is_some() && other.key == policy.key;
        let differs = |other: &Policy| same_key(other) && other.batch != policy.batch;
        if let Some((other, _)) = others.iter().find(|(_, other)| differs(other)) {
            r.warn(
                &format!("types.{name}.batch_key"),
                format!("is also that of types.{other}, whose batches gather otherwise: the event that joined last says when both close"),
                "give both the same window, cooldown, max_wait, close_at, keep and leading",
            );
        }
    }
    Policies::new(types).with_batches(*standard)
}

fn policy(r: &mut Reader<'_>, path: &str, batch: &BatchPolicy) -> Policy {
    let standard = Policy::default();
    let policy = Policy {
        route: r
            .optional_parse(
                &format!("{path}.route"),
                "never, immediate, batch or digest",
                |text| text.parse().ok(),
            )
            .unwrap_or(standard.route),
        model: r.optional_parse(&format!("{path}.model"), "the name of a model", |text| {
            ModelName::new(text)
                .ok()
                .filter(|name| !name.as_str().contains(':'))
        }),
        unknown_objects: r
            .optional_parse(&format!("{path}.unknown_objects"), "skip or mail", |text| {
                text.parse().ok()
            })
            .unwrap_or(standard.unknown_objects),
        heading: r.optional(&format!("{path}.heading")),
        phrase: r.optional_parse(
            &format!("{path}.phrase"),
            "a phrase such as \"commented on\": one line of 1 to 60 characters",
            |text| text.parse().ok(),
        ),
        batch: batch::read(r, path, batch),
        key: batch::key(r, path),
        category: r.optional_parse(
            &format!("{path}.category"),
            "a name such as \"Community\": one line of 1 to 60 characters",
            |text| text.parse().ok(),
        ),
        mandatory: mandate(r, &format!("{path}.mandatory")),
        feed: flag(r, format!("{path}.feed"), standard.feed),
        branded: flag(r, format!("{path}.branded"), standard.branded),
    };
    if policy.branded && policy.route == Route::Digest {
        r.problem(
            &format!("{path}.branded"),
            "needs another route than digest, as a digest is of one brand: set route = \"batch\", \"immediate\" or \"never\"",
        );
    }
    if policy.route == Route::Never && !policy.feed {
        r.warn(
            &format!("{path}.feed"),
            "is false, and the route is never: nobody is told of its events",
            "set another route, or feed = true",
        );
    }
    if policy.route == Route::Batch && policy.batch.is_immediate() {
        r.warn(
            &format!("{path}.route"),
            "is batch, but neither window nor cooldown is longer than 0s: nothing is gathered",
            "set one of them, or route = \"immediate\"",
        );
    }
    policy
}

/// Reads an optional boolean.
fn flag(r: &mut Reader<'_>, option: String, standard: bool) -> bool {
    let flag = match r.is_set(&option) {
        true => r.flag(&option),
        false => standard,
    };
    r.knows(option);
    flag
}

/// Reads the reason as text, or `true` for the general reason. `false` means not mandatory.
fn mandate(r: &mut Reader<'_>, option: &str) -> Option<Mandate> {
    if r.is_flag(option) {
        return r.flag(option).then(Mandate::default);
    }
    r.optional_parse(
        option,
        "true, false, or the reason that people read: one line of 1 to 120 characters",
        |text| text.parse().ok(),
    )
}
