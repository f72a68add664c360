//! Files of `src` have no circular dependencies.
//!
//! A file depends on another if it uses a path to an item that the other file defines. Declaring a
//! child module or re-exporting its items is not a dependency.

use std::collections::{BTreeMap, BTreeSet};

use crate::house::{is_word, rust};

/// A path such as `crate::store::Error`, by its segments.
type Path = Vec<String>;

/// What one file defines and imports.
#[derive(Default)]
struct Module {
    file: String,
    /// The code without `use` and `mod` declarations.
    body: String,
    items: BTreeSet<String>,
    /// The path of each imported name.
    imports: BTreeMap<String, Path>,
    globs: Vec<Path>,
    /// The re-exported imports.
    exports: BTreeSet<String>,
}

/// All files by module path.
struct Crate(BTreeMap<Path, Module>);

fn path_of(text: &str) -> Path {
    let segments = text.split("::").map(str::trim);
    segments.filter(|s| !s.is_empty()).map(str::to_owned).collect()
}

/// Returns the paths in a `use` tree, each with the name that it introduces.
fn leaves(tree: &str, prefix: &[String]) -> Vec<(Path, String)> {
    let joined = |text: &str| [prefix, &path_of(text)].concat();
    let Some((head, group)) = tree.split_once('{') else {
        let (path, name) = match tree.split_once(" as ") {
            Some((path, name)) => (joined(path), Some(name.trim().to_owned())),
            None => (joined(tree), None),
        };
        let is_self = path.len() > 1 && path.last().is_some_and(|last| last == "self");
        let path = path[..path.len() - usize::from(is_self)].to_vec();
        let name = name.or_else(|| path.last().cloned());
        return name.map(|name| (path, name)).into_iter().collect();
    };
    let (prefix, mut depth, mut part, mut all) = (joined(head), 0, String::new(), Vec::new());
    let inner = &group[..group.rfind('}').unwrap_or(group.len())];
    for c in inner.chars().chain([',']) {
        match c {
            ',' if depth == 0 => {
                if !part.trim().is_empty() {
                    all.extend(leaves(&part, &prefix));
                }
                part.clear();
            }
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                part.push(c);
            }
        }
    }
    all
}

/// Returns the words of a text, each with the last non-space character before it. A path is one
/// word.
fn paths(code: &str) -> Vec<(char, String)> {
    let (mut all, mut word, mut before, mut last) = (Vec::new(), String::new(), ' ', ' ');
    for c in code.chars().chain([' ']) {
        if is_word(c) || (c == ':' && !word.is_empty()) {
            if word.is_empty() {
                before = last;
            }
            word.push(c);
        } else if !word.is_empty() {
            all.push((before, std::mem::take(&mut word)));
        }
        if !c.is_whitespace() {
            last = c;
        }
    }
    all
}

impl Module {
    fn read(file: &str, code: &str) -> Self {
        let mut module = Self { file: file.to_owned(), ..Self::default() };
        let mut declaration: Option<String> = None;
        for line in code.lines() {
            let text = line.trim_start();
            let (visible, rest) = match text.strip_prefix("pub") {
                Some(rest) => {
                    let rest = rest.trim_start();
                    let scoped = rest.starts_with('(').then(|| rest.split_once(')')).flatten();
                    (true, scoped.map_or(rest, |(_, rest)| rest.trim_start()))
                }
                None => (false, text),
            };
            let begins = declaration.is_none() && rest.starts_with("use ");
            if begins {
                // In an inline module, `super` is the file.
                let is_inside = text.len() < line.len() && rest.starts_with("use super::");
                let start = if is_inside { "self::" } else { "" };
                let skip = if is_inside { "use super::".len() } else { "use ".len() };
                let mark = if visible { "!" } else { " " };
                declaration = Some(format!("{mark}{start}{}", &rest[skip..]));
            } else if let Some(open) = &mut declaration {
                open.push_str(text);
            } else if !(rest.starts_with("mod ") && rest.ends_with(';')) {
                // `pub(in crate::cli)` is not a dependency.
                let scope = line.split_once("pub(in ").and_then(|(_, rest)| rest.split_once(')'));
                module.body.push_str(scope.map_or(line, |(_, rest)| rest));
                module.body.push('\n');
            }
            if declaration.as_ref().is_some_and(|open| open.ends_with(';')) {
                let tree = declaration.take().unwrap_or_default();
                module.import(&tree[1..tree.len() - 1], tree.starts_with('!'));
            }
        }
        const KINDS: [&str; 8] =
            ["fn", "struct", "enum", "trait", "type", "const", "static", "macro_rules"];
        let words = paths(&module.body);
        for pair in words.windows(2) {
            if KINDS.contains(&pair[0].1.as_str()) {
                module.items.insert(pair[1].1.trim_end_matches(':').to_owned());
            }
        }
        module
    }

    fn import(&mut self, tree: &str, is_export: bool) {
        for (path, name) in leaves(tree, &[]) {
            if name == "*" {
                self.globs.push(path[..path.len() - 1].to_vec());
                continue;
            }
            if is_export {
                self.exports.insert(name.clone());
            }
            self.imports.insert(name, path);
        }
    }
}

impl Crate {
    fn read() -> Self {
        let files = rust(&["src"]).into_iter();
        let files = files.filter(|file| !file.place.ends_with("tests.rs"));
        let module = |file: crate::house::File| {
            let path = file.module().into_iter();
            let path = path.filter(|part| *part != "lib").map(str::to_owned).collect();
            let code = file.code();
            let end = code.find("\n#[cfg(test)]\nmod ").or(code.find("\n#[cfg(test)]\n#[path"));
            let end = end.or(code.find("\n#[cfg(all(test")).unwrap_or(code.len());
            (path, Module::read(&file.place, &code[..end]))
        };
        Self(files.map(module).collect())
    }

    /// Returns the module that defines the item of a path, or `None` if another crate does.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        let module = &self.0[from];
        match first.as_str() {
            "crate" | "tidings" => self.walk(&[], rest, depth),
            "self" => self.walk(from, rest, depth),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let up = from.len().checked_sub(ups)?;
                self.walk(&from[..up], &path[ups..], depth)
            }
            _ if self.0.contains_key(&[from, std::slice::from_ref(first)].concat()) => {
                self.walk(from, path, depth)
            }
            _ => match module.imports.get(first) {
                Some(import) if depth < 20 && import[0] != *first => {
                    self.resolve(from, &[import, rest].concat(), depth + 1)
                }
                _ => module.items.contains(first).then(|| from.to_vec()),
            },
        }
    }

    fn walk(&self, from: &[String], path: &[String], depth: usize) -> Option<Path> {
        let Some((first, rest)) = path.split_first() else {
            return Some(from.to_vec());
        };
        let child = [from, std::slice::from_ref(first)].concat();
        if self.0.contains_key(&child) {
            return self.walk(&child, rest, depth);
        }
        let module = &self.0[from];
        if let Some(import) = module.imports.get(first).filter(|_| depth < 20) {
            let found = self.resolve(from, &[import, rest].concat(), depth + 1);
            return found.or_else(|| Some(from.to_vec()));
        }
        let named = |glob: &Path| {
            let found =
                self.resolve(from, &[glob, std::slice::from_ref(first)].concat(), depth + 1)?;
            self.0[&found].items.contains(first).then_some(found)
        };
        let globbed = module.globs.iter().filter(|_| depth < 20).find_map(named);
        Some(globbed.unwrap_or_else(|| from.to_vec()))
    }

    /// Returns the modules that this module depends on.
    fn depends_on(&self, from: &Path) -> BTreeSet<Path> {
        let module = &self.0[from];
        let words = paths(&module.body);
        let used: BTreeSet<&str> = words.iter().flat_map(|(_, word)| word.split("::")).collect();
        let imports = module.imports.iter();
        let imports = imports
            .filter(|(name, _)| !module.exports.contains(*name) || used.contains(name.as_str()));
        let written = words.iter().filter(|(before, word)| *before != '.' && word.contains("::"));
        let written = written.map(|(_, word)| path_of(word));
        let macros = words.iter().map(|(_, word)| vec![word.clone()]);
        let macros = macros.filter(|word| word.len() == 1 && module.imports.contains_key(&word[0]));
        let all = imports.map(|(_, path)| path.clone()).chain(module.globs.iter().cloned());
        let found = all.chain(written).chain(macros);
        let found = found.filter_map(|path| self.resolve(from, &path, 0));
        found.filter(|found| found != from).collect()
    }

    /// Returns the dependencies that are part of a cycle.
    fn cycles(&self) -> Vec<String> {
        let modules = self.0.keys();
        let edges: BTreeMap<Path, BTreeSet<Path>> =
            modules.map(|path| (path.clone(), self.depends_on(path))).collect();
        let reaches = |from: &Path, to: &Path| {
            let (mut open, mut seen) = (vec![from], BTreeSet::from([from]));
            while let Some(path) = open.pop() {
                open.extend(edges[path].iter().filter(|next| seen.insert(next)));
            }
            seen.contains(to)
        };
        let mut cycles = Vec::new();
        for (from, all) in &edges {
            let file = |path: &Path| self.0[path].file.clone();
            let back = all.iter().filter(|to| reaches(to, from));
            let back: Vec<String> = back.map(file).collect();
            if !back.is_empty() {
                cycles.push(format!("{} → {}", file(from), back.join(", ")));
            }
        }
        cycles
    }
}

#[test]
fn a_cycle_of_files_is_found() {
    let module = |path: &str, code: &str| (path_of(path), Module::read(path, code));
    let root = module("", "mod a;\nmod b;\nmod c;\n");
    let hub = module("a", "mod x;\npub use x::One;\nfn f(two: crate::b::Two) {}\n");
    let child = module("a::x", "pub struct One;\n");
    let cycles_with = |b: &str, c: &str| {
        let modules = [&root, &hub, &child].map(|(path, module)| {
            let copy = format!("use {}::nothing;\n{}", "std", module.body);
            (
                path.clone(),
                Module {
                    exports: module.exports.clone(),
                    imports: module.imports.clone(),
                    ..Module::read(&module.file, &copy)
                },
            )
        });
        let more = [module("b", b), module("c", c)];
        Crate(modules.into_iter().chain(more).collect()).cycles()
    };

    assert_eq!(cycles_with("pub struct Two(u8);", "use crate::b::Two;"), [""; 0]);
    let two_and_three = cycles_with(
        "use super::c::{self, Three as T};\npub struct Two(T);",
        "pub struct Three(super::b::Two);",
    );
    assert_eq!(two_and_three, ["b → c", "c → b"]);
    assert_eq!(cycles_with("use crate::a::One;\npub struct Two(One);", ""), [""; 0]);
}

#[test]
fn files_have_no_circular_dependencies() {
    let cycles = Crate::read().cycles();
    assert!(cycles.is_empty(), "circles of files:\n  {}", cycles.join("\n  "));
}
