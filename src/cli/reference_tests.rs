//! `docs/reference/cli.md` lists every command with all of its options, and no others.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Command, CommandFactory};

use super::Cli;

const REFERENCE: &str = include_str!("../../docs/reference/cli.md");

/// The options of each command, such as `tidings keys create`.
type Options = BTreeMap<String, BTreeSet<String>>;

/// Returns the long options of a command without those of every command.
fn long_options(command: &Command) -> BTreeSet<String> {
    let names = command.get_arguments().filter_map(|arg| arg.get_long());
    names.map(|name| format!("--{name}")).collect()
}

/// Adds the command and all of its subcommands, except those that only group subcommands.
fn collect(command: &Command, path: &str, options: &mut Options) {
    if !command.is_subcommand_required_set() {
        options.insert(path.to_owned(), long_options(command));
    }
    for inner in command.get_subcommands() {
        collect(inner, &format!("{path} {}", inner.get_name()), options);
    }
}

/// Returns the words of a text that look like long options.
fn named_options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '-');
    let options = words.filter(|word| word.starts_with("--") && !word.ends_with('-'));
    options.map(str::to_owned).collect()
}

/// Reads the lines of the first code block. A command may have several.
fn documented(cli: &Command) -> Options {
    let (_, rest) = REFERENCE.split_once("```text\n").unwrap();
    let (block, _) = rest.split_once("\n```\n").unwrap();
    let joined = block.replace("\n        ", " ");
    let mut options = Options::new();
    for line in joined.lines().filter(|line| !line.is_empty()) {
        let (mut command, mut path) = (cli, "tidings".to_owned());
        for word in line.split(' ').skip(1) {
            let Some(inner) = command.find_subcommand(word) else {
                break;
            };
            command = inner;
            path = format!("{path} {word}");
        }
        options.entry(path).or_default().extend(named_options(line));
    }
    options
}

#[test]
fn the_reference_lists_every_command_with_its_options() {
    let cli = Cli::command();
    let mut existing = Options::new();
    collect(&cli, "tidings", &mut existing);

    assert_eq!(documented(&cli), existing);
}

#[test]
fn the_reference_lists_the_options_of_every_command() {
    let (_, section) = REFERENCE.split_once("\n## For every command\n").unwrap();

    assert_eq!(named_options(section), long_options(&Cli::command()));
}
