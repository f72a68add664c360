//! The description of an application collection that holds the objects of a model.

use bson::Document;

/// Where a model's records are, and which of their fields say what. Fields may be paths
/// (`artist.name`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mapping {
    /// The collection's name.
    pub collection: String,
    /// Another database than the store's.
    pub database: Option<String>,
    /// Which field holds the id that events name; `_id` unless given.
    pub id: Option<String>,
    /// What a record must match for people still to be told of it; empty: all do.
    pub filter: Document,
    /// Which field is the title.
    pub title: Option<String>,
    /// A field, or a template such as `https://example.org/artwork/{slug}` whose fields are
    /// percent-encoded.
    pub url: Option<String>,
    /// A field, or a template as for `url`.
    pub image: Option<String>,
    /// Which field is the by-line.
    pub by: Option<String>,
    /// Which field is the object's moment: a date, or text as in RFC 3339.
    pub at: Option<String>,
    /// A GeoJSON point or `[longitude, latitude]`.
    pub place: Option<String>,
}
