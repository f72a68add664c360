//! Documents as canonical Extended JSON (version 2), one a line: how days are exported and
//! restored.
//!
//! The rule: what was exported comes back byte for byte, in the order of its fields and with the
//! types of its numbers. The BSON library reads all of it wherever it deserialises, but writes
//! numbers in the relaxed form and some bytes as a list: so these are written here.

use bson::{Bson, Document, RawBsonRef, RawDocument};

/// A document that cannot be written or read, and why.
pub(super) type Unreadable = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Unreadable>;

/// The document on one line.
pub(super) fn to_line(document: &RawDocument) -> Result<String> {
    let mut line = String::with_capacity(document.as_bytes().len() * 2);
    write_document(&mut line, document)?;
    Ok(line)
}

/// The document of a line.
pub(super) fn from_line(line: &str) -> Result<Document> {
    Ok(serde_json::from_str(line)?)
}

fn write_document(line: &mut String, document: &RawDocument) -> Result<()> {
    line.push('{');
    for (index, element) in document.iter().enumerate() {
        let (key, value) = element?;
        if index > 0 {
            line.push(',');
        }
        write_json(line, key.as_str())?;
        line.push(':');
        write_value(line, value)?;
    }
    line.push('}');
    Ok(())
}

fn write_json(line: &mut String, value: &(impl serde::Serialize + ?Sized)) -> Result<()> {
    line.push_str(&serde_json::to_string(value)?);
    Ok(())
}

/// One value, as it stands in the line of its document.
pub(super) fn write_value(line: &mut String, value: RawBsonRef<'_>) -> Result<()> {
    let wrapped = |name: &str, number: String| format!("{{\"{name}\":\"{number}\"}}");
    match value {
        RawBsonRef::String(text) => write_json(line, text)?,
        RawBsonRef::Document(document) => write_document(line, document)?,
        RawBsonRef::Array(values) => {
            line.push('[');
            for (index, value) in values.into_iter().enumerate() {
                if index > 0 {
                    line.push(',');
                }
                write_value(line, value?)?;
            }
            line.push(']');
        }
        RawBsonRef::Int32(n) => line.push_str(&wrapped("$numberInt", n.to_string())),
        RawBsonRef::Int64(n) => line.push_str(&wrapped("$numberLong", n.to_string())),
        RawBsonRef::Double(n) => {
            let number = match n {
                f64::INFINITY => "Infinity".to_owned(),
                f64::NEG_INFINITY => "-Infinity".to_owned(),
                n => format!("{n:?}"),
            };
            line.push_str(&wrapped("$numberDouble", number));
        }
        RawBsonRef::JavaScriptCodeWithScope(code) => {
            line.push_str("{\"$code\":");
            write_json(line, code.code)?;
            line.push_str(",\"$scope\":");
            write_document(line, code.scope)?;
            line.push('}');
        }
        RawBsonRef::Binary(binary) => {
            let (base64, subtype) = (base64(binary.bytes), u8::from(binary.subtype));
            let body = format!("{{\"base64\":\"{base64}\",\"subType\":\"{subtype:02x}\"}}");
            line.push_str(&format!("{{\"$binary\":{body}}}"));
        }
        other => write_json(line, &Bson::try_from(other)?)?,
    }
    Ok(())
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            let there = digit <= three.len();
            text.push(if there {
                char::from(DIGITS[value as usize])
            } else {
                '='
            });
        }
    }
    text
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
    fn a_stack_is_written_as_the_specification_says() {
        let id = ObjectId::parse_str("5334647b139b2165160000d8").unwrap();
        let stack = doc! {"_id": "al\"ice\n", "events": [
            {"t": "T", "o": "1", "i": id}, {"flushed": id, "n": 2}, 3_i64, 1.0, f64::NEG_INFINITY, bson::DateTime::from_millis(-1),
        ]};
        let expected = concat!(
            r#"{"_id":"al\"ice\n","events":[{"t":"T","o":"1","i":{"$oid":"5334647b139b2165160000d8"}},"#,
            r#"{"flushed":{"$oid":"5334647b139b2165160000d8"},"n":{"$numberInt":"2"}},{"$numberLong":"3"},"#,
            r#"{"$numberDouble":"1.0"},{"$numberDouble":"-Infinity"},{"$date":{"$numberLong":"-1"}}]}"#,
        );
        assert_eq!(to_line(&raw(&stack)).unwrap(), expected);
    }

    #[test]
    fn every_type_comes_back_byte_for_byte() {
        let binary = |subtype| {
            Bson::Binary(bson::Binary {
                subtype,
                bytes: vec![0, 250, 7],
            })
        };
        let uuid = bson::Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![9; 16],
        };
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
        let line = to_line(&before).unwrap();
        assert!(!line.contains('\n'));
        let after = raw(&from_line(&line).unwrap());
        assert_eq!(after.as_bytes(), before.as_bytes(), "{line}");
    }

    #[test]
    fn bytes_are_written_as_the_standard_says() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_and_number_comes_back(text in ".*", key in "[^\0]*", long in proptest::num::i64::ANY, double in proptest::num::f64::ANY) {
            let mut document = doc! {"_id": text, "n": [long, double]};
            document.insert(format!("k{key}"), 1);
            let before = raw(&document);
            let after = raw(&from_line(&to_line(&before).unwrap()).unwrap());
            if double.is_nan() {
                proptest::prop_assert_eq!(after.as_bytes().len(), before.as_bytes().len());
            } else {
                proptest::prop_assert_eq!(after.as_bytes(), before.as_bytes());
            }
        }
    }
}
