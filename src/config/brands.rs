//! Brands: the tables `[brands.NAME]`.
//!
//! A brand overrides options of `site`, `mail`, `server.public_url` and the keys of `hooks`. It
//! inherits the others, but dependent options only together ([`GROUPS`]). A brand with its own
//! sender, for example, does not inherit the Reply-To address. A brand is checked like the default.

use std::collections::BTreeMap;
use std::path::Path;

use chrono::TimeDelta;
use toml::{Table, Value};

use super::layers::{self, overlay};
use super::reader::Reader;
use super::{Mail, Server, Site, hidden, hooks, paths};
use crate::domain::{Address, BrandName};
use crate::email::hooks::Keys;

/// The complete settings of one brand.
#[derive(Debug, Clone)]
pub struct Brand {
    /// The name and look of the service in its emails and pages.
    pub site: Site,
    /// The sender and the provider of its emails.
    pub mail: Mail,
    /// The public URL of its pages, without a trailing slash.
    pub public_url: Option<String>,
    /// The keys that verify its own provider's webhooks.
    pub hooks: Keys,
}

const SECTION: &str = "brands";

/// Dependent options. If a brand sets one of the first list, unset options of the second get their
/// defaults instead of inherited values.
const GROUPS: [(&str, &[&str], &[&str]); 5] = [
    ("site", &["name"], &["url", "logo", "feedback_id"]),
    (
        "mail",
        &["from"],
        &[
            "reply_to",
            "list_domain",
            "dkim_domain",
            "dkim_selector",
            "dkim_key_file",
        ],
    ),
    ("mail", &["provider"], ACCOUNT),
    (
        "mail",
        &["key", "key_file", "access_key_id", "url"],
        &[
            "key",
            "key_file",
            "access_key_id",
            "session_token",
            "session_token_file",
        ],
    ),
    (
        "mail",
        &[
            "smtp_host",
            "smtp_user",
            "smtp_password",
            "smtp_password_file",
        ],
        &["smtp_user", "smtp_password", "smtp_password_file"],
    ),
];

/// The options that identify an account at a provider.
const ACCOUNT: &[&str] = &[
    "key",
    "key_file",
    "access_key_id",
    "session_token",
    "session_token_file",
    "configuration_set",
    "region",
    "url",
    "domain",
    "stream",
    "smtp_host",
    "smtp_port",
    "smtp_tls",
    "smtp_user",
    "smtp_password",
    "smtp_password_file",
    "calls_per_second",
    "per_call",
];

fn tables(table: &mut Table) -> impl Iterator<Item = (&String, &mut Table)> {
    let all = table.get_mut(SECTION).and_then(Value::as_table_mut);
    let all = all.into_iter().flatten();
    all.filter_map(|(name, brand)| Some((name, brand.as_table_mut()?)))
}

/// Resolves the relative paths of all brands against a folder.
pub(super) fn begin_at(table: &mut Table, folder: &Path) {
    for (_, brand) in tables(table) {
        paths::begin_at(brand, folder);
    }
}

/// Sets an option of an existing brand from a variable: `mail.key` of `acme` from
/// `TIDINGS_BRANDS_ACME_MAIL_KEY`. Returns whether the variable names such an option.
pub(super) fn set_by_variable(table: &mut Table, name: &str, text: &str) -> bool {
    let defaults = layers::defaults();
    for (brand, own) in tables(table) {
        let Some(option) = name.strip_prefix(&prefix(brand)) else {
            continue;
        };
        if let Some((section, key, default)) = option_named(&defaults, option) {
            let section = own.entry(section);
            let section = section.or_insert_with(|| Value::Table(Table::new()));
            let value = match (default, text.parse::<i64>()) {
                (Value::Integer(_), Ok(number)) => Value::Integer(number),
                _ => Value::String(text.to_owned()),
            };
            if let Some(section) = section.as_table_mut() {
                section.insert(key.to_owned(), value);
                return true;
            }
        }
    }
    false
}

fn option_named<'a>(defaults: &'a Table, wanted: &str) -> Option<(&'a str, &'a str, &'a Value)> {
    let sections = ["site", "mail", "server", "hooks"].into_iter();
    let all = sections.filter_map(|name| defaults.get_key_value(name));
    let options = all.filter_map(|(section, options)| Some((section, options.as_table()?)));
    let options = options.flat_map(|(section, options)| {
        let options = options.iter();
        options.map(move |(key, value)| (section.as_str(), key.as_str(), value))
    });
    let is_it = |(section, key, _): &(&str, &str, &Value)| {
        format!("{section}_{key}").to_uppercase() == wanted
    };
    options.into_iter().find(is_it)
}

/// Reads all brands over this table. Problems name the path of their brand.
pub(super) fn read(
    r: &mut Reader<'_>,
    merged: &Table,
    defaults: &Table,
    lease: TimeDelta,
) -> BTreeMap<BrandName, Brand> {
    let brands = r.each(SECTION, |r, name, path| {
        let own = r.table(path);
        let name = match BrandName::new(name) {
            Ok(name) => name,
            Err(why) => {
                r.problem(path, why.to_string());
                return None;
            }
        };
        one(r, &own, path, (merged, defaults, lease)).map(|brand| (name, brand))
    });
    let mut known = BTreeMap::new();
    for (name, _) in &brands {
        let prefix = prefix(name.as_str());
        if let Some(other) = known.insert(prefix.clone(), name) {
            let why = format!(
                "and {other} have the same variables ({prefix}…); call one of them something else"
            );
            r.problem(&format!("{SECTION}.{name}"), why);
        }
    }
    brands.into_iter().collect()
}

/// Returns the prefix of a brand's variables.
fn prefix(brand: &str) -> String {
    format!("TIDINGS_BRANDS_{}_", brand.to_uppercase().replace('-', "_"))
}

fn one(
    r: &mut Reader<'_>,
    own: &Table,
    path: &str,
    (merged, defaults, lease): (&Table, &Table, TimeDelta),
) -> Option<Brand> {
    let table = over(merged, defaults, own);
    let mut reader = Reader::new(&table, Vec::new());
    let brand = Brand {
        site: Site::read(&mut reader),
        mail: Mail::read(&mut reader, lease),
        public_url: Server::read_public_url(&mut reader),
        hooks: hooks::keys(&mut reader),
    };
    for file in std::mem::take(&mut reader.secret_files) {
        if !r.secret_files.contains(&file) {
            r.secret_files.push(file);
        }
    }
    match reader.finish() {
        Ok(warnings) => {
            for warning in warnings {
                let option = format!("{path}.{}", warning.option);
                r.warn(&option, warning.what, warning.advice);
            }
            Some(brand)
        }
        Err(problems) => {
            // Problems of inherited values are reported for the default.
            let own = problems
                .0
                .into_iter()
                .filter(|one| !r.is_wrong(&one.option));
            for problem in own.collect::<Vec<_>>() {
                r.problem(&format!("{path}.{}", problem.option), problem.what);
            }
            None
        }
    }
}

/// Merges a brand's table over the default's. Keys of `hooks` are not inherited. Unknown options of
/// the brand are kept, so that they are reported.
fn over(merged: &Table, defaults: &Table, own: &Table) -> Table {
    let part = |table: &Table, section: &str| {
        let part = table.get(section).and_then(Value::as_table);
        part.cloned().unwrap_or_default()
    };
    let (mut site, mut mail) = (part(merged, "site"), part(merged, "mail"));
    for (section, given, others) in GROUPS {
        let (ours, target) = (
            part(own, section),
            match section {
                "site" => &mut site,
                _ => &mut mail,
            },
        );
        if !given.iter().any(|option| ours.contains_key(*option)) {
            continue;
        }
        for option in others {
            match part(defaults, section).remove(*option) {
                Some(value) => drop(target.insert((*option).to_owned(), value)),
                None => drop(target.remove(*option)),
            }
        }
    }
    let own_site = part(own, "site");
    if let Some(name) = own_site.get("name") {
        // The sender's name, unless the brand sets another one.
        mail.insert("from_name".into(), name.clone());
    }
    let mut server = part(merged, "server");
    server.retain(|option, _| option == "public_url");
    let mut table = Table::new();
    for (section, part) in [
        ("site", site),
        ("mail", mail),
        ("server", server),
        ("hooks", part(defaults, "hooks")),
    ] {
        table.insert(section.to_owned(), Value::Table(part));
    }
    overlay(&mut table, own.clone());
    table
}

/// Redacts the secrets and addresses of all brands in a table.
pub(super) fn redact(table: &mut Table) {
    for (_, brand) in tables(table) {
        hooks::redact(brand);
        let Some(mail) = brand.get_mut("mail").and_then(Value::as_table_mut) else {
            continue;
        };
        for (option, value) in mail.iter_mut() {
            let Some(text) = value.as_str().filter(|text| !text.is_empty()) else {
                continue;
            };
            let masked = match option.as_str() {
                "from" | "reply_to" => Address::new(text).map(|address| address.to_string()).ok(),
                "url" => Some(hidden::address(text)),
                _ => hidden::is_secret(&format!("mail.{option}")).then(|| hidden::HIDDEN.into()),
            };
            if let Some(masked) = masked {
                *value = Value::String(masked);
            }
        }
    }
}

#[cfg(test)]
#[path = "brands_tests.rs"]
mod tests;
