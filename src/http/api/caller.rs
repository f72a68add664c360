//! The sender of a request: an application or a user.

use chrono::{DateTime, Utc};

use super::problem::{Code, Problem};
use crate::app::App;
use crate::domain::{KeyName, Scope, UserId};
use crate::engine::access::tokens::{Opened, Refused};

/// The authenticated sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// An application with a server key.
    Key {
        /// The name of the key; `None` for the configured key.
        name: Option<KeyName>,
        /// The scope of the key.
        scope: Scope,
    },
    /// A user, with a token that their application signed.
    Person {
        /// The user in the token.
        user: UserId,
        /// When the token expires.
        until: DateTime<Utc>,
        /// When the token was issued.
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

    /// Rejects a token that was issued to an earlier user with the same id.
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
