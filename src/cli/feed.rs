//! `tidings feed`: shows a user's feed, newest first.

use clap::Args as Arguments;

use super::exit::Exit;
use super::ink::Ink;
use super::screen::Screen;
use super::table::{Column, Table};
use super::words;
use crate::app::App;
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
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let request = Request {
            user: self.user.clone(),
            query: Query {
                after: self.after.clone(),
                before: self.before,
                kinds: Kinds::of(
                    self.kind.clone(),
                    self.category.as_ref(),
                    &app.config.policies,
                ),
                state: self.state.unwrap_or_default(),
                ..Query::default()
            },
            limit: self.limit,
            days: self.days,
            lately: false,
        };
        let page = app.feeds().page(&request).await?.answer;
        if page.items.is_empty() && app.people().get(&self.user).await?.is_none() {
            let user = &self.user;
            screen.warning(format!("there is no record of {user}: is the id right?"))?;
        }
        if self.json {
            screen.json(&page)?;
        } else if page.items.is_empty() {
            screen.line(self.nothing(app.config.window_back))?;
        } else {
            screen.table(&table(&page))?;
            let (unseen, unread) = (page.counts.unseen, page.counts.unread);
            let stands = format!("{unseen} unseen, {unread} unread");
            screen.line(screen.ink(Ink::Faint, stands))?;
            if let Some(before) = page.next {
                let older = format!("older: --before {before}");
                screen.line(screen.ink(Ink::Faint, older))?;
            }
        }
        Ok(Exit::Done)
    }

    fn nothing(&self, window_back: u32) -> String {
        let of_types = self.kind.is_some() || self.category.is_some();
        let narrowed = self.after.is_some() || self.before.is_some() || of_types;
        let user = &self.user;
        match narrowed {
            true => format!("nothing of that kind in {user}'s feed"),
            false => {
                let days = words::count(
                    u64::from(self.days.unwrap_or(window_back + 1)),
                    "day",
                    "days",
                );
                format!("nothing in {user}'s feed in the last {days}")
            }
        }
    }
}

fn table(page: &Page) -> Table {
    let mut table = Table::new([
        Column::new("when (UTC)").ink(Ink::Faint),
        Column::new("title").ink(Ink::Strong).gives_way(),
        Column::new("by").gives_way(),
        Column::new("type").gives_way(),
        Column::new("state").ink(Ink::Faint).spare(),
        Column::new("item").ink(Ink::Faint).spare(),
    ]);
    for item in &page.items {
        table.row([
            words::minute(item.at),
            item.told(),
            item.by().unwrap_or_default().to_owned(),
            item.kind.to_string(),
            item.state.as_str().to_owned(),
            item.id.to_string(),
        ]);
    }
    table
}
