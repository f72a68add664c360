//! What became of a move.

use serde::Serialize;

/// The account of a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Account {
    /// Where everything comes from, without secrets.
    pub from: String,
    /// Where it goes, without secrets.
    pub to: String,
    /// How the move ended.
    pub outcome: MoveOutcome,
    /// Kind by kind, then day by day; as far as it was counted or compared.
    pub parts: Vec<Part>,
    /// Records that could not be read or written, each with the reason; the first 100.
    pub unmoved: Vec<String>,
    /// How many of them there are.
    pub unmoved_count: u64,
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveOutcome {
    /// Nothing was changed: the parts say what there is to move.
    Counted,
    /// It was asked to end; started again it goes on.
    Stopped,
    /// All was copied, and some of it is not the same.
    Differs,
    /// All was copied and is the same.
    Moved,
    /// An earlier run had moved it.
    Known,
}

/// Records of one kind, or the stacks of a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// `users` and so on, or a day such as `20140422`.
    pub name: String,
    /// How many records the source holds.
    pub records: u64,
    /// How many the target holds; nothing where they were only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<u64>,
    /// Whether they are the same in both, by a checksum of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same: Option<bool>,
}
