//! The kinds of records that an export holds beside days.

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal,)*) => {
        /// A kind of record: one collection or table, and one file of an export.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// All kinds, in the order of an export.
            pub const ALL: [Self; 13] = [$(Self::$kind,)*];

            /// The name of the kind, as in file names and JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    /// Users with their choices.
    Users "users",
    /// Who follows what.
    Follows "follows",
    /// Objects, except those in an application's own collections.
    Objects "objects",
    /// What users have seen, read and archived of their feeds.
    Inboxes "inboxes",
    /// Retracted events.
    Retractions "retractions",
    /// Addresses that get no email.
    Suppressions "suppressions",
    /// Recent soft bounces.
    SoftBounces "soft_bounces",
    /// Ids of recent reports from providers.
    Sightings "sightings",
    /// Accepted events, with audiences and details.
    Fanouts "fanouts",
    /// Accumulators, with open batches.
    Accumulators "accumulators",
    /// Batches that have ended.
    Batches "batches",
    /// Deliveries: one for each email.
    Deliveries "deliveries",
    /// Small shared texts, such as the secret that signs links.
    Notes "notes",
}

impl Kind {
    /// The collection or table of the kind.
    pub(in crate::store) fn collection(self) -> &'static str {
        match self {
            Self::Accumulators => "seats",
            other => other.as_str(),
        }
    }
}
