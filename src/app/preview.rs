//! Puts together what shows mails before anybody gets them.

use std::sync::Arc;

use crate::clock::{Ids, SystemClock};
use crate::config::Config;
use crate::domain::BrandName;
use crate::engine::delivery::brands::{headers, site};
use crate::engine::delivery::mailer::mailer;
use crate::operate::open::{Access, NoStore, open_store};
use crate::operate::preview::Preview;
use crate::operate::send_test::SendTest;
use crate::store::{Store, Suppressions};

/// Makes mails and pages as this configuration says; needs no store.
pub fn preview(config: &Config) -> Preview {
    Preview {
        site: site(config),
        templates: config.mail.templates.clone(),
        policies: Arc::new(config.policies.clone()),
        caps: config.digest.caps,
        schedule: config.digest.schedule,
    }
}

/// Sends test mails by the configured mailer. Where nothing was ever brought in, no address is
/// suppressed.
pub async fn send_test(config: &Config, brand: Option<&BrandName>) -> anyhow::Result<SendTest> {
    let mailer = mailer(config)?;
    let suppressions = match open_store(config, Access::Look).await {
        Ok(store) => Some(suppressions(store)),
        Err(error) if error.is::<NoStore>() => None,
        Err(error) => return Err(error),
    };
    Ok(SendTest {
        mailer,
        headers: headers(config, brand),
        suppressions,
        clock: Arc::new(SystemClock),
        ids: Arc::new(Ids::random()),
    })
}

fn suppressions(store: Arc<dyn Store>) -> Arc<dyn Suppressions> {
    store
}
