//! `tidings token`: prints a user token, for testing.
//!
//! It signs the token with the configured secret, as an application would. It has no privileges of
//! its own.

use chrono::TimeDelta;
use clap::Args as Arguments;

use super::exit::{Exit, Usage};
use super::global::Global;
use super::screen::Screen;
use super::words;
use crate::clock::{Clock as _, SystemClock};
use crate::domain::UserId;
use crate::engine::access::tokens::Tokens;

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
    pub(super) fn run(&self, global: &Global, screen: &mut Screen) -> anyhow::Result<Exit> {
        let config = global.load(Vec::new())?;
        let tokens = Tokens::new(&config.tokens.audience, config.tokens.keys);
        let (now, lasts) = (SystemClock.now(), TimeDelta::hours(self.hours.into()));
        let Some(token) = tokens.make(&self.user, now, lasts)? else {
            let usage = Usage::new("no HS256 key is configured to sign a token with");
            let next = "tokens.secret in tidings.toml, or TIDINGS_TOKENS_SECRET: the output of openssl rand -hex 32";
            return Err(usage.instead(next).into());
        };
        screen.line(token.expose())?;
        let (user, until) = (&self.user, words::minute(now + lasts));
        screen.note(format!("opens what is {user:?}'s own until {until} UTC"))?;
        Ok(Exit::Done)
    }
}
