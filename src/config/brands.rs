//! Brands: the tables `[brands.NAME]`.
//!
//! A brand overrides options of `site`, `mail`, `server.public_url` and the keys of `hooks`. It
//! inherits the others, but dependent options only together ([`DEPENDENT_OPTIONS`]). A brand with
//! its own sender, for example, does not inherit the Reply-To address. A brand is checked like the
//! default.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use toml::{Table, Value};

use super::reader::TableReader;
use super::sections::hook_keys;
use super::sections::read_site;
use super::sources::{DEFAULT_TABLE, PREFIX, option_of_variable, overlay, set_option};
use super::{MailSettings, ServerSettings};
use crate::domain::{BrandName, Site};
use crate::email::hooks::HookKeys;

/// The complete settings of one brand.
#[derive(Debug, Clone)]
pub struct Brand {
    /// The name and look of the service in its emails and pages.
    pub site: Site,
    /// The sender and the provider of its emails.
    pub mail: MailSettings,
    /// The public URL of its pages, without a trailing slash.
    pub public_url: Option<String>,
    /// The keys that verify its own provider's webhooks.
    pub hooks: HookKeys,
}

/// Dependent options: a section and two lists of its options. If a brand sets an option of the
/// first list, its unset options of the second get their defaults instead of inherited values.
const DEPENDENT_OPTIONS: [(&str, &str, &str); 5] = [
    ("site", "name", "url logo feedback_id"),
    ("mail", "from", "reply_to list_domain dkim_selector"),
    // The options that identify an account at a provider.
    (
        "mail",
        "provider",
        "key key_file access_key_id configuration_set region url domain \
         stream smtp_host smtp_port smtp_tls smtp_user smtp_password smtp_password_file \
         calls_per_second per_call",
    ),
    ("mail", "key key_file access_key_id url", "key key_file access_key_id"),
    (
        "mail",
        "smtp_host smtp_user smtp_password smtp_password_file",
        "smtp_user smtp_password smtp_password_file",
    ),
];

/// Sets an option of a brand if the name is its variable: `TIDINGS_BRANDS_ACME_MAIL_KEY`.
pub(super) fn set_by_variable(table: &mut Table, name: &str, text: &str) -> bool {
    let brands = table.get_mut("brands").and_then(Value::as_table_mut);
    for (brand, own) in brands.into_iter().flatten() {
        let option = option_of_variable(&variable_prefix(brand), name).filter(|option| {
            let (section, _) = option.split_once('.').unwrap_or_default();
            ["site", "mail", "server", "hooks"].contains(&section)
        });
        if let (Some(option), Some(own)) = (option, own.as_table_mut()) {
            set_option(own, &option, text);
            return true;
        }
    }
    false
}

/// Returns the prefix of a brand's variables.
fn variable_prefix(brand: &str) -> String {
    format!("{PREFIX}BRANDS_{}_", brand.to_uppercase().replace('-', "_"))
}

/// Reads all brands. `merged` is the table of all sources.
pub(super) fn read(
    r: &mut TableReader<'_>,
    merged: &Table,
    lease: TimeDelta,
) -> BTreeMap<BrandName, Brand> {
    let brands = r.each("brands", |r, _: &BrandName, path| {
        let own = r.table(path);
        read_brand(r, path, &with_inherited(merged, &own), lease)
    });
    let mut brands_by_prefix = BTreeMap::new();
    for (name, _) in &brands {
        let prefix = variable_prefix(name.as_str());
        if let Some(other) = brands_by_prefix.insert(prefix.clone(), name) {
            let problem = format!(
                "and {other} have the same variables ({prefix}…); call one of them something else"
            );
            r.add_problem(&format!("brands.{name}"), problem);
        }
    }
    brands.into_iter().filter_map(|(name, brand)| Some((name, brand?))).collect()
}

fn read_brand(
    r: &mut TableReader<'_>,
    path: &str,
    table: &Table,
    lease: TimeDelta,
) -> Option<Brand> {
    let mut reader = TableReader::new(table, &DEFAULT_TABLE, Vec::new());
    let brand = Brand {
        site: read_site(&mut reader),
        mail: MailSettings::read(&mut reader, lease),
        public_url: ServerSettings::read_public_url(&mut reader),
        hooks: hook_keys(&mut reader),
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
        Err(mut problems) => {
            // A problem of the default is not repeated for each brand.
            problems.0.retain(|problem| !r.has_problem(&problem.option));
            for problem in problems.0 {
                r.add_problem(&format!("{path}.{}", problem.option), problem.what);
            }
            None
        }
    }
}

/// Merges a brand's table over the default's. Keys of `hooks` are not inherited. Unknown options of
/// the brand are kept, so that they are reported.
fn with_inherited(merged: &Table, own: &Table) -> Table {
    let section = |table: &Table, name: &str| {
        table.get(name).and_then(Value::as_table).cloned().unwrap_or_default()
    };
    let mut table = Table::new();
    for name in ["site", "mail"] {
        let (mut inherited, own_section) = (section(merged, name), section(own, name));
        for (group_section, triggers, dependents) in DEPENDENT_OPTIONS {
            let has_trigger = || triggers.split(' ').any(|option| own_section.contains_key(option));
            if group_section != name || !has_trigger() {
                continue;
            }
            for option in dependents.split(' ') {
                inherited.remove(option);
                let default = DEFAULT_TABLE[name].get(option);
                inherited.extend(default.map(|value| (option.to_owned(), value.clone())));
            }
        }
        table.insert(name.to_owned(), Value::Table(inherited));
    }
    let mail = table.get_mut("mail").and_then(Value::as_table_mut);
    if let (Some(name), Some(mail)) = (section(own, "site").get("name"), mail) {
        mail.insert("from_name".to_owned(), name.clone());
    }
    let mut server = section(merged, "server");
    server.retain(|option, _| option == "public_url");
    table.insert("server".to_owned(), Value::Table(server));
    table.insert("hooks".to_owned(), DEFAULT_TABLE["hooks"].clone());
    overlay(&mut table, own.clone());
    table
}

#[cfg(test)]
#[path = "brands_tests.rs"]
mod tests;
