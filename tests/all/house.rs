//! Checks the architecture rules that the compiler does not: imports between modules, and the form
//! of files.
//!
//! The rules come from `CONTRIBUTING.md` and `docs/architecture.md`. A failing test lists all
//! violations at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Each top-level module, with the modules that it may import. Imports point down.
const LAYERS: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("mutex", &[]),
    ("clock", &["mutex"]),
    ("ids", &["domain"]),
    ("private", &[]),
    // From `email`, only the settings of mailers, and the table of providers with their options.
    ("config", &["domain", "email"]),
    ("store", &["domain", "mutex", "private"]),
    ("metrics", &["store"]),
    ("context", &["domain", "clock", "ids", "config", "store", "metrics"]),
    ("email", &["domain", "mutex", "private"]),
    ("render", &["domain"]),
    ("wire", &["domain", "store"]),
    (
        "engine",
        &[
            "domain", "mutex", "clock", "private", "config", "store", "context", "email",
            "metrics", "render", "wire",
        ],
    ),
    (
        "operate",
        &[
            "domain", "mutex", "clock", "ids", "private", "config", "store", "context", "email",
            "metrics", "render", "wire", "engine",
        ],
    ),
    (
        "app",
        &[
            "domain", "clock", "ids", "config", "store", "context", "email", "metrics", "render",
            "wire", "engine", "operate",
        ],
    ),
    // Acts as an application, so it does not depend on the API or the command line.
    ("demo", &["domain", "mutex", "clock", "private", "config", "email", "wire", "engine", "app"]),
    (
        "http",
        &[
            "domain", "mutex", "clock", "metrics", "render", "wire", "engine", "operate", "app",
            "demo",
        ],
    ),
    (
        "cli",
        &[
            "domain", "mutex", "clock", "ids", "private", "config", "store", "email", "render",
            "wire", "engine", "operate", "app", "demo", "http",
        ],
    ),
    ("main", &["cli"]),
    ("lib", &[]),
];

/// The maximum number of folders in `src/engine`.
const ENGINE_FOLDERS: usize = 18;

/// The maximum number of fields outside `Context` that hold an `Arc<dyn …>`.
const SHARED_FIELDS: usize = 14;

/// Libraries with the only modules that may import them, so that a library is easy to replace.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("actix_cors", &["http/api/callers"]),
    ("actix_web", &["http"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("comfy_table", &["cli"]),
    ("governor", &["engine/delivery/throttle", "http/api/rate_limit"]),
    ("hickory_resolver", &["operate/dns_and_web"]),
    ("indicatif", &["cli"]),
    ("lettre", &["email"]),
    ("minijinja", &["render"]),
    ("moka", &["email/hooks", "engine/feed/cache"]),
    ("mongodb", &["store/mongo"]),
    ("prometheus_client", &["metrics"]),
    ("reqwest", &["email", "operate/dns_and_web"]),
    ("rusqlite", &["store/sqlite"]),
    ("rustix", &["operate/machine"]),
    ("sd_notify", &["cli/systemd_notify"]),
];

/// Files and folders that may serialize values to JSON or BSON. `wire` defines all JSON output;
/// the others write for a store, a file, a template or a provider.
const SERIALIZING: &[&str] = &[
    "src/domain",
    "src/email",
    "src/render",
    "src/store",
    "src/wire",
    // Prints values of `wire`.
    "src/cli/screen.rs",
    // The last line of an export, which `restore --json` repeats.
    "src/engine/archive/file.rs",
    // Notes that all processes share.
    "src/engine/worker.rs",
    "src/engine/delivery/throttle/notes.rs",
    // Claims, as an application would sign them.
    "src/engine/access/token",
];

/// Files and folders that may show an address in full.
const REVEALING: &[&str] = &[
    "src/email",
    "src/store",
    "src/domain/address.rs",
    // Encrypts the address in a link for its user.
    "src/engine/access/links.rs",
    // An export for the user with this address.
    "src/engine/users/personal.rs",
    // Only with `--reveal`.
    "src/cli/suppressions.rs",
];

/// The maximum number of lines of a file without a `//! Long because …` line.
const LONG: usize = 500;

/// The maximum width of a comment line, in columns.
const WIDE: usize = 100;

/// A file: its path relative to the repository, and its text.
pub(crate) struct File {
    pub(crate) place: String,
    pub(crate) text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Reads all files below these folders, sorted by path.
pub(crate) fn files(folders: &[&str]) -> Vec<File> {
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut files = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let place = path.strip_prefix(root()).unwrap().to_str().unwrap();
            if path.is_dir() {
                if !place.ends_with("__pycache__") {
                    open.push(path);
                }
            } else {
                files.push(File::read(place));
            }
        }
    }
    files.sort_by(|a, b| a.place.cmp(&b.place));
    assert!(!files.is_empty());
    files
}

pub(crate) fn rust(folders: &[&str]) -> Vec<File> {
    let mut files = files(folders);
    files.retain(|file| file.place.ends_with(".rs"));
    files
}

impl File {
    /// Reads the file at this path relative to the repository.
    pub(crate) fn read(place: &str) -> Self {
        Self { text: std::fs::read_to_string(root().join(place)).unwrap(), place: place.to_owned() }
    }

    /// Returns the text without comments, so that a name in a comment is not an import. A string
    /// that contains `//` is cut there, too.
    pub(crate) fn code(&self) -> String {
        let before = |line: &str| line.split("//").next().unwrap_or("").to_owned();
        self.text.lines().map(before).collect::<Vec<_>>().join("\n")
    }

    /// Returns the module path, such as `["store", "mongo", "days"]`.
    pub(crate) fn module(&self) -> Vec<&str> {
        let place = self.place.strip_prefix("src/").unwrap();
        let place = place.strip_suffix(".rs").unwrap();
        place.split('/').filter(|part| *part != "mod").collect()
    }
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the first name after each `start`, such as `b` and `c` in `crate::{b::x, c}`.
fn names(code: &str, start: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(start) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| is_word(c) || c == ':') {
            continue;
        }
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(first_names(group)),
            None => names.extend([rest.chars().take_while(|c| is_word(*c)).collect()]),
        }
    }
    names.remove("");
    names
}

/// Returns the names at the top level of a group, up to its closing brace.
fn first_names(group: &str) -> Vec<String> {
    let (mut depth, mut names, mut fresh) = (0, vec![String::new()], true);
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(String::new());
                fresh = true;
            }
            c if depth == 0 && fresh && is_word(c) => names.last_mut().unwrap().push(c),
            c if c.is_whitespace() => {}
            _ => fresh = false,
        }
    }
    names
}

/// Returns the top-level modules that a file uses.
fn used_modules(file: &File) -> BTreeSet<String> {
    let code = file.code();
    let up = "super::".repeat(file.module().len());
    let mut used_modules = names(&code, "crate::");
    used_modules.extend(names(&code, "tidings::"));
    used_modules.extend(names(&code, &up));
    used_modules.retain(|name| LAYERS.iter().any(|(part, _)| part == name));
    used_modules
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn names_finds_paths_in_imports_and_in_code() {
    let code = "use crate::{mail::{A, store}, render}; fn f() { crate::clock::x(); a::crate::b() } use super::super::api::Y;";

    let list = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(" ");

    assert_eq!(list(names(code, "crate::")), "clock mail render");
    assert_eq!(list(names(code, "super::super::")), "api");
}

#[test]
fn imports_point_down() {
    let mut found = Vec::new();
    for file in rust(&["src"]) {
        let part = file.module()[0].to_owned();
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == part) else {
            found.push(format!("{}: {part} has no layer in tests/all/house.rs", file.place));
            continue;
        };
        let forbidden = used_modules(&file).into_iter();
        let forbidden = forbidden.filter(|name| *name != part && !allowed.contains(&name.as_str()));
        found.extend(forbidden.map(|name| format!("{} knows {name}", file.place)));
    }
    assert_none("imports that do not point down", &found);
}

#[test]
fn the_engine_has_few_folders() {
    let entries = std::fs::read_dir(root().join("src/engine")).unwrap();
    let folders = entries.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    let count = folders.count();
    assert!(count <= ENGINE_FOLDERS, "{count} folders in src/engine");
}

#[test]
fn use_cases_share_parts_through_the_context() {
    let mut found = Vec::new();
    for file in rust(&["src"]) {
        let code = file.code();
        let fields = code.lines().filter_map(|line| line.strip_prefix("    "));
        let is_field = |line: &&str| {
            let others = [" ", "let ", "fn ", "pub fn "];
            line.contains(": Arc<dyn ") && !others.iter().any(|other| line.starts_with(other))
        };
        let fields = fields.filter(is_field);
        let fields = fields.map(|line| format!("{}: {line}", file.place));
        if file.place != "src/context.rs" && !file.place.ends_with("_tests.rs") {
            found.extend(fields);
        }
    }
    let what = format!("{} fields that hold an Arc<dyn …>", found.len());
    assert!(found.len() <= SHARED_FIELDS, "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn the_stores_do_not_import_each_other() {
    let mut found = Vec::new();
    for (store, other) in [("mongo", "sqlite"), ("sqlite", "mongo")] {
        for file in rust(&[&format!("src/store/{store}")]) {
            let code = file.code();
            let paths = ["crate::store::", "super::", "super::super::"];
            if paths.iter().any(|path| names(&code, path).contains(other)) {
                found.push(file.place);
            }
        }
    }
    assert_none("stores that know each other", &found);
}

#[test]
fn libraries_are_imported_only_where_allowed() {
    let mut found = Vec::new();
    for file in rust(&["src"]) {
        let module = file.module().join("/");
        let code = file.code();
        for (library, homes) in LIBRARIES {
            let at_home = homes.iter().any(|home| {
                let rest = module.strip_prefix(home);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            if !at_home && !names(&code, &format!("{library}::")).is_empty() {
                found.push(format!("{} knows {library}", file.place));
            }
        }
    }
    assert_none("libraries away from home", &found);
}

/// The profiler of MongoDB omits these commands, so the tests of fresh reads cannot check them.
#[test]
fn collections_are_listed_only_through_find_collections() {
    let mut files = rust(&["src/store/mongo"]);
    files.retain(|file| file.code().contains("list_collections("));
    let found: Vec<String> = files.into_iter().map(|file| file.place).collect();
    assert_none("files that list collections past `Mongo::find_collections`", &found);
}

#[test]
fn every_file_has_a_module_comment() {
    let mut files = rust(&["src", "tests", "benches"]);
    files.retain(|file| !file.text.starts_with("//! "));
    let found: Vec<String> = files.into_iter().map(|file| file.place).collect();
    assert_none("files that do not begin with `//!`", &found);
}

#[test]
fn a_long_file_gives_its_reason() {
    let mut found = Vec::new();
    for file in rust(&["src", "tests"]) {
        let lines = file.text.lines().count();
        if lines > LONG && !file.text.lines().any(|line| line.starts_with("//! Long because ")) {
            found.push(format!("{} has {lines} lines", file.place));
        }
    }
    assert_none("files of more than 500 lines without a `//! Long because …`", &found);
}

#[test]
fn comments_have_at_most_100_columns() {
    let mut found = Vec::new();
    for file in rust(&["benches", "src", "tests"]) {
        for (number, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > WIDE {
                found.push(format!("{}:{}", file.place, number + 1));
            }
        }
    }
    assert_none("comments of more than 100 columns", &found);
}

#[test]
fn addresses_are_revealed_only_where_allowed() {
    let mut files = rust(&["src"]);
    files.retain(|file| {
        let allowed = REVEALING.iter().any(|place| file.place.starts_with(place));
        !allowed && file.code().split(|c: char| !is_word(c)).any(|word| word == "reveal")
    });
    let found: Vec<String> = files.into_iter().map(|file| file.place).collect();
    assert_none("files that reveal addresses", &found);
}

#[test]
fn json_output_is_defined_only_in_wire() {
    let mut files = rust(&["src"]);
    files.retain(|file| {
        let allowed = SERIALIZING.iter().any(|place| file.place.starts_with(place));
        let code = file.code();
        let mut words = code.split(|c: char| !is_word(c) && c != '!');
        !allowed && words.any(|word| matches!(word, "Serialize" | "json!"))
    });
    let found: Vec<String> = files.into_iter().map(|file| file.place).collect();
    assert_none("files that describe JSON outside src/wire", &found);
}

#[test]
fn every_dependency_is_used() {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let tables = manifest.split("\n[").filter_map(|table| table.split_once("dependencies]\n"));
    let named = tables.flat_map(|(_, lines)| lines.lines());
    let named = named.filter_map(|line| line.split_once(" = "));
    let names: BTreeSet<String> = named.map(|(name, _)| name.replace('-', "_")).collect();
    assert!(names.len() > 40, "{names:?}");
    let code: String = rust(&["src", "tests", "benches"]).iter().map(File::code).collect();
    let used: BTreeSet<&str> = code.split(|c: char| !is_word(c)).collect();

    let unused: Vec<String> =
        names.into_iter().filter(|name| !used.contains(name.as_str())).collect();

    assert_none("dependencies that nothing names", &unused);
}

#[test]
fn no_marker_of_unfinished_work_and_no_ignored_test_is_left() {
    // `scripts/test --full` runs these.
    let is_full = |line: &str| line.contains("runs with scripts/test --full");
    // Split, so that this file does not match.
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("#[ig", "nore"),
        concat!("thread::", "sleep"),
    ];
    let mut found = Vec::new();
    for file in files(&["src", "tests", "scripts"]) {
        for (number, line) in file.text.lines().enumerate() {
            if words.iter().any(|word| line.contains(word)) && !is_full(line) {
                found.push(format!("{}:{}: {}", file.place, number + 1, line.trim()));
            }
        }
    }
    assert_none("left for later, or slept through", &found);
}

#[test]
fn no_test_sleeps() {
    let mut files = rust(&["tests"]);
    // A test may define a clock with a `sleep` method, but may not call it.
    let calls = |code: String| code.replace("fn sleep(", "").contains(concat!("sleep", "("));
    files.retain(|file| calls(file.code()));
    let found: Vec<String> = files.into_iter().map(|file| file.place).collect();
    assert_none("tests that sleep", &found);
}
