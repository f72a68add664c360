//! Which language a request is answered in, and with whose pages.
//!
//! The rule: that of the person's record, as soon as it is known; where it says none, or nobody is
//! known, the one that the browser wants most of those there are. The pages are those of the brand
//! whose mail the link was in, whatever became of the person since.

use actix_web::HttpRequest;
use actix_web::http::header::ACCEPT_LANGUAGE;

use crate::app::App;
use crate::domain::{BrandName, User};
use crate::render::Pages;
use crate::services::links::Opened;

/// The language that was asked for, and whose pages.
#[derive(Debug, Default)]
pub(super) struct Asked {
    locale: Option<String>,
    /// Of which brand the mail was whose link was opened.
    brand: Option<BrandName>,
}

impl Asked {
    /// By the browser.
    pub(super) fn of(req: &HttpRequest, app: &App) -> Self {
        let header = req.headers().get(ACCEPT_LANGUAGE);
        let header = header.and_then(|header| header.to_str().ok());
        Self {
            locale: header.and_then(|header| app.pages().catalogs().accepted(header)),
            brand: None,
        }
    }

    /// By whoever it is, if their record says so and we speak it.
    pub(super) fn by(&mut self, user: &User, app: &App) {
        let locale = user.locale.as_deref();
        let known = locale.filter(|own| self.pages(app).catalogs().nearest(own).is_some());
        if let Some(locale) = known {
            self.locale = Some(locale.to_owned());
        }
    }

    /// From a mail of this brand.
    pub(super) fn from(&mut self, opened: &Opened) {
        self.brand.clone_from(&opened.brand);
    }

    /// The pages to answer with.
    pub(super) fn pages<'a>(&self, app: &'a App) -> &'a Pages {
        app.pages_of(self.brand.as_ref())
    }

    pub(super) fn locale(&self) -> Option<&str> {
        self.locale.as_deref()
    }
}
