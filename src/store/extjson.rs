//! Converts documents to and from canonical Extended JSON v2, one per line, for exporting days.
//!
//! A document survives byte for byte, with its field order and number types. [`to_line`] parses
//! each line again. A document without an exact form (a field `$oid`, a duplicate name, invalid
//! UTF-8) is written as base64: `{"$tidings_bson":"…"}`. The BSON library can parse all this, but
//! writes numbers in relaxed form and some binaries as lists.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use serde::ser::{Error as _, SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

/// Why a document cannot be written or read.
pub(super) type ExtJsonError = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, ExtJsonError>;

/// The start of a line with a document's bytes. No stored document is written like this, because
/// each has an `_id`.
const BYTES_PREFIX: &str = "{\"$tidings_bson\":\"";
const BYTES_SUFFIX: &str = "\"}";

/// Returns the document on one line.
pub(super) fn to_line(document: &RawDocument) -> String {
    let bytes = document.as_bytes();
    match serde_json::to_string(&CanonicalJson(RawBsonRef::Document(document))) {
        Ok(line) if from_line(&line).is_ok_and(|parsed| parsed.as_bytes() == bytes) => line,
        _ => format!("{BYTES_PREFIX}{}{BYTES_SUFFIX}", BASE64_STANDARD.encode(bytes)),
    }
}

/// Parses a line.
pub(super) fn from_line(line: &str) -> Result<RawDocumentBuf> {
    let rest = line.strip_prefix(BYTES_PREFIX);
    if let Some(base64) = rest.and_then(|rest| rest.strip_suffix(BYTES_SUFFIX)) {
        return Ok(RawDocumentBuf::from_bytes(BASE64_STANDARD.decode(base64)?)?);
    }
    let document: Document = serde_json::from_str(line)?;
    Ok(RawDocumentBuf::try_from(&document)?)
}

/// Serializes a value in the form that it has in a document's line.
pub(super) struct CanonicalJson<'a>(pub RawBsonRef<'a>);

impl Serialize for CanonicalJson<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let number = |name: &'static str, digits: String| [(name, digits)];
        match self.0 {
            RawBsonRef::Document(document) => {
                let mut fields = to.serialize_map(None)?;
                for field in document {
                    let (name, value) = field.map_err(S::Error::custom)?;
                    fields.serialize_entry(name.as_str(), &CanonicalJson(value))?;
                }
                fields.end()
            }
            RawBsonRef::Array(values) => {
                let mut list = to.serialize_seq(None)?;
                for value in values {
                    list.serialize_element(&CanonicalJson(value.map_err(S::Error::custom)?))?;
                }
                list.end()
            }
            RawBsonRef::Int32(n) => to.collect_map(number("$numberInt", n.to_string())),
            RawBsonRef::Int64(n) => to.collect_map(number("$numberLong", n.to_string())),
            RawBsonRef::Double(n) => {
                let digits = format!("{n:?}").replace("inf", "Infinity");
                to.collect_map(number("$numberDouble", digits))
            }
            RawBsonRef::JavaScriptCodeWithScope(code) => {
                let text = CanonicalJson(RawBsonRef::String(code.code));
                let scope = CanonicalJson(RawBsonRef::Document(code.scope));
                to.collect_map([("$code", text), ("$scope", scope)])
            }
            RawBsonRef::Binary(binary) => {
                let subtype = format!("{:02x}", u8::from(binary.subtype));
                let base64 = BASE64_STANDARD.encode(binary.bytes);
                let body = BTreeMap::from([("base64", base64), ("subType", subtype)]);
                to.collect_map([("$binary", body)])
            }
            other => {
                let value = Bson::try_from(other).map_err(S::Error::custom)?;
                value.serialize(to)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::spec::BinarySubtype;
    use bson::{RawDocumentBuf, doc};

    use super::*;

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).unwrap()
    }

    #[test]
    fn a_stack_is_written_as_canonical_extended_json() {
        let id = ObjectId::parse_str("5334647b139b2165160000d8").unwrap();
        let stack = doc! {"_id": "al\"ice\n", "events": [
            {"t": "T", "o": "1", "i": id}, {"flushed": id, "n": 2}, 3_i64, 1.0, f64::NEG_INFINITY, bson::DateTime::from_millis(-1),
        ]};
        let expected = concat!(
            r#"{"_id":"al\"ice\n","events":[{"t":"T","o":"1","i":{"$oid":"5334647b139b2165160000d8"}},"#,
            r#"{"flushed":{"$oid":"5334647b139b2165160000d8"},"n":{"$numberInt":"2"}},{"$numberLong":"3"},"#,
            r#"{"$numberDouble":"1.0"},{"$numberDouble":"-Infinity"},{"$date":{"$numberLong":"-1"}}]}"#,
        );
        assert_eq!(to_line(&raw(&stack)), expected);
    }

    #[test]
    fn every_type_round_trips_byte_for_byte() {
        let binary = |subtype| Bson::Binary(bson::Binary { subtype, bytes: vec![0, 250, 7] });
        let uuid = bson::Binary { subtype: BinarySubtype::Uuid, bytes: vec![9; 16] };
        let regex = bson::Regex {
            pattern: "a\"/.*".to_owned().try_into().unwrap(),
            options: "ix".to_owned().try_into().unwrap(),
        };
        let every = doc! {
            "z": 1_i32, "a": 1_i64, "nan": f64::NAN, "zero": -0.0, "tiny": 5e-324, "huge": 1e300, "third": 1.0 / 3.0,
            "generic": binary(BinarySubtype::Generic), "own": binary(BinarySubtype::UserDefined(0x80)), "uuid": uuid,
            "undefined": Bson::Undefined, "null": Bson::Null, "yes": true, "date": bson::DateTime::from_millis(i64::MAX),
            "regex": regex, "code": Bson::JavaScriptCode("f()".into()),
            "scoped": bson::JavaScriptCodeWithScope { code: "g()".into(), scope: doc! {"n": 1_i32} },
            "symbol": Bson::Symbol("s".into()), "stamp": bson::Timestamp { time: u32::MAX, increment: 2 },
            "decimal": "1.50".parse::<bson::Decimal128>().unwrap(), "min": Bson::MinKey, "max": Bson::MaxKey,
            "text": "ünï\u{2028}\u{0}\u{7f}😀", "ke\"y": {"nested": [[], {}, [1_i64]]},
        };
        let before = raw(&every);
        let line = to_line(&before);
        assert!(!line.contains('\n') && !line.starts_with(BYTES_PREFIX), "{line}");
        let after = from_line(&line).unwrap();
        assert_eq!(after.as_bytes(), before.as_bytes(), "{line}");
    }

    #[test]
    fn a_document_without_an_exact_form_is_written_as_bytes() {
        let mut bad_text = raw(&doc! {"_id": "ada", "t": "~~~"}).into_bytes();
        let start = bad_text.len() - 5;
        bad_text[start..start + 3].fill(0xff);
        let mut duplicate_name = RawDocumentBuf::new();
        duplicate_name.append(bson::raw::cstr!("_id"), "ada");
        duplicate_name.append(bson::raw::cstr!("a"), 1);
        duplicate_name.append(bson::raw::cstr!("a"), 2);
        let documents = [
            RawDocumentBuf::from_bytes(bad_text).unwrap(),
            duplicate_name,
            raw(&doc! {"_id": "ada", "events": [{"$oid": "x"}]}),
            raw(&doc! {"_id": "ada", "events": [{"$numberInt": "7"}]}),
            raw(&doc! {"_id": "ada", "events": [{"$date": {"$numberLong": "1"}}]}),
            raw(&doc! {"$tidings_bson": "AAAA"}),
        ];
        for document in documents {
            let line = to_line(&document);
            assert!(line.starts_with(BYTES_PREFIX), "{line}");
            assert_eq!(from_line(&line).unwrap(), document);
        }
        for broken in [r#"{"$tidings_bson":"%"}"#, r#"{"$tidings_bson":"AAAA"}"#] {
            assert!(from_line(broken).is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_and_number_round_trips(text in ".*", key in "[^\0]*", long in proptest::num::i64::ANY, double in proptest::num::f64::ANY) {
            let mut document = doc! {"_id": text, "n": [long, double]};
            document.insert(format!("k{key}"), 1);
            let before = raw(&document);
            let after = from_line(&to_line(&before)).unwrap();
            proptest::prop_assert_eq!(after.as_bytes(), before.as_bytes());
        }
    }
}
