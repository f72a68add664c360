//! Renders emails, and adds the links and headers of their recipients.
//!
//! Start with [`Compose::message`].

use std::sync::Arc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use super::Compose;
use super::renderings::{Contents, Rendering};
use crate::domain::{Delivery, DeliverySource, EmailContent, StopAction, User};
use crate::email::{self, LinkPlaceholder, Message, Placeholders};
use crate::engine::access::links::LinkMaker;
use crate::render;

/// A rendered email, without its recipient.
pub(crate) struct RenderedEmail {
    pub content: email::SharedContent,
    /// Whether it mentions its recipient.
    pub is_personal: bool,
}

impl Compose {
    /// Renders an email, with placeholders for its links if there are public pages. So users with
    /// the same content can share it.
    pub(crate) fn render_email(
        &self,
        user: &User,
        content: &EmailContent,
        occasion: &DeliverySource,
        at: DateTime<Utc>,
    ) -> Result<RenderedEmail, String> {
        let placeholders = Placeholders::new()?;
        let has_pages = self.identity.links.public_url.is_some();
        let placeholder = |link| has_pages.then(|| placeholders.marker(link).to_owned());
        let stop = StopAction::for_email(content, occasion, &self.context.policies);
        let mute = StopAction::for_only_topic(content, occasion, &self.context.policies);
        let rendered = self.identity.renderer.render(&render::EmailInput {
            user,
            content,
            occasion,
            at,
            tz: self.tz_of(user),
            links: render::EmailLinks {
                unsubscribe: stop.as_ref().and_then(|_| placeholder(LinkPlaceholder::Unsubscribe)),
                preferences: placeholder(LinkPlaceholder::Preferences),
                mute: mute.and_then(|_| placeholder(LinkPlaceholder::Mute)),
            },
            stop: stop.as_ref(),
        });
        let rendered = rendered.map_err(|error| format!("{error:#}"))?;
        Ok(RenderedEmail {
            content: email::SharedContent {
                subject: rendered.subject,
                html: placeholders.extract(&rendered.html),
                text: placeholders.extract(&rendered.text),
            },
            is_personal: rendered.is_personal,
        })
    }

    /// Returns the time zone of this user, or else the default one.
    fn tz_of(&self, user: &User) -> Tz {
        user.schedule(&self.context.config.digest.schedule).tz
    }

    /// Returns the email of a row with this content.
    pub(super) fn message(
        &self,
        row: &Delivery,
        user: &User,
        content: EmailContent,
        maker: Option<&LinkMaker<'_>>,
        at: DateTime<Utc>,
        contents: &mut Contents,
    ) -> Result<Message, String> {
        let to = user.reachable_address().map_err(|why| why.as_str().to_owned())?.clone();
        let (occasion, policies) = (&row.source, &self.context.policies);
        // Links are dated by the row, so that every build of it makes the same ones.
        let stop = StopAction::for_email(&content, occasion, policies);
        let mute = StopAction::for_only_topic(&content, occasion, policies);
        let issued =
            user.start.map_or(row.created, |start| start.earliest_valid_issue_time(row.created));
        let personal = maker.map(|maker| {
            let (stop, mute) = (stop.as_ref(), mute.as_ref());
            maker.recipient_links(&row.user, Some(&to), stop, mute, issued)
        });
        let further = self.identity.headers.headers_for(row, &content, policies);
        let locale = self.identity.renderer.locale_of(user);
        let rendering = Rendering {
            digest: (occasion.digest()).map(|(cadence, period)| (cadence, period.to_owned())),
            tz: self.tz_of(user),
            locale: locale.to_owned(),
            content,
        };
        let content = match contents.rendered(&rendering) {
            Some(content) => content,
            None => {
                let written = self
                    .render_email(user, &rendering.content, occasion, at)
                    .map_err(|error| format!("the email cannot be rendered: {error}"))?;
                let content = Arc::new(written.content);
                contents.add(rendering, &content, written.is_personal);
                content
            }
        };
        Ok(Message {
            delivery: row.id.clone(),
            to,
            to_name: user.name.clone(),
            content,
            links: personal,
            extra_headers: further,
            at,
        })
    }
}
