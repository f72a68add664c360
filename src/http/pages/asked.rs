//! The language and the brand of an answer.
//!
//! The user's locale comes first, as soon as the user is known. Otherwise the browser's preferred
//! available language is used. The brand is that of the email whose link was opened.

use actix_web::HttpRequest;
use actix_web::http::header::ACCEPT_LANGUAGE;

use crate::app::App;
use crate::domain::{BrandName, User};
use crate::engine::access::links::Opened;
use crate::render::Pages;

#[derive(Debug, Default)]
pub(super) struct Asked {
    locale: Option<String>,
    /// The brand of the email whose link was opened.
    brand: Option<BrandName>,
}

impl Asked {
    /// Selects the language from the browser's headers.
    pub(super) fn of(req: &HttpRequest, app: &App) -> Self {
        let header = req.headers().get(ACCEPT_LANGUAGE);
        let header = header.and_then(|header| header.to_str().ok());
        Self {
            locale: header
                .and_then(|header| app.identities.default.pages.catalogs().accepted(header)),
            brand: None,
        }
    }

    /// Selects the language of the user's record, if it is available.
    pub(super) fn by(&mut self, user: &User, app: &App) {
        let locale = user.locale.as_deref();
        let known = locale.filter(|own| self.pages(app).catalogs().nearest(own).is_some());
        if let Some(locale) = known {
            self.locale = Some(locale.to_owned());
        }
    }

    /// Selects the brand of the link.
    pub(super) fn from(&mut self, opened: &Opened) {
        self.brand.clone_from(&opened.brand);
    }

    /// Returns the pages of the brand.
    pub(super) fn pages<'a>(&self, app: &'a App) -> &'a Pages {
        app.identities.pages_of(self.brand.as_ref())
    }

    pub(super) fn locale(&self) -> Option<&str> {
        self.locale.as_deref()
    }
}
