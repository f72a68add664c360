//! Many writes as few commands: raw `update`, `insert` and `delete` commands of a thousand
//! statements, two in flight.
//!
//! The rule: a statement may be sent twice. A command that may or may not have been applied is sent
//! again as a whole, and what its statements met the second time is told with that in mind
//! (`resent`). A command answers `ok` even where statements or the write concern failed: both lists
//! are read. Statements are unordered; who needs the outcome of each asks by its index.

use std::collections::VecDeque;

use bson::{Document, RawDocumentBuf};
use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::super::{Error, Result};
use super::encode::Writer;
use super::patience::Failure;
use super::{MAJORITY, Mongo};

/// More statements a command are no faster.
pub(super) const STATEMENTS: usize = 1_000;
/// Commands end here unless a single statement is longer; beyond 16 MB the server would hang up.
const BYTES: usize = 8 << 20;
/// What a command can hold at most: MongoDB's largest document.
const LIMIT: usize = 16 << 20;
/// One is encoded and on its way while the other is being done.
const IN_FLIGHT: usize = 2;

/// The server's code for a unique key that is taken.
pub(super) const DUPLICATE: i32 = 11000;

/// Which command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// A statement is `{q, u, …}`.
    Update,
    /// A statement is the document.
    Insert,
    /// A statement is `{q, limit}`.
    Delete,
}

impl Verb {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Update => ("update", "updates"),
            Self::Insert => ("insert", "documents"),
            Self::Delete => ("delete", "deletes"),
        }
    }
}

/// Statements for one collection, by their index.
pub(super) type Targets = Vec<(String, Vec<usize>)>;

/// What became of all statements.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// How many documents were matched, inserted or deleted, by the last attempt of each command.
    pub n: u64,
    /// How many of them an upsert created.
    pub created: usize,
    /// Whether any command was sent more than once.
    pub resent: bool,
    /// What the server refused.
    pub refused: Vec<Refused>,
}

/// A statement that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub item: usize,
    /// Whether an earlier attempt at the same statement may have been applied.
    pub resent: bool,
    pub failure: Failure,
}

impl Refused {
    pub fn duplicate(&self) -> bool {
        self.failure.code == Some(DUPLICATE)
    }
}

impl Outcome {
    /// Nothing was refused, or an error that says the first reason.
    pub fn complete(self, doing: &str) -> Result<Self> {
        match self.refused.first() {
            None => Ok(self),
            Some(refused) => Err(Error::database(doing, refused.failure.clone())),
        }
    }

    /// Only duplicates were refused, and these are the statements; or an error.
    pub fn duplicates(self, doing: &str) -> Result<Vec<Refused>> {
        match self.refused.iter().find(|refused| !refused.duplicate()) {
            None => Ok(self.refused),
            Some(refused) => Err(Error::database(doing, refused.failure.clone())),
        }
    }
}

impl Mongo {
    /// Sends statements, each written by `encode` into the open document of its place.
    pub(super) async fn bulk(
        &self,
        doing: &str,
        verb: Verb,
        targets: Targets,
        encode: impl Fn(&mut Writer, usize) + Send,
    ) -> Result<Outcome> {
        let mut commands = Commands {
            verb,
            targets: targets
                .into_iter()
                .map(|(name, items)| (name, items, 0))
                .collect(),
            encode,
        };
        let mut outcome = Outcome::default();
        let mut flying = FuturesUnordered::new();
        loop {
            while flying.len() < IN_FLIGHT
                && let Some(command) = commands.next().transpose()?
            {
                flying.push(self.send(doing, command));
            }
            match flying.next().await {
                None => return Ok(outcome),
                Some(part) => {
                    let part = part?;
                    outcome.n += part.n;
                    outcome.created += part.created;
                    outcome.resent |= part.resent;
                    outcome.refused.extend(part.refused);
                }
            }
        }
    }

    async fn send(&self, doing: &str, command: Command) -> Result<Outcome> {
        let mut attempts = 0;
        let answer = self.patiently(doing, || {
            attempts += 1;
            let run = self.0.db.run_raw_command(command.body.clone());
            async move { Answer::read(&run.await?) }
        });
        let answer = answer.await?;
        let resent = attempts > 1;
        let refused = answer.refused.into_iter().map(|(index, failure)| Refused {
            item: command.items[index],
            resent,
            failure,
        });
        Ok(Outcome {
            n: answer.n,
            created: answer.created,
            resent,
            refused: refused.collect(),
        })
    }
}

/// What a command answered, by the index of its statements.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    n: u64,
    created: usize,
    refused: Vec<(usize, Failure)>,
}

impl Answer {
    /// A failure that passes is one of the whole command.
    fn read(reply: &Document) -> std::result::Result<Self, Failure> {
        let failure = |document: &Document| {
            let code = document.get_i32("code").unwrap_or_default();
            Failure::answered(code, document.get_str("errmsg").unwrap_or_default())
        };
        let mut refused = Vec::new();
        let errors = reply.get_array("writeErrors").into_iter().flatten();
        for error in errors.filter_map(|error| error.as_document()) {
            let failure = failure(error);
            if failure.passing {
                return Err(failure);
            }
            let index = error.get_i32("index").unwrap_or_default();
            refused.push((index as usize, failure));
        }
        if let Ok(error) = reply.get_document("writeConcernError") {
            return Err(failure(error));
        }
        let n = reply.get_i32("n").unwrap_or_default();
        Ok(Self {
            n: n as u64,
            created: reply.get_array("upserted").map_or(0, Vec::len),
            refused,
        })
    }
}

struct Command {
    body: RawDocumentBuf,
    /// Which item each statement is of.
    items: Vec<usize>,
}

/// Encodes commands one by one, when they are needed.
struct Commands<F> {
    verb: Verb,
    /// Collections, their items, and how many of these are done.
    targets: VecDeque<(String, Vec<usize>, usize)>,
    encode: F,
}

impl<F: Fn(&mut Writer, usize)> Commands<F> {
    fn next(&mut self) -> Option<Result<Command>> {
        while let Some((_, items, done)) = self.targets.front()
            && *done == items.len()
        {
            self.targets.pop_front();
        }
        let (collection, all, done) = self.targets.front_mut()?;
        let (name, array) = self.verb.names();
        let mut writer = Writer::new();
        writer.text(name, collection);
        writer.flag("ordered", false);
        writer.document("writeConcern");
        writer.text("w", "majority");
        writer.flag("j", true);
        writer.int("wtimeout", MAJORITY.as_millis() as i32);
        writer.close();
        writer.array(array);
        let mut items = Vec::new();
        for item in all[*done..].iter().copied().take(STATEMENTS) {
            let before = writer.len();
            writer.document(items.len());
            (self.encode)(&mut writer, item);
            writer.close();
            if writer.len() > BYTES && !items.is_empty() {
                writer.take_back_to(before);
                break;
            }
            items.push(item);
        }
        *done += items.len();
        if writer.len() > LIMIT {
            let what = format!("a document for {collection} is larger than MongoDB's 16 MB");
            return Some(Err(Error::Unsupported(what)));
        }
        let body = writer.finish();
        Some(Ok(Command { body, items }))
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn commands(targets: Targets, statement: usize) -> Vec<(Document, Vec<usize>)> {
        let mut commands = Commands {
            verb: Verb::Insert,
            targets: targets
                .into_iter()
                .map(|(name, items)| (name, items, 0))
                .collect(),
            encode: |writer: &mut Writer, item| {
                writer.int("_id", item as i32);
                writer.text("x", &"x".repeat(statement));
            },
        };
        std::iter::from_fn(|| commands.next())
            .map(|command| command.unwrap())
            .map(|command| (Document::try_from(command.body).unwrap(), command.items))
            .collect()
    }

    #[test]
    fn statements_are_split_by_collection_and_by_number() {
        let targets = vec![
            ("a".to_owned(), (0..2_500).collect()),
            ("none".to_owned(), vec![]),
            ("b".to_owned(), vec![7]),
        ];
        let commands = commands(targets, 1);
        let sizes: Vec<_> = commands.iter().map(|(_, items)| items.len()).collect();
        assert_eq!(sizes, [1_000, 1_000, 500, 1]);
        let (last, items) = commands.last().unwrap();
        assert_eq!(items, &[7]);
        assert_eq!(last.get_str("insert").unwrap(), "b");
        assert_eq!(last.get_array("documents").unwrap().len(), 1);
        assert!(!last.get_bool("ordered").unwrap());
        assert_eq!(
            last.get_document("writeConcern")
                .unwrap()
                .get_str("w")
                .unwrap(),
            "majority"
        );
    }

    #[test]
    fn statements_are_split_by_size_and_none_is_lost() {
        let targets = vec![("a".to_owned(), (0..20).collect())];
        let commands = commands(targets, 1 << 20);
        let items: Vec<_> = commands
            .iter()
            .flat_map(|(_, items)| items.clone())
            .collect();
        assert_eq!(items, (0..20).collect::<Vec<_>>());
        assert!(commands.len() >= 3);
    }

    #[test]
    fn a_reply_is_read_in_all_its_parts() {
        let ours = |reply: Document| Answer::read(&reply).unwrap();
        let fine = ours(doc! {"ok": 1.0, "n": 3, "upserted": [{"index": 0, "_id": "a"}]});
        assert_eq!((fine.n, fine.created, fine.refused.len()), (3, 1, 0));
        let error = doc! {"index": 4, "code": 11000, "errmsg": "dup"};
        let taken = ours(doc! {"ok": 1.0, "n": 1, "writeErrors": [error]});
        assert_eq!((taken.n, taken.refused[0].0), (1, 4));
        let stepping_down =
            doc! {"ok": 1.0, "n": 1, "writeErrors": [{"index": 4, "code": 10107, "errmsg": ""}]};
        assert!(Answer::read(&stepping_down).unwrap_err().passing);
        let alone = doc! {"ok": 1.0, "n": 1, "writeConcernError": {"code": 64, "errmsg": "waiting timed out"}};
        assert!(Answer::read(&alone).unwrap_err().passing);
        let never = doc! {"ok": 1.0, "n": 1, "writeConcernError": {"code": 100, "errmsg": "not enough members"}};
        assert!(!Answer::read(&never).unwrap_err().passing);
    }
}
