//! The provider account of each brand, and the brand of each call.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::gate::{Account, Pacer};
use crate::domain::BrandName;
use crate::email::Mailer;

/// Where mails of a brand go.
#[derive(Clone)]
pub struct Outlet {
    /// Sends them under the brand's address.
    pub mailer: Arc<dyn Mailer>,
    /// How the references of its calls begin.
    pub account_prefix: String,
    /// The account, which brands may share.
    pub account: Account,
    /// What holds the calls of the account back.
    pub pacer: Arc<Pacer>,
}

/// For which brand a call of this reference was made, if it was for one that there is.
pub fn brand_of_call<'a>(
    outlets: &'a BTreeMap<BrandName, Outlet>,
    call: &str,
) -> Option<&'a BrandName> {
    let mut outlets = outlets.iter();
    let made = outlets.find(|(_, outlet)| call.starts_with(&outlet.account_prefix));
    made.map(|(brand, _)| brand)
}
