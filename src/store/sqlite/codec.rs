//! Conversions between values and columns: times, ids and JSON.
//!
//! An absent value is `NULL` and `None`. An unreadable one is [`Error::Corrupt`], never a default.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use rusqlite::types::{FromSql, ToSqlOutput, ValueRef};
use rusqlite::{Row, ToSql};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer::Answer;
use crate::domain::{Form, Id, Point, UserId};
use crate::store::Error;

/// Returns the stored form of a time: whole milliseconds.
pub(super) fn millis(time: DateTime<Utc>) -> i64 {
    time.timestamp_millis()
}

/// Serializes a value as JSON.
pub(super) fn to_json(value: &impl Serialize) -> Answer<String> {
    serde_json::to_string(value).map_err(|cause| Error::database("writing JSON", cause).into())
}

/// The id of a stack's row: text or, if an older writer used an ObjectId, its twelve bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowId {
    Text(UserId),
    ObjectId(Id),
}

impl RowId {
    /// Returns the id of the user's row of that form; `None` if the user id cannot be an ObjectId.
    pub(super) fn of(user: &UserId, form: Form) -> Option<Self> {
        match form {
            Form::Text => Some(Self::Text(user.clone())),
            Form::ObjectId => user.legacy().map(Self::ObjectId),
        }
    }

    pub(super) fn into_user(self) -> UserId {
        match self {
            Self::Text(user) => user,
            Self::ObjectId(id) => UserId::stored(id.to_string()),
        }
    }
}

impl ToSql for RowId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Text(user) => user.as_str().to_sql(),
            Self::ObjectId(id) => Ok(ToSqlOutput::from(id.bytes().to_vec())),
        }
    }
}

/// A row whose columns are read by name. Its first column is the id; `what` names it in errors.
pub(super) struct Record<'a> {
    pub what: &'static str,
    pub row: &'a Row<'a>,
}

impl<'a> Record<'a> {
    pub(super) fn get<T: FromSql>(&self, column: &'static str) -> Answer<T> {
        Ok(self.row.get(column)?)
    }

    pub(super) fn text(&self, column: &'static str) -> Answer<&'a str> {
        match self.row.get_ref(column)? {
            ValueRef::Text(text) => {
                std::str::from_utf8(text).or_else(|why| self.corrupt(column, why))
            }
            other => self.corrupt(column, format!("it is {}", other.data_type())),
        }
    }

    /// Parses a text column.
    pub(super) fn parsed<T: FromStr<Err: ToString>>(&self, column: &'static str) -> Answer<T> {
        self.text(column)?
            .parse()
            .or_else(|why: T::Err| self.corrupt(column, why.to_string()))
    }

    /// Deserializes a JSON column.
    pub(super) fn json<T: DeserializeOwned>(&self, column: &'static str) -> Answer<T> {
        serde_json::from_str(self.text(column)?).or_else(|why| self.corrupt(column, why))
    }

    pub(super) fn time(&self, column: &'static str) -> Answer<DateTime<Utc>> {
        let millis = self.get(column)?;
        match DateTime::from_timestamp_millis(millis) {
            Some(time) => Ok(time),
            None => self.corrupt(column, format!("{millis} ms are no time")),
        }
    }

    pub(super) fn maybe_time(&self, column: &'static str) -> Answer<Option<DateTime<Utc>>> {
        match self.row.get_ref(column)? {
            ValueRef::Null => Ok(None),
            _ => self.time(column).map(Some),
        }
    }

    /// Returns the place in the columns `lng` and `lat`, if they are set.
    pub(super) fn place(&self) -> Answer<Option<Point>> {
        match (self.get("lng")?, self.get("lat")?) {
            (Some(lng), Some(lat)) => Point::new(lng, lat)
                .map(Some)
                .or_else(|why| self.corrupt("place", why)),
            _ => Ok(None),
        }
    }

    pub(super) fn corrupt<T>(&self, column: &str, why: impl ToString) -> Answer<T> {
        let id = self.row.get::<_, String>(0).unwrap_or_default();
        Err(Error::corrupt(format!("{column} of {} {id}", self.what), why).into())
    }
}
