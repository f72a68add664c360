//! `tidings init`: writes a first configuration.

use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::Context;
use clap::Args as Arguments;

use super::serve::generate_key;
use super::session::{DEFAULT_FILE, Exit, Refusal, Session};
use crate::config::DEFAULTS;
use crate::private;

/// Write a first tidings.toml, with every option explained
///
/// All options are commented out, so later defaults apply, except a new server.key. Use --config to
/// choose another file. An existing file is never changed.
#[derive(Debug, Arguments)]
pub(super) struct Args {}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let config = session.global.config.as_deref();
        let option = config.map_or(String::new(), |file| format!(" --config {}", file.display()));
        let path = config.unwrap_or(Path::new(DEFAULT_FILE));
        create(path, &first_configuration(&generate_key()?))?;
        let file = path.display();
        let steps = [
            format!("wrote {file}, which explains every option"),
            String::new(),
            "Next:".to_owned(),
            format!("  1. edit {file}: at least site.name, mail.provider and mail.from"),
            format!("  2. run tidings doctor{option}, which names what emails still need"),
            format!("  3. run tidings serve{option}: the HTTP API and the worker"),
        ];
        for step in steps {
            session.screen.line(step)?;
        }
        Ok(Exit::Done)
    }
}

/// Creates the file, readable only by its owner because it contains a key.
fn create(file: &Path, text: &str) -> anyhow::Result<()> {
    let name = file.display();
    match private::open_options().create_new(true).open(file) {
        Ok(mut created) => {
            created.write_all(text.as_bytes()).with_context(|| format!("writing {name}"))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let next = "tidings config, which shows what is set; or --config with another file";
            Err(Refusal::new(format!("{name} exists already, and was not changed"), next).into())
        }
        Err(error) => Err(error).with_context(|| format!("creating {name}")),
    }
}

/// Returns the documented defaults, with every option commented out except the server key.
fn first_configuration(key: &str) -> String {
    let mut section = "";
    let mut text = String::new();
    for line in DEFAULTS.lines() {
        match line {
            _ if line.starts_with('[') => section = line,
            "key = \"\"" if section == "[server]" => {
                text += &format!("key = \"{key}\"\n");
                continue;
            }
            "" => {}
            _ if line.starts_with('#') => {}
            _ => text.push('#'),
        }
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_first_configuration_sets_only_the_key() {
        let text = first_configuration("0123456789abcdef0123456789abcdef");
        let is_option = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
        let options: Vec<&str> = text.lines().filter(is_option).collect();

        assert_eq!(options, ["key = \"0123456789abcdef0123456789abcdef\""]);
        let config = Config::parse(&text).unwrap();
        let key = config.server.key.unwrap();
        assert_eq!(key.expose(), "0123456789abcdef0123456789abcdef");
        let uncommented = text.replace("\n#", "\n");
        assert!(uncommented.contains("\nhour = "), "{uncommented}");
    }
}
