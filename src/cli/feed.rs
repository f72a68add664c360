//! `tidings feed`: shows a user's feed, newest first.

use clap::Args as Arguments;

use super::session::Fit::{Cut, Full};
use super::session::{Access, Column, Exit, Session, Table, phrases};
use crate::domain::feed_marks::StateFilter;
use crate::domain::feed_page::{FeedQuery, KindFilter};
use crate::domain::{EventType, Position, UserId};
use crate::engine::feed::FeedRequest;
use crate::wire::feed::{FeedItem, FeedPage};

/// Show a user's feed, newest first
#[derive(Debug, Arguments)]
pub(super) struct Args {
    user: UserId,
    /// Maximum number of items, 1 to 200
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Only items older than this one, such as 20140422.17, for the next page
    #[arg(long, value_name = "ITEM")]
    before: Option<Position>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<EventType>,
    /// Only items in this state: unseen, unread, read, archived or all [default: all but archived]
    #[arg(long, value_name = "STATE")]
    state: Option<StateFilter>,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (app, screen) = (session.open(Access::Read).await?, &mut *session.screen);
        let request = FeedRequest {
            user: self.user.clone(),
            query: FeedQuery {
                before: self.before,
                kinds: KindFilter::selecting(self.kind.clone(), None, &app.config.policies),
                state: self.state.unwrap_or_default(),
                ..FeedQuery::default()
            },
            limit: self.limit,
            accepts_cached: false,
        };
        let page = app.feeds().page(&request).await?.answer;
        if page.items.is_empty() && app.users().user(&self.user).await?.is_none() {
            let user = &self.user;
            screen.warning(format!("there is no record of {user}: is the id right?"))?;
        }
        if screen.answer(&page)? {
            return Ok(Exit::Done);
        }
        if page.items.is_empty() {
            screen.line(format!("no matching items in {}'s feed", self.user))?;
        } else {
            screen.table(&table(&page))?;
            let (unseen, unread) = (page.counts.unseen, page.counts.unread);
            screen.line(format!("{unseen} unseen, {unread} unread"))?;
            if let Some(before) = page.next {
                screen.line(format!("older: --before {before}"))?;
            }
        }
        Ok(Exit::Done)
    }
}

fn table(page: &FeedPage) -> Table {
    let columns: &[Column<&FeedItem>] = &[
        Column("time (UTC)", Full, |item| phrases::minute(item.at)),
        Column("title", Cut, |item| item.summary()),
        Column("by", Cut, |item| item.by().unwrap_or_default().to_owned()),
        Column("type", Cut, |item| item.kind.to_string()),
        Column("state", Full, |item| item.state.as_str().to_owned()),
        Column("item", Full, |item| item.id.to_string()),
    ];
    Table::new(&page.items, columns)
}
