//! Where the story plays: an embedded store, a clock that is turned by hand, and a cron that never
//! misses an hour.

use std::sync::Arc;

use anyhow::ensure;
use chrono::{DateTime, Datelike, Days, TimeDelta, Utc};
use futures::future::BoxFuture;

use crate::app::{Access, App};
use crate::cli::exit::Exit;
use crate::cli::ink::Ink;
use crate::cli::screen::Screen;
use crate::clock::{Clock, Ids, ManualClock};
use crate::config::{Config, Sources};
use crate::demo::{self, Book, PEOPLE, Post, Posted, folder};
use crate::domain::Schedule;
use crate::engine::Silent;
use crate::engine::delivery::mailer::outbox;
use crate::engine::digest::Request;
use crate::operate::open::open_store;
use crate::store::Store;
use crate::wire::digest::Report;

/// Runs a command line of tidings with this app.
pub(in crate::cli) type Run =
    for<'a> fn(Vec<String>, &'a App, &'a mut Screen) -> BoxFuture<'a, anyhow::Result<Exit>>;

pub(super) struct Stage<'a> {
    pub screen: &'a mut Screen,
    run: Run,
    app: App,
    clock: Arc<ManualClock>,
    post: Arc<Post>,
    /// Midnight of the Monday on which the story's third week begins: the latest that lies before
    /// today.
    monday: DateTime<Utc>,
    /// The moment it ends.
    now: DateTime<Utc>,
}

/// How far commands and their answers stand in.
const INDENT: &str = "    ";

impl<'a> Stage<'a> {
    pub(super) async fn open(
        screen: &'a mut Screen,
        run: Run,
        now: DateTime<Utc>,
    ) -> anyhow::Result<Self> {
        // The demo is its own folder's: what the environment says is for the reader's own tidings.
        let config = Config::load(&Sources {
            file: Some(folder::CONFIG.into()),
            ..Sources::default()
        })?;
        let today = now.date_naive();
        let since = match today.weekday().num_days_from_monday() {
            0 => 7,
            days => days,
        };
        let monday = today
            .checked_sub_days(Days::new(u64::from(since)))
            .unwrap_or(today)
            .and_time(chrono::NaiveTime::MIN)
            .and_utc();
        screen.without_bars();
        let clock = Arc::new(ManualClock::at(monday - TimeDelta::days(13)));
        let post = Arc::new(Post {
            outbox: outbox(&config),
            book: Arc::new(Book::default()),
        });
        let store = open_store(&config, Access::Create).await?;
        let ids = Arc::new(Ids::counting(1));
        let app = App::assemble(config, store, post.clone(), clock.clone(), ids)?;
        Ok(Self {
            screen,
            run,
            app,
            clock,
            post,
            monday,
            now,
        })
    }

    /// The address of a person's picture, if the demo is served.
    pub(super) fn portrait(&self, id: &str) -> Option<String> {
        let url = self.app.config.server.public_url.as_ref()?;
        Some(format!("{url}{}", demo::picture_path(id)))
    }

    /// What goes on once the story is told.
    pub(super) fn leave(self) -> (Config, Arc<dyn Store>, Arc<Post>) {
        (
            Config::clone(&self.app.config),
            self.app.context.store.clone(),
            self.post,
        )
    }

    /// A chapter begins.
    pub(super) fn chapter(&mut self, number: u32, title: &str) -> anyhow::Result<()> {
        self.screen.line("")?;
        let number = self.screen.ink(Ink::Faint, number);
        let title = self.screen.ink(Ink::Strong, title);
        Ok(self.screen.line(format!("{number}  {title}"))?)
    }

    /// A sentence or two of the story, a line each.
    pub(super) fn say(&mut self, lines: &[&str]) -> anyhow::Result<()> {
        for line in lines {
            let indent = if line.is_empty() { "" } else { "   " };
            self.screen.line(format!("{indent}{line}"))?;
        }
        Ok(())
    }

    /// Shows a command, runs it as if it had been typed, and shows what it answers.
    pub(super) async fn type_in(&mut self, command: &str) -> anyhow::Result<()> {
        let prompt = self.screen.ink(Ink::Faint, "$");
        let typed = self.screen.ink(Ink::Accent, command);
        self.screen.line(format!("   {prompt} {typed}"))?;
        let indent = self.screen.indent(INDENT.to_owned() + " ");
        let ended = self.run(command).await;
        self.screen.indent(indent);
        ended
    }

    /// Runs a command that need not be seen.
    pub(super) async fn quietly(&mut self, command: &str) -> anyhow::Result<()> {
        let mut nowhere = Screen::nowhere();
        std::mem::swap(self.screen, &mut nowhere);
        let ended = self.run(command).await;
        std::mem::swap(self.screen, &mut nowhere);
        ended
    }

    async fn run(&mut self, command: &str) -> anyhow::Result<()> {
        let exit = (self.run)(words(command), &self.app, self.screen).await?;
        ensure!(exit == Exit::Done, "{command} ended with {exit:?}");
        Ok(())
    }

    /// Lets time pass until so many days after the story's Monday, at this hour, UTC. Meanwhile
    /// cron runs `tidings digest` every hour; the hours at which nobody's digest falls due are
    /// passed over.
    pub(super) async fn until(&mut self, day: i64, hour: i64) -> anyhow::Result<()> {
        self.pass_until(self.monday + TimeDelta::days(day) + TimeDelta::hours(hour))
            .await
    }

    /// Lets so many minutes pass.
    pub(super) async fn wait(&mut self, minutes: i64) -> anyhow::Result<()> {
        let target = self.clock.now() + TimeDelta::minutes(minutes);
        self.pass_until(target).await
    }

    /// Lets time pass until the story ends. No digest is sent meanwhile: that is left to the
    /// reader.
    pub(super) fn until_now(&mut self) {
        self.clock.set(self.now);
    }

    async fn pass_until(&mut self, target: DateTime<Utc>) -> anyhow::Result<()> {
        let schedules = self.schedules().await?;
        loop {
            let now = self.clock.now();
            let due = schedules
                .iter()
                .filter_map(|schedule| schedule.next_due(now))
                .map(|due| due.at)
                .min();
            let Some(due) = due.filter(|due| *due <= target) else {
                break;
            };
            self.clock.set(due);
            let report: Report = self.app.digests().run(&Request::default(), &Silent).await?;
            ensure!(!report.mails.troubled(), "{:?}", report.mails.reasons);
        }
        self.clock.set(target);
        Ok(())
    }

    async fn schedules(&self) -> anyhow::Result<Vec<Schedule>> {
        let default = self.app.config.digest.schedule;
        let mut schedules = Vec::new();
        for id in PEOPLE {
            let user = self.app.people().get(&id.parse()?).await?;
            schedules.extend(user.map(|user| user.schedule(&default)));
        }
        Ok(schedules)
    }

    /// When a mail came, where its reader lives.
    pub(super) async fn there(&self, mail: &Posted) -> anyhow::Result<Moment> {
        let user = self.app.people().get(&mail.user.parse()?).await?;
        let default = self.app.config.digest.schedule;
        let tz = user.map_or(default.tz, |user| user.schedule(&default).tz);
        let place = tz.name().rsplit('/').next().unwrap_or_default();
        Ok(Moment {
            local: mail.at.with_timezone(&tz).naive_local(),
            place: place.replace('_', " "),
        })
    }

    /// The mails that have left so far.
    pub(super) fn mails(&self) -> Vec<Posted> {
        self.post.book.all()
    }

    /// The mail that this person got last.
    pub(super) fn latest(&self, user: &str) -> Option<Posted> {
        let mut mails = self.post.book.all().into_iter().rev();
        mails.find(|mail| mail.user == user)
    }
}

/// A local time and the place it is of.
pub(super) struct Moment {
    pub local: chrono::NaiveDateTime,
    pub place: String,
}

/// A command line's words; quotes hold words together.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in command.split('"').enumerate() {
        match n % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}
