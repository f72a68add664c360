//! The description of an application collection that holds the objects of a model.

use bson::Document;

/// The location of a model's records, and the meaning of their fields. A field may be a path
/// (`artist.name`).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mapping {
    /// The collection's name.
    pub collection: String,
    /// The database, if it is not the store's own.
    pub database: Option<String>,
    /// The field with the id that events refer to; `_id` by default.
    pub id: Option<String>,
    /// The filter that a record must match to be notifiable. An empty filter matches all.
    pub filter: Document,
    /// The title field.
    pub title: Option<String>,
    /// A field, or a template such as `https://example.org/artwork/{slug}`. Values in a template
    /// are percent-encoded.
    pub url: Option<String>,
    /// A field, or a template as for `url`.
    pub image: Option<String>,
    /// The byline field.
    pub by: Option<String>,
    /// The field with the object's date and time: a date, or text in RFC 3339 format.
    pub at: Option<String>,
    /// The field with a GeoJSON point or `[longitude, latitude]`.
    pub place: Option<String>,
}
