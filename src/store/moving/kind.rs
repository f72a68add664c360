//! The kinds of records that are moved.

/// What is kept beside days, a collection or table each, in the order in which it is moved.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// People.
    Users,
    /// What they follow.
    Follows,
    /// What events are about; not what an application keeps in collections of its own.
    Objects,
    /// What people have seen of their feeds.
    Inboxes,
    /// What was taken back.
    Retractions,
    /// Addresses that must not be written to.
    Suppressions,
    /// Mails that bounced softly.
    SoftBounces,
    /// Reports that were taken lately.
    Sightings,
    /// The journal, with audiences and details.
    Fanouts,
    /// Accumulators, with their open batches.
    Accumulators,
    /// Batches that were filed.
    Batches,
    /// The ledger.
    Deliveries,
    /// Small texts, but those that are of the store itself: its schema, and what it is in a move.
    Notes,
}

impl Kind {
    /// All of them, in the order in which they are moved.
    pub const ALL: [Self; 13] = [
        Self::Users,
        Self::Follows,
        Self::Objects,
        Self::Inboxes,
        Self::Retractions,
        Self::Suppressions,
        Self::SoftBounces,
        Self::Sightings,
        Self::Fanouts,
        Self::Accumulators,
        Self::Batches,
        Self::Deliveries,
        Self::Notes,
    ];

    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Follows => "follows",
            Self::Objects => "objects",
            Self::Inboxes => "inboxes",
            Self::Retractions => "retractions",
            Self::Suppressions => "suppressions",
            Self::SoftBounces => "soft_bounces",
            Self::Sightings => "sightings",
            Self::Fanouts => "fanouts",
            Self::Accumulators => "accumulators",
            Self::Batches => "batches",
            Self::Deliveries => "deliveries",
            Self::Notes => "notes",
        }
    }
}
