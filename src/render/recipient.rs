//! The recipient of an email, as templates see it.
//!
//! It records whether a template read it. If none did, the email does not depend on the recipient,
//! and users with the same content can share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use minijinja::Value;
use minijinja::value::{Enumerator, Object};

use super::naming::{SHORT, words};
use crate::domain::User;

/// `user` in every template of an email.
#[derive(Debug)]
pub(super) struct Recipient {
    id: String,
    name: Option<String>,
    locale: Option<String>,
    asked: AtomicBool,
}

impl Recipient {
    pub(super) fn of(user: &User) -> Arc<Self> {
        Arc::new(Self {
            id: user.id.to_string(),
            name: user.name.as_deref().and_then(|name| words(name, SHORT)),
            locale: user.locale.clone(),
            asked: AtomicBool::new(false),
        })
    }

    /// Returns whether a template read any field.
    pub(super) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Object for Recipient {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.asked.store(true, Ordering::Relaxed);
        match key.as_str()? {
            "id" => Some(Value::from(&self.id)),
            "name" => Some(Value::from(self.name.clone())),
            "locale" => Some(Value::from(self.locale.clone())),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        self.asked.store(true, Ordering::Relaxed);
        Enumerator::Str(&["id", "name", "locale"])
    }
}
