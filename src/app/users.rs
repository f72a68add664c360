//! Builds the use cases about users, and those that check who calls.

use super::App;
use crate::engine::access::keys::ServerKeys;
use crate::engine::access::tokens::Tokens;
use crate::engine::directory::erasure::Eraser;
use crate::engine::directory::export::Exporter;
use crate::engine::directory::people::PeopleService;
use crate::engine::feedback::FeedbackService;
use crate::engine::feedback::suppressions::SuppressionService;

impl App {
    /// Creates, changes and erases users, and changes their follows.
    pub fn people(&self) -> PeopleService {
        PeopleService {
            context: self.context.clone(),
            brands: self.config.brand_names(),
            schedule: self.config.digest.schedule,
            remembered: self.config.remembered(),
            polls: self.polls.clone(),
            eraser: Eraser {
                context: self.context.clone(),
                batches: self.batches(),
                polls: self.polls.clone(),
            },
        }
    }

    /// Exports all data about a user.
    pub fn exporter(&self) -> Exporter {
        Exporter {
            people: self.people(),
            context: self.context.clone(),
            batches: self.batches(),
        }
    }

    /// Lists and changes the suppressed addresses.
    pub fn suppressions(&self) -> SuppressionService {
        SuppressionService {
            context: self.context.clone(),
        }
    }

    /// Verifies and records the reports of providers.
    pub fn feedback(&self) -> FeedbackService {
        FeedbackService::new(self.people(), self.pinned.clone())
    }

    /// Creates, lists and revokes server keys.
    pub fn keys(&self) -> ServerKeys {
        ServerKeys {
            context: self.context.clone(),
        }
    }

    /// Verifies user tokens.
    pub fn tokens(&self) -> Tokens {
        let tokens = &self.config.tokens;
        Tokens::new(&tokens.audience, tokens.keys.clone())
    }
}
