//! `tidings feed`: shows a user's feed, newest first.

use clap::Args as Arguments;

use super::exit::Exit;
use super::session::Session;
use super::table::Fit::{Cut, Full};
use super::table::{Column, Table};
use super::words;
use crate::app::Access;
use crate::domain::feed::{Cursor, Kinds, Query};
use crate::domain::inbox::StateFilter;
use crate::domain::{Category, EventType, Position, UserId};
use crate::engine::feed::Request;
use crate::wire::feed::Page;

/// Show a user's feed, newest first
#[derive(Debug, Arguments)]
pub(super) struct Args {
    user: UserId,
    /// Maximum number of items, 1 to 200
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Only items added since an earlier response returned this cursor
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
    /// Only items older than this one, such as 20140422.17, for the next page
    #[arg(long, value_name = "ITEM")]
    before: Option<Position>,
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<EventType>,
    /// Only events of types in this category
    #[arg(long, value_name = "NAME")]
    category: Option<Category>,
    /// Only items in this state: unseen, unread, read, archived or all [default: all but archived]
    #[arg(long, value_name = "STATE")]
    state: Option<StateFilter>,
    /// Number of days to look back, including today [default: the whole window]
    #[arg(long, value_name = "N")]
    days: Option<u32>,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (app, screen) = (session.open(Access::Read).await?, &mut *session.screen);
        let (category, policies) = (self.category.as_ref(), &app.config.policies);
        let request = Request {
            user: self.user.clone(),
            query: Query {
                after: self.after.clone(),
                before: self.before,
                kinds: Kinds::of(self.kind.clone(), category, policies),
                state: self.state.unwrap_or_default(),
                ..Query::default()
            },
            limit: self.limit,
            days: self.days,
            accepts_cached: false,
        };
        let page = app.feeds().page(&request).await?.answer;
        if page.items.is_empty() && app.people().get(&self.user).await?.is_none() {
            let user = &self.user;
            screen.warning(format!("there is no record of {user}: is the id right?"))?;
        }
        if screen.answer(&page)? {
            return Ok(Exit::Done);
        }
        if page.items.is_empty() {
            screen.line(self.nothing(app.config.window_back))?;
        } else {
            screen.table(&table(&page))?;
            let (unseen, unread) = (page.counts.unseen, page.counts.unread);
            let counts = format!("{unseen} unseen, {unread} unread");
            screen.line(counts)?;
            if let Some(before) = page.next {
                screen.line(format!("older: --before {before}"))?;
            }
        }
        Ok(Exit::Done)
    }

    fn nothing(&self, window_back: u32) -> String {
        let user = &self.user;
        let is_page = self.after.is_some() || self.before.is_some();
        if is_page || self.kind.is_some() || self.category.is_some() {
            return format!("nothing of that kind in {user}'s feed");
        }
        let days = self.days.unwrap_or(window_back + 1);
        let days = words::count(u64::from(days), "day", "days");
        format!("nothing in {user}'s feed in the last {days}")
    }
}

fn table(page: &Page) -> Table {
    Table::new(
        &page.items,
        &[
            Column("when (UTC)", Full, |item| words::minute(item.at)),
            Column("title", Cut, |item| item.summary()),
            Column("by", Cut, |item| item.by().unwrap_or_default().to_owned()),
            Column("type", Cut, |item| item.kind.to_string()),
            Column("state", Full, |item| item.state.as_str().to_owned()),
            Column("item", Full, |item| item.id.to_string()),
        ],
    )
}
