//! The section `[hooks]`: the keys that verify provider webhooks.
//!
//! Each key is parsed once, here. `Debug` shows none of it.

use toml::Table;

use super::layers::set;
use super::reader::Reader;
use crate::email::hooks::Keys;
use crate::email::providers::{HookKey, PROVIDERS};

/// Webhook settings. A provider without a key has no webhook.
#[derive(Debug, Clone)]
pub struct Hooks {
    /// The key of each provider that has one.
    pub keys: Keys,
    /// The number of consecutive soft bounces after which an address is suppressed, 1 to 100.
    pub soft_bounces: u64,
}

/// Returns the options that name key files.
pub(super) fn files() -> impl Iterator<Item = String> {
    let keys = PROVIDERS.iter().map(|provider| &provider.hook_key);
    keys.map(|key| format!("{}_file", key.options().1))
}

pub(super) fn read(r: &mut Reader<'_>) -> Hooks {
    Hooks {
        keys: keys(r),
        soft_bounces: r.number("delivery.soft_bounces", 1..=100) as u64,
    }
}

/// Reads the keys of all providers that have one.
pub(super) fn keys(r: &mut Reader<'_>) -> Keys {
    let keys = PROVIDERS.iter().zip(files());
    let keys = keys.filter_map(|(provider, file)| {
        let key = key(r, &provider.hook_key, &file)?;
        Some((provider.name, key))
    });
    keys.collect()
}

fn key(r: &mut Reader<'_>, key: &HookKey, file: &str) -> Option<Vec<u8>> {
    let (user, password) = match *key {
        HookKey::Secret(option, parse) | HookKey::Public(option, parse) => {
            let key = parse(&r.secret(option, file)?);
            return key.map_err(|what| r.problem(option, what)).ok();
        }
        HookKey::Login(user, password) => (user, password),
    };
    match (r.optional(user), r.secret(password, file)) {
        (None, None) => {}
        (Some(name), _) if name.contains(':') => {
            r.problem(user, "holds a colon, which a user name cannot have here");
        }
        (Some(name), Some(secret)) => return Some(format!("{name}:{secret}").into()),
        (Some(_), None) => r.problem(password, format!("is missing, though {user} is set")),
        (None, Some(_)) => r.problem(user, format!("is missing, though {password} is set")),
    }
    None
}

/// Redacts the secrets that are set.
pub(super) fn redact(table: &mut Table) {
    let keys = PROVIDERS.iter().map(|provider| &provider.hook_key);
    for key in keys.filter(|key| !matches!(key, HookKey::Public(..))) {
        let (_, option) = key.options();
        let set_here = option
            .split_once('.')
            .and_then(|(section, name)| table.get(section)?.get(name)?.as_str())
            .is_some_and(|text| !text.is_empty());
        if set_here {
            set(table, option, "(hidden)");
        }
    }
}
