//! The public pages that users open from their emails, without a login or a script.
//!
//! The holder of a link acts for its user, and for no other (P7, P8). GET changes nothing, because
//! email scanners follow every link. POST acts at once without a redirect, because email programs
//! send it by themselves (RFC 8058). No cache keeps a page. Start with [`unsubscribe`].

use crate::http::api::RouteTable;
use crate::http::api::route::routes;

mod page_request;
mod preferences;
mod unsubscribe;

routes! {ROUTES under "":
    "/u/{token}" => {get open: unsubscribe::confirm, post open: unsubscribe::unsubscribe}
    "/u/{token}/preferences" => {get open: preferences::show, post open: preferences::save}
}

/// The routes of all pages.
pub const PAGES: &[RouteTable] = &[ROUTES];
