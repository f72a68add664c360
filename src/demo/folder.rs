//! Makes the folder of a demo, in place of an earlier demo.
//!
//! It leaves a folder with other contents alone. From an earlier demo it removes only the files
//! that a demo makes.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;

use crate::private;

/// The gallery's works, oldest first.
pub(super) const WORKS: &str = include_str!("data/works.ndjson");
/// The files of a new folder.
const FILES: [(&str, &str); 8] = [
    (CONFIG, include_str!("data/tidings.toml")),
    ("people.ndjson", include_str!("data/people.ndjson")),
    ("follows.ndjson", include_str!("data/follows.ndjson")),
    ("artists.ndjson", include_str!("data/artists.ndjson")),
    ("works.ndjson", WORKS),
    ("shows.ndjson", include_str!("data/shows.ndjson")),
    ("replies.ndjson", include_str!("data/replies.ndjson")),
    ("withdrawn.ndjson", include_str!("data/withdrawn.ndjson")),
];
/// The folder's configuration.
pub(crate) const CONFIG: &str = "tidings.toml";
/// The first line of a demo's configuration, which identifies it.
const FIRST_LINE: &str = "# Made by `tidings demo`.";
/// The files that the store adds.
const STORE_FILES: [&str; 3] = ["tidings.db", "tidings.db-wal", "tidings.db-shm"];
/// The folder that emails are written to.
const OUTBOX: &str = "outbox";
/// The gallery's address in the data.
const SITE_URL: &str = "https://kiosk.example";

/// The folder has other contents, so no demo is made in it.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not empty, and no earlier demo")]
pub(crate) struct ForeignFolder(String);

/// The address and secrets of a served demo.
pub(crate) struct ServedDemo {
    /// The address that it listens on.
    pub addr: SocketAddr,
    /// The server key. It is random, because other sites could guess a fixed one.
    pub key: String,
    /// The secret that signs the tokens of its users.
    pub secret: String,
}

impl ServedDemo {
    /// The URL for a browser, without a slash at its end.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

/// Creates the folder and makes it the current one, so that later relative paths are inside.
pub(crate) fn create_and_enter(dir: &Path, served: Option<&ServedDemo>) -> anyhow::Result<()> {
    clear(dir)?;
    let shown = dir.display();
    private::create_folder(dir).with_context(|| format!("making the folder {shown}"))?;
    std::env::set_current_dir(dir).with_context(|| format!("going to {shown}"))?;
    for (name, text) in FILES {
        let content = match (name, served) {
            (CONFIG, served) => add_server_options(text, served),
            (_, None) => text.to_owned(),
            (_, Some(served)) => link_to_page(text, &format!("{}/demo", served.url()))?,
        };
        private::write(name, content).with_context(|| format!("writing {shown}/{name}"))?;
    }
    Ok(())
}

/// Removes an earlier demo; refuses a folder with other contents.
fn clear(dir: &Path) -> anyhow::Result<()> {
    let shown = || dir.display().to_string();
    let entry_count = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        entries => entries.with_context(|| format!("reading the folder {}", shown()))?.count(),
    };
    if entry_count == 0 {
        return Ok(());
    }
    if !fs::read_to_string(dir.join(CONFIG)).is_ok_and(|text| text.starts_with(FIRST_LINE)) {
        return Err(ForeignFolder(shown()).into());
    }
    let names = FILES.iter().map(|(name, _)| *name).chain(STORE_FILES);
    let removals = names.map(|name| fs::remove_file(dir.join(name)));
    for removal in removals.chain([fs::remove_dir_all(dir.join(OUTBOX))]) {
        if let Err(error) = removal
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("removing the demo in {}", shown()));
        }
    }
    Ok(())
}

/// Adds the server's options to the configuration.
fn add_server_options(text: &str, served: Option<&ServedDemo>) -> String {
    let Some(served) = served else {
        return format!(
            "{text}\n[server]\n# A well-known key is only fit for a demo that listens on this machine.\n\
             key = \"demo\"\n"
        );
    };
    let (url, ServedDemo { addr, key, secret }) = (served.url(), served);
    let linked = text.replace(SITE_URL, &format!("{url}/demo"));
    format!(
        "{linked}\n[server]\nkey = \"{key}\"\nlisten = \"{addr}\"\npublic_url = \"{url}\"\n\n\
         [tokens]\nsecret = \"{secret}\"\n\n\
         # Each time the page sends the digests, it simulates a later week.\n\
         [digest]\nmax_age = \"365d\"\n"
    )
}

/// Links records to the demo's page, and adds a picture to those that have a link.
fn link_to_page(records: &str, page: &str) -> anyhow::Result<String> {
    let mut lines = String::with_capacity(records.len() * 2);
    for line in records.lines() {
        let mut record: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(line).context("reading the demo's own data")?;
        // The address of a reply is a fragment of its work's page.
        let url = record.get("url").and_then(|url| url.as_str());
        let id = url.and_then(|url| url.rsplit('/').next()?.split('#').next());
        if let Some(id) = id.map(str::to_owned) {
            record.insert("url".into(), format!("{page}#{id}").into());
            record.insert("image".into(), format!("{page}/pictures/{id}").into());
        }
        lines += &serde_json::Value::Object(record).to_string();
        lines.push('\n');
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::domain::Secret;

    #[test]
    fn the_configuration_of_a_demo_is_valid_and_starts_with_its_marker() {
        let text = add_server_options(FILES[0].1, None);

        assert!(text.starts_with(FIRST_LINE));
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.site.name, "Kiosk");
        assert_eq!(config.server.key, Some(Secret::new("demo")));
    }

    #[test]
    fn links_of_a_served_demo_lead_to_its_page() {
        let served = ServedDemo {
            addr: "127.0.0.1:8081".parse().unwrap(),
            key: "k".repeat(48),
            secret: "s".repeat(48),
        };
        let page = format!("{}/demo", served.url());
        let first = |name: &str| -> serde_json::Value {
            let (_, text) = FILES.iter().find(|(known, _)| *known == name).unwrap();
            let linked = link_to_page(text, &page).unwrap();
            assert!(!linked.contains(SITE_URL));
            serde_json::from_str(linked.lines().next().unwrap()).unwrap()
        };

        let text = add_server_options(FILES[0].1, Some(&served));
        let config = Config::parse(&text).unwrap();

        assert!(!text.contains(SITE_URL));
        assert_eq!(config.server.listen, served.addr);
        assert_eq!(config.server.public_url, Some(served.url()));
        assert_eq!(config.server.key, Some(Secret::new(&*served.key)));
        assert_eq!(config.tokens.keys.len(), 1);
        let work = first("works.ndjson");
        assert_eq!(work["url"], "http://127.0.0.1:8081/demo#W01");
        assert_eq!(work["image"], "http://127.0.0.1:8081/demo/pictures/W01");
        assert_eq!(work["title"], "Night Ferry");
        let reply = first("replies.ndjson");
        assert_eq!(reply["url"], "http://127.0.0.1:8081/demo#W42");
        assert_eq!(reply["image"], "http://127.0.0.1:8081/demo/pictures/W42");
    }
}
