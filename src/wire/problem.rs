//! The body of an error, as RFC 9457 problem details.

use serde::Serialize;

/// Why a request failed.
#[derive(Debug, Serialize)]
pub(crate) struct Details<'a> {
    pub(crate) r#type: &'static str,
    pub(crate) title: &'a str,
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) location: Option<&'a str>,
}
