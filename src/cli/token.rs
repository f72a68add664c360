//! `tidings token`: prints a user token for testing.
//!
//! The token is signed with the configured secret, as an application would do it, and has no
//! privileges of its own.

use chrono::TimeDelta;
use clap::Args as Arguments;

use super::session::{Exit, Refusal, Session, phrases};
use crate::clock::{Clock as _, SystemClock};
use crate::domain::UserId;
use crate::engine::access::tokens::UserTokens;

/// Print a user token, for testing
///
/// It gives access to that user's own feed and preferences over HTTP, and to nothing else. It is
/// signed with the first HS256 key of the configuration (tokens.secret, tokens.keys). For an EdDSA
/// key, your application must sign the token, because it has the private key.
#[derive(Debug, Arguments)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The user's id
    user: UserId,
    /// Lifetime in hours, 1 to 24
    #[arg(long, default_value_t = 1)]
    hours: u32,
}

const AFTER_HELP: &str = r#"Example:
  curl -H "Authorization: Bearer $(tidings token mara)" http://127.0.0.1:8080/v1/users/mara/feed"#;

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let config = session.load()?;
        let tokens = UserTokens::new(&config.tokens.audience, config.tokens.keys);
        let (now, lifetime) = (SystemClock.now(), TimeDelta::hours(self.hours.into()));
        let Some(token) = tokens.issue(&self.user, now, lifetime)? else {
            let what = "no HS256 key is configured to sign a token with";
            let next = "tokens.secret in tidings.toml, or TIDINGS_TOKENS_SECRET: the output of \
                        openssl rand -hex 32";
            return Err(Refusal::new(what, next).into());
        };
        let screen = &mut *session.screen;
        screen.line(token.expose())?;
        let (user, until) = (&self.user, phrases::minute(now + lifetime));
        screen.note(format!(
            "gives access to the feed and preferences of {user:?} until {until} UTC"
        ))?;
        Ok(Exit::Done)
    }
}
