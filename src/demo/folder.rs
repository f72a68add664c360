//! The folder of a demo, made anew each time in place of an earlier demo.
//!
//! A folder with other contents is left alone. From an earlier demo, only the files that a demo
//! makes are removed.

use std::borrow::Cow;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;

use crate::private;

/// The files of a new folder.
const FILES: [(&str, &str); 8] = [
    (CONFIG, include_str!("data/tidings.toml")),
    ("people.ndjson", include_str!("data/people.ndjson")),
    ("follows.ndjson", include_str!("data/follows.ndjson")),
    ("artists.ndjson", include_str!("data/artists.ndjson")),
    ("works.ndjson", super::WORKS),
    ("shows.ndjson", super::SHOWS),
    ("replies.ndjson", include_str!("data/replies.ndjson")),
    ("withdrawn.ndjson", include_str!("data/withdrawn.ndjson")),
];
/// The folder's configuration.
pub(crate) const CONFIG: &str = "tidings.toml";
/// The first line of a demo's configuration, which identifies it.
const MARK: &str = "# Made by `tidings demo`.";
/// The files that the story adds.
const MADE: [&str; 5] = [
    "tidings.db",
    "tidings.db-wal",
    "tidings.db-shm",
    "outbox",
    "archive",
];
/// The gallery's address in the data.
const SITE: &str = "https://kiosk.example";
/// The lines of the configuration that a served demo replaces.
const KEY: &str =
    "# A well-known secret is only fit for a demo that listens on this machine.\nkey = \"demo\"\n";

/// The treatment of an earlier demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// The new demo replaces it.
    Replaced,
    /// It stays, and no new demo is made.
    Kept,
}

/// Why no demo is made in a folder.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The folder has other contents.
    #[error("{0} is not empty, and no earlier demo")]
    Foreign(String),
    /// The folder holds an earlier demo, which is to be kept.
    #[error("{0} holds an earlier demo")]
    Kept(String),
}

/// The address and secrets of a served demo.
pub(crate) struct Served {
    /// The address that it listens on.
    pub addr: SocketAddr,
    /// The server key. It is random, because other sites could guess a fixed one.
    pub key: String,
    /// The secret that signs the tokens of its users.
    pub secret: String,
}

impl Served {
    /// The URL for a browser, without a slash at its end.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

/// Makes the folder and changes to it: later relative paths are inside.
pub(crate) fn enter(dir: &Path, earlier: Earlier, served: Option<&Served>) -> anyhow::Result<()> {
    clear(dir, earlier)?;
    let shown = dir.display();
    private::folder(dir).with_context(|| format!("making the folder {shown}"))?;
    std::env::set_current_dir(dir).with_context(|| format!("going to {shown}"))?;
    for (name, text) in FILES {
        let text = match served {
            Some(served) => Cow::Owned(as_served(name, text, served)?),
            None => Cow::Borrowed(text),
        };
        private::write(name, &*text).with_context(|| format!("writing {shown}/{name}"))?;
    }
    Ok(())
}

/// Removes an earlier demo; refuses a folder with other contents.
fn clear(dir: &Path, earlier: Earlier) -> anyhow::Result<()> {
    let shown = || dir.display().to_string();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("looking into {}", shown())),
    };
    if entries.count() == 0 {
        return Ok(());
    }
    if !is_demo(dir) {
        return Err(Refused::Foreign(shown()).into());
    }
    if earlier == Earlier::Kept {
        return Err(Refused::Kept(shown()).into());
    }
    let names = FILES.iter().map(|(name, _)| *name).chain(MADE);
    for path in names.map(|name| dir.join(name)) {
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else if path.exists() {
            fs::remove_file(&path)
        } else {
            Ok(())
        };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

fn is_demo(dir: &Path) -> bool {
    fs::read_to_string(dir.join(CONFIG)).is_ok_and(|text| text.starts_with(MARK))
}

/// Returns a file whose links and pictures are on the demo's page.
fn as_served(name: &str, text: &str, served: &Served) -> anyhow::Result<String> {
    let (url, Served { addr, key, secret }) = (served.url(), served);
    let page = format!("{url}/demo");
    if name == CONFIG {
        let server = format!("key = \"{key}\"\nlisten = \"{addr}\"\npublic_url = \"{url}\"\n");
        let rest = format!(
            "\n[tokens]\nsecret = \"{secret}\"\n\n# Each time that the page sends the digests is a later week's.\n\
             [digest]\nmax_age = \"365d\"\n"
        );
        return Ok(text.replacen(KEY, &server, 1).replace(SITE, &page) + &rest);
    }
    let mut served = String::with_capacity(text.len() * 2);
    for line in text.lines() {
        let mut record: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line)
            .with_context(|| format!("reading {name} of the demo's own data"))?;
        // The address of a reply is a fragment of its work's page.
        let url = record.get("url").and_then(|url| url.as_str());
        let name = url.and_then(|url| url.rsplit('/').next()?.split('#').next());
        if let Some(id) = name.map(str::to_owned) {
            record.insert("url".into(), format!("{page}#{id}").into());
            record.insert("image".into(), format!("{page}/pictures/{id}").into());
        }
        served += &serde_json::Value::Object(record).to_string();
        served.push('\n');
    }
    Ok(served)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_demo_knows_its_own_configuration() {
        assert!(FILES[0].1.starts_with(MARK));
        let config = Config::parse(FILES[0].1).unwrap();
        assert_eq!(config.site.name, "Kiosk");
    }

    #[test]
    fn where_it_is_served_its_links_lead_to_its_page() {
        let served = Served {
            addr: "127.0.0.1:8081".parse().unwrap(),
            key: "k".repeat(48),
            secret: "s".repeat(48),
        };
        let file = |name: &str| {
            let (_, text) = FILES.iter().find(|(known, _)| *known == name).unwrap();
            as_served(name, text, &served).unwrap()
        };

        let config = Config::parse(&file(CONFIG)).unwrap();

        assert_eq!(config.server.listen, served.addr);
        assert_eq!(config.server.public_url, Some(served.url()));
        assert_eq!(config.server.key.as_ref(), Some(&served.key));
        assert_eq!(config.tokens.keys.len(), 1);
        assert!(FILES.iter().all(|(name, _)| !file(name).contains(SITE)));
        let work: serde_json::Value =
            serde_json::from_str(file("works.ndjson").lines().next().unwrap()).unwrap();
        assert_eq!(work["url"], "http://127.0.0.1:8081/demo#W01");
        assert_eq!(work["image"], "http://127.0.0.1:8081/demo/pictures/W01");
        assert_eq!(work["title"], "Night Ferry");
        let reply: serde_json::Value =
            serde_json::from_str(file("replies.ndjson").lines().next().unwrap()).unwrap();
        assert_eq!(reply["url"], "http://127.0.0.1:8081/demo#W42");
        assert_eq!(reply["image"], "http://127.0.0.1:8081/demo/pictures/W42");
    }
}
