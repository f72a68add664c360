//! The objects that events refer to.

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};

use crate::domain::{Json, Object, ObjectKey, Point};

/// An object, as the API returns it by itself and in feeds.
#[derive(Debug, Serialize)]
pub(crate) struct ObjectView<'a> {
    id: &'a ObjectKey,
    notifiable: bool,
    title: Option<&'a str>,
    url: Option<&'a str>,
    image: Option<&'a str>,
    by: Option<&'a str>,
    at: Option<DateTime<Utc>>,
    place: Option<Point>,
    data: &'a Json,
}

impl<'a> From<&'a Object> for ObjectView<'a> {
    fn from(object: &'a Object) -> Self {
        Self {
            id: &object.key,
            notifiable: object.notifiable,
            title: object.title.as_deref(),
            url: object.url.as_deref(),
            image: object.image.as_deref(),
            by: object.by.as_deref(),
            at: object.at,
            place: object.place,
            data: &object.data,
        }
    }
}

/// Serializes a field that contains an object.
pub(super) fn shown<S: Serializer>(
    object: &impl AsRef<Object>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    ObjectView::from(object.as_ref()).serialize(serializer)
}
