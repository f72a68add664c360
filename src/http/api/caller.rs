//! Who sent a request.

use chrono::{DateTime, Utc};

use super::problem::{Code, Problem};
use crate::app::App;
use crate::domain::{KeyName, Scope, UserId};
use crate::engine::access::tokens::{Opened, Refused};

/// Who sent the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// An application.
    Key {
        /// Its key's name; `None` is the configured key.
        name: Option<KeyName>,
        /// The scope of the key.
        scope: Scope,
    },
    /// A user, by a token that their application signed.
    Person {
        /// The user of the token.
        user: UserId,
        /// When the token ends.
        until: DateTime<Utc>,
        /// When it was issued.
        issued: DateTime<Utc>,
    },
}

impl Caller {
    pub(super) fn of(opened: Opened) -> Self {
        let Opened {
            user,
            until,
            issued,
        } = opened;
        Self::Person {
            user,
            until,
            issued,
        }
    }

    /// Rejects a token that was issued to an earlier user of its id.
    pub(super) async fn check_start(&self, app: &App) -> Result<(), Problem> {
        let Self::Person { user, issued, .. } = self else {
            return Ok(());
        };
        let start = app.starts.of(user).await?;
        if start.is_some_and(|start| start.rejects(*issued)) {
            let why = Refused::EarlierUser.to_string();
            return Err(Problem::new(Code::Unauthorized, why).at("header Authorization"));
        }
        Ok(())
    }
}
