//! The files of templates, with their built-in texts.
//!
//! A shared part is inserted as text before compilation ([`ExpandedTemplate::of`]), so that macros
//! work across parts and styles can be inlined.

/// A template: its name, and the built-in text, used unless the templates folder has this file.
#[derive(Debug)]
pub(super) struct Template {
    pub name: &'static str,
    pub built_in: &'static str,
}

/// The built-in template with this name.
macro_rules! template {
    ($name:literal) => {
        $crate::render::built_in_templates::Template {
            name: $name,
            built_in: include_str!(concat!("../../templates/", $name)),
        }
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
const MAX_DEPTH: usize = 8;

/// A template with its parts expanded.
pub(super) struct ExpandedTemplate {
    pub text: String,
    /// The name of the file, and the line number in it, of each line.
    lines: Vec<(&'static str, usize)>,
}

impl ExpandedTemplate {
    /// Expands a template; `read` returns the text of a template or part.
    pub(super) fn of<E>(
        template: &Template,
        read: impl Fn(&Template) -> Result<String, E>,
    ) -> Result<Self, E> {
        let mut expanded = Self { text: String::new(), lines: Vec::new() };
        expanded.append(template, &read, MAX_DEPTH)?;
        Ok(expanded)
    }

    fn append<E>(
        &mut self,
        template: &Template,
        read: &impl Fn(&Template) -> Result<String, E>,
        depth: usize,
    ) -> Result<(), E> {
        for (index, line) in read(template)?.split_inclusive('\n').enumerate() {
            match part(line).filter(|_| depth > 0) {
                Some(part) => self.append(part, read, depth - 1)?,
                None => {
                    self.text.push_str(line);
                    // Text after a part starts a new line, even if the part lacks a final line
                    // break.
                    if depth < MAX_DEPTH && !line.ends_with('\n') {
                        self.text.push('\n');
                    }
                    self.lines.push((template.name, index + 1));
                }
            }
        }
        Ok(())
    }

    /// Returns the name of the template or part of each line.
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(name, _)| *name)
    }

    /// Returns the file name and line number of a line. Lines count from 1.
    pub(super) fn origin(&self, line: usize) -> Option<(&str, usize)> {
        self.lines.get(line.checked_sub(1)?).copied()
    }
}

/// Returns the part that a line includes.
fn part(line: &str) -> Option<&'static Template> {
    let tag = line.trim().strip_prefix("{%")?.strip_suffix("%}")?;
    let quoted = tag.trim().strip_prefix("include")?.trim();
    let name = quoted.strip_prefix('"')?.strip_suffix('"')?;
    PARTS.iter().find(|part| part.name == name)
}

/// The templates of one kind of email.
#[derive(Debug)]
pub(super) struct EmailTemplates {
    pub subject: Template,
    pub text: Template,
    pub html: Template,
}

pub(super) static DIGEST: EmailTemplates = EmailTemplates {
    subject: template!("digest/subject.txt"),
    text: template!("digest/body.txt"),
    html: template!("digest/body.html"),
};
pub(super) static BATCH: EmailTemplates = EmailTemplates {
    subject: template!("batch/subject.txt"),
    text: template!("batch/body.txt"),
    html: template!("batch/body.html"),
};

impl EmailTemplates {
    pub(super) fn all(&self) -> [&Template; 3] {
        [&self.subject, &self.text, &self.html]
    }
}

/// All templates of pages, with the parts that they share.
pub(super) static PAGES: [Template; 13] = [
    template!("pages/layout.html"),
    template!("pages/undo.html"),
    template!("pages/coming.html"),
    template!("pages/else.html"),
    template!("pages/whose.html"),
    template!("pages/unsubscribe.html"),
    template!("pages/unsubscribed.html"),
    template!("pages/stop.html"),
    template!("pages/stopped.html"),
    template!("pages/mute.html"),
    template!("pages/muted.html"),
    template!("pages/preferences.html"),
    template!("pages/notice.html"),
];

/// Returns the names of all templates and of the parts that they share.
pub(crate) fn template_names() -> impl Iterator<Item = &'static str> {
    let emails = [&DIGEST, &BATCH].into_iter().flat_map(EmailTemplates::all);
    emails.chain(PARTS).chain(&PAGES).map(|template| template.name)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn an_include_is_replaced_by_its_lines_and_errors_name_the_part() {
        let template = &BATCH.text;
        let read = |template: &Template| -> Result<_, Infallible> {
            Ok(match template.name {
                "batch/body.txt" => "one\n  {%include \"mail/foot.txt\"  %}\nlast".to_owned(),
                "mail/foot.txt" => "two\n{% include \"nowhere\" %}\n".to_owned(),
                other => panic!("{other}"),
            })
        };

        let expanded = ExpandedTemplate::of(template, read).unwrap();

        assert_eq!(expanded.text, "one\ntwo\n{% include \"nowhere\" %}\nlast");
        let origin = |line| expanded.origin(line);
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

        let expanded = ExpandedTemplate::of(&BATCH.text, read).unwrap();

        assert!(expanded.text.ends_with("x\n{% include \"mail/foot.txt\" %}\n"));
    }
}
