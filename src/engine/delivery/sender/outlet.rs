//! The provider account of each brand, and the brand of each call.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::gate::{Account, Pacer};
use crate::domain::BrandName;
use crate::email::Mailer;

/// The provider account of a brand.
#[derive(Clone)]
pub struct Outlet {
    /// Sends emails from the brand's address.
    pub mailer: Arc<dyn Mailer>,
    /// Prefix of the references of the brand's calls.
    pub account_prefix: String,
    /// The account, which brands may share.
    pub account: Account,
    /// Limits of the calls at the account.
    pub pacer: Arc<Pacer>,
}

/// Returns the brand for which this call was made; `None` if it is the default or not configured.
pub fn brand_of_call<'a>(
    outlets: &'a BTreeMap<BrandName, Outlet>,
    call: &str,
) -> Option<&'a BrandName> {
    let mut outlets = outlets.iter();
    let made = outlets.find(|(_, outlet)| call.starts_with(&outlet.account_prefix));
    made.map(|(brand, _)| brand)
}
