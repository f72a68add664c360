//! Expands shared parts in templates: the line `{% include "mail/head.html" %}` becomes that part.
//!
//! Parts are inserted as text before compilation, so that macros work across parts and styles can
//! be inlined. Each line keeps its file and line number for error messages. An unknown part is left
//! in place, and the template engine reports it. Start with [`Whole::of`].

use std::borrow::Cow;

/// A template: its name, and the built-in text, used unless the templates folder has this file.
#[derive(Debug, Clone)]
pub(super) struct Template {
    pub name: Cow<'static, str>,
    pub built_in: &'static str,
}

impl Template {
    pub(super) const fn built_in(name: &'static str, text: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            built_in: text,
        }
    }
}

/// The built-in template with this name.
macro_rules! template {
    ($name:literal) => {
        $crate::render::parts::Template::built_in(
            $name,
            include_str!(concat!("../../templates/", $name)),
        )
    };
}

pub(super) use template;

/// The parts that emails share.
pub(super) const PARTS: &[Template] = &[
    template!("mail/head.html"),
    template!("mail/mast.html"),
    template!("mail/one.html"),
    template!("mail/section.html"),
    template!("mail/items.html"),
    template!("mail/item.html"),
    template!("mail/more.html"),
    template!("mail/button.html"),
    template!("mail/said.html"),
    template!("mail/ends.txt"),
    template!("mail/foot.html"),
    template!("mail/items.txt"),
    template!("mail/said.txt"),
    template!("mail/news.txt"),
    template!("mail/more.txt"),
    template!("mail/foot.txt"),
];

/// The greatest include depth. It stops a part that includes itself.
const DEPTH: usize = 8;

/// A template with its parts expanded.
pub(super) struct Whole {
    pub text: String,
    /// The file and line number from which each line came.
    lines: Vec<(Template, usize)>,
}

impl Whole {
    /// Expands a template; `read` returns the text of a template or part.
    pub(super) fn of<E>(
        template: &Template,
        read: impl Fn(&Template) -> Result<String, E>,
    ) -> Result<Self, E> {
        let mut whole = Self {
            text: String::new(),
            lines: Vec::new(),
        };
        whole.put(template, &read, DEPTH)?;
        Ok(whole)
    }

    fn put<E>(
        &mut self,
        template: &Template,
        read: &impl Fn(&Template) -> Result<String, E>,
        depth: usize,
    ) -> Result<(), E> {
        for (index, line) in read(template)?.split_inclusive('\n').enumerate() {
            match part(line).filter(|_| depth > 0) {
                Some(part) => self.put(part, read, depth - 1)?,
                None => {
                    self.text.push_str(line);
                    // Text after a part starts a new line, even if the part lacks a final line
                    // break.
                    if depth < DEPTH && !line.ends_with('\n') {
                        self.text.push('\n');
                    }
                    self.lines.push((template.clone(), index + 1));
                }
            }
        }
        Ok(())
    }

    /// Returns the file and line number from which a line came. Lines count from 1.
    pub(super) fn origin(&self, line: usize) -> Option<&(Template, usize)> {
        self.lines.get(line.checked_sub(1)?)
    }
}

/// Returns the part that a line includes.
fn part(line: &str) -> Option<&'static Template> {
    let tag = line.trim().strip_prefix("{%")?.strip_suffix("%}")?;
    let name = tag.trim().strip_prefix("include")?.trim();
    let name = name.strip_prefix('"')?.strip_suffix('"')?;
    PARTS.iter().find(|part| part.name == name)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn an_include_is_replaced_by_its_lines_and_errors_name_the_part() {
        let template = Template::built_in("batch/body.txt", "");
        let read = |template: &Template| -> Result<_, Infallible> {
            Ok(match &*template.name {
                "batch/body.txt" => "one\n  {%include \"mail/foot.txt\"  %}\nlast".to_owned(),
                "mail/foot.txt" => "two\n{% include \"nowhere\" %}\n".to_owned(),
                other => panic!("{other}"),
            })
        };

        let whole = Whole::of(&template, read).unwrap();

        assert_eq!(whole.text, "one\ntwo\n{% include \"nowhere\" %}\nlast");
        let origin = |line| whole.origin(line).map(|(file, line)| (&*file.name, *line));
        assert_eq!(origin(1), Some(("batch/body.txt", 1)));
        assert_eq!(origin(3), Some(("mail/foot.txt", 2)));
        assert_eq!(origin(4), Some(("batch/body.txt", 3)));
        assert_eq!((origin(0), origin(5)), (None, None));
    }

    #[test]
    fn recursive_includes_end() {
        let read = |_: &Template| -> Result<_, Infallible> {
            Ok("x\n{% include \"mail/foot.txt\" %}\n".to_owned())
        };

        let whole = Whole::of(&Template::built_in("a", ""), read).unwrap();

        assert!(whole.text.ends_with("x\n{% include \"mail/foot.txt\" %}\n"));
    }
}
