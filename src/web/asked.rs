//! Which language a request is answered in.
//!
//! The rule: that of the person's record, as soon as it is known; where it says none, or nobody is
//! known, the one that the browser wants most of those there are.

use actix_web::HttpRequest;
use actix_web::http::header::ACCEPT_LANGUAGE;

use crate::app::App;
use crate::domain::User;

/// The language that was asked for.
#[derive(Debug, Default)]
pub(super) struct Asked(Option<String>);

impl Asked {
    /// By the browser.
    pub(super) fn of(req: &HttpRequest, app: &App) -> Self {
        let header = req.headers().get(ACCEPT_LANGUAGE);
        let header = header.and_then(|header| header.to_str().ok());
        Self(header.and_then(|header| app.pages().catalogs().accepted(header)))
    }

    /// By whoever it is, if their record says so and we speak it.
    pub(super) fn by(&mut self, user: &User, app: &App) {
        let locale = user.locale.as_deref();
        let known = locale.filter(|own| app.pages().catalogs().nearest(own).is_some());
        if let Some(locale) = known {
            self.0 = Some(locale.to_owned());
        }
    }

    pub(super) fn locale(&self) -> Option<&str> {
        self.0.as_deref()
    }
}
