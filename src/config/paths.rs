//! Resolves relative paths.
//!
//! Paths in a file, and the defaults, are relative to the folder of that file. Commands therefore
//! do not depend on the current folder. Paths in variables and flags are relative to the current
//! folder.

use std::path::Path;

use toml::{Table, Value};

use super::store_url::StoreUrl;
use super::{hooks, tokens};

/// Resolves the relative paths of this table against a folder.
pub(super) fn begin_at(table: &mut Table, folder: &Path) {
    let paths = [
        "mail.outbox",
        "mail.templates",
        "mail.key_file",
        "mail.dkim_key_file",
        "mail.smtp_password_file",
        "server.key_file",
        "server.link_secret_file",
        "tokens.secret_file",
    ];
    for option in paths.map(str::to_owned).into_iter().chain(hooks::files()) {
        if let Some((section, key)) = option.split_once('.')
            && let Some(section) = table.get_mut(section)
        {
            path_begins_at(section.get_mut(key), folder);
        }
    }
    for key in tokens::keys(table) {
        for option in tokens::FILES {
            path_begins_at(key.get_mut(option), folder);
        }
    }
    if let Some(Value::String(store)) = table.get_mut("store")
        && let Some(StoreUrl::Sqlite(path)) = StoreUrl::parse(store)
    {
        *store = format!("sqlite:{}", folder.join(path).display());
    }
}

fn path_begins_at(path: Option<&mut Value>, folder: &Path) {
    if let Some(Value::String(path)) = path
        && !path.is_empty()
    {
        *path = folder.join(&*path).display().to_string();
    }
}
