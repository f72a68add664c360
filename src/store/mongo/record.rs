//! Reads the fields of records, and says which one cannot be read.
//!
//! The rule: what is missing or `null` is absent; what is there and of another type is
//! [`Error::Corrupt`], never a default, unless the caller says so. Times are kept in milliseconds,
//! as MongoDB has them.

use bson::oid::ObjectId as Oid;
use bson::{Bson, Document, doc};
use chrono::{DateTime, Utc};

use crate::domain::{Id, Lease, Point};
use crate::store::{Error, Result};

/// A document, and what to call it in an error.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    what: &'a str,
    fields: &'a Document,
}

impl<'a> Record<'a> {
    pub(super) fn new(what: &'a str, fields: &'a Document) -> Self {
        Self { what, fields }
    }

    /// All fields with their names.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a str, &'a Bson)> + use<'a> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    pub(super) fn corrupt(&self, field: &str, why: impl ToString) -> Error {
        let id = self
            .fields
            .get("_id")
            .map_or(String::new(), |id| format!(" {id}"));
        Error::corrupt(format!("{field} of {}{id}", self.what), why)
    }

    fn get<T>(&self, field: &str, read: impl Fn(&'a Bson) -> Option<T>) -> Result<Option<T>> {
        match self.fields.get(field) {
            None | Some(Bson::Null) => Ok(None),
            Some(value) => match read(value) {
                Some(value) => Ok(Some(value)),
                None => {
                    Err(self.corrupt(field, format!("it is of type {:?}", value.element_type())))
                }
            },
        }
    }

    /// The field must be there.
    pub(super) fn needs<T>(&self, field: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| self.corrupt(field, "it is missing"))
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>> {
        self.get(field, Bson::as_str)
    }

    /// Text that is parsed.
    pub(super) fn parsed<T: std::str::FromStr<Err: ToString>>(
        &self,
        field: &str,
    ) -> Result<Option<T>> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|error: T::Err| self.corrupt(field, error.to_string()))
        };
        self.text(field)?.map(parse).transpose()
    }

    pub(super) fn flag(&self, field: &str) -> Result<Option<bool>> {
        self.get(field, Bson::as_bool)
    }

    pub(super) fn id(&self, field: &str) -> Result<Option<Id>> {
        let id = |value: &Bson| value.as_object_id().map(|id| Id::from_bytes(id.bytes()));
        self.get(field, id)
    }

    pub(super) fn time(&self, field: &str) -> Result<Option<DateTime<Utc>>> {
        self.get(field, |value| {
            DateTime::from_timestamp_millis(value.as_datetime()?.timestamp_millis())
        })
    }

    /// A count, of whichever number type.
    pub(super) fn count(&self, field: &str) -> Result<Option<u64>> {
        self.get(field, |value| match value {
            Bson::Int32(n) => u64::try_from(*n).ok(),
            Bson::Int64(n) => u64::try_from(*n).ok(),
            Bson::Double(n) if *n >= 0.0 && n.fract() == 0.0 => Some(*n as u64),
            _ => None,
        })
    }

    /// A whole number of 64 bits, as only tidings writes them.
    pub(super) fn long(&self, field: &str) -> Result<Option<i64>> {
        self.get(field, Bson::as_i64)
    }

    pub(super) fn count32(&self, field: &str) -> Result<Option<u32>> {
        let narrow = |n| u32::try_from(n).map_err(|error| self.corrupt(field, error));
        self.count(field)?.map(narrow).transpose()
    }

    pub(super) fn number(&self, field: &str) -> Result<Option<f64>> {
        self.get(field, |value| match value {
            Bson::Double(n) => Some(*n),
            Bson::Int32(n) => Some(f64::from(*n)),
            Bson::Int64(n) => Some(*n as f64),
            _ => None,
        })
    }

    pub(super) fn list(&self, field: &str) -> Result<Option<&'a Vec<Bson>>> {
        self.get(field, Bson::as_array)
    }

    /// A list of text.
    pub(super) fn texts<T>(
        &self,
        field: &str,
        of: impl Fn(&'a str) -> T,
    ) -> Result<Option<Vec<T>>> {
        let text = |value: &'a Bson| {
            let text = value.as_str().map(&of);
            text.ok_or_else(|| self.corrupt(field, "it holds something that is no text"))
        };
        self.list(field)?
            .map(|list| list.iter().map(text).collect())
            .transpose()
    }

    pub(super) fn record(&self, field: &str) -> Result<Option<Record<'a>>> {
        let what = self.what;
        self.get(field, |value| {
            let fields = value.as_document()?;
            Some(Record { what, fields })
        })
    }

    /// A list of documents; none where the field is absent.
    pub(super) fn records(&self, field: &str) -> Result<Vec<Record<'a>>> {
        let what = self.what;
        let record = |value: &'a Bson| {
            let fields = value.as_document();
            let fields = fields.ok_or_else(|| self.corrupt(field, "it holds no documents"))?;
            Ok(Record { what, fields })
        };
        self.list(field)?
            .into_iter()
            .flatten()
            .map(record)
            .collect()
    }

    /// A list of ids.
    pub(super) fn ids(&self, field: &str) -> Result<Vec<Id>> {
        let id = |value: &Bson| {
            let id = value.as_object_id();
            let id = id.ok_or_else(|| self.corrupt(field, "it holds something that is no id"))?;
            Ok(Id::from_bytes(id.bytes()))
        };
        self.needs(field, self.list(field)?)?
            .iter()
            .map(id)
            .collect()
    }

    /// A place, as GeoJSON.
    pub(super) fn place(&self, field: &str) -> Result<Option<Point>> {
        let read =
            |value| place(value).ok_or_else(|| self.corrupt(field, "it is no GeoJSON point"));
        self.get(field, Some)?.map(read).transpose()
    }

    /// A lease, if somebody holds it.
    pub(super) fn lease(&self, field: &str) -> Result<Option<Lease>> {
        let Some(lease) = self.record(field)? else {
            return Ok(None);
        };
        let Some(owner) = lease.text("owner")? else {
            return Ok(None);
        };
        let owner = owner.to_owned();
        let until = lease.needs("until", lease.time("until")?)?;
        Ok(Some(Lease { owner, until }))
    }
}

/// A GeoJSON point or a bare `[longitude, latitude]`.
pub(super) fn place(value: &Bson) -> Option<Point> {
    let pair = match value {
        Bson::Array(pair) => pair,
        Bson::Document(point) => point.get_array("coordinates").ok()?,
        _ => return None,
    };
    let number = |value: &Bson| match value {
        Bson::Double(n) => Some(*n),
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        _ => None,
    };
    match &pair[..] {
        [lng, lat] => Point::new(number(lng)?, number(lat)?).ok(),
        _ => None,
    }
}

/// A place as GeoJSON.
pub(super) fn geo_json(point: Point) -> Bson {
    doc! {"type": "Point", "coordinates": [point.lng(), point.lat()]}.into()
}

/// A time, in whole milliseconds.
pub(super) fn date(time: DateTime<Utc>) -> Bson {
    Bson::DateTime(bson::DateTime::from_millis(time.timestamp_millis()))
}

pub(super) fn oid(id: Id) -> Bson {
    Bson::ObjectId(Oid::from_bytes(id.bytes()))
}

/// A lease that nobody holds has ended before time began.
pub(super) fn lease(lease: Option<&Lease>) -> Bson {
    match lease {
        Some(lease) => doc! {"owner": &lease.owner, "until": date(lease.until)}.into(),
        None => doc! {"until": date(DateTime::UNIX_EPOCH)}.into(),
    }
}

/// Puts a field where there is something to put.
pub(super) fn put(document: &mut Document, field: &str, value: Option<impl Into<Bson>>) {
    if let Some(value) = value {
        document.insert(field, value);
    }
}
