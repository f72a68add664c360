//! A separate store for each test, and common reads from it.
//!
//! It is empty at first and hides its backend. [`super::sqlite`] and [`super::mongo`] create
//! stores.

use std::ops::Deref;
use std::sync::Arc;

use futures::TryStreamExt;
use futures::future::BoxFuture;
use tidings::domain::{Day, DaySet, Entry, Stack, StackId, UserId, UserStacks};
use tidings::store::{ExportPart, RecordKind, RecordPage, Store};

use super::window;

/// The store of one test, with a second handle on the same data, like that of another process.
#[derive(Clone)]
pub struct Fresh {
    store: Arc<dyn Store>,
    second: Arc<dyn Store>,
    clear: Clear,
    url: String,
}

/// Deletes all records without the help of the store.
pub type Clear = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

impl Deref for Fresh {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl Fresh {
    /// The parameters are the store, a second handle on the same data, a function that empties it,
    /// and its connection string.
    pub fn new(store: Arc<dyn Store>, second: Arc<dyn Store>, clear: Clear, url: String) -> Self {
        Self { store, second, clear, url }
    }

    /// The value of the option `store` for other processes.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// An owned handle to the store.
    pub fn handle(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The store, for exports and imports.
    pub fn whole(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// All pages of a kind.
    pub async fn pages(&self, kind: RecordKind) -> Vec<RecordPage> {
        self.store.export(ExportPart::Records(kind)).try_collect().await.unwrap()
    }

    /// The lines of all readable records of a kind.
    pub async fn lines_of(&self, kind: RecordKind) -> Vec<String> {
        let pages = self.pages(kind).await.into_iter();
        pages.flat_map(|page| page.lines).collect()
    }

    /// Returns all readable records as lines, which are equal on every store.
    pub async fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for kind in RecordKind::ALL {
            let records = self.lines_of(kind).await.into_iter();
            lines.extend(records.map(|line| format!("{} {line}", kind.as_str())));
        }
        for day in self.days().await.unwrap() {
            let stacks = self.exported(day).await.into_iter();
            lines.extend(stacks.map(|line| format!("{day} {line}")));
        }
        lines
    }

    /// Empties the store, for tests that repeat a scenario.
    pub async fn clear(&self) {
        (self.clear)().await;
    }

    /// The same data through the second handle.
    pub fn second(&self) -> Self {
        Self {
            store: self.second.clone(),
            second: self.store.clone(),
            clear: self.clear.clone(),
            url: self.url.clone(),
        }
    }

    /// Runs `count` tasks concurrently, every other one on the second handle. Returns their results
    /// in order.
    pub async fn at_once<T, F>(&self, count: u32, task: impl Fn(Fresh, u32) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let start = |n| {
            let fresh = if n % 2 == 0 { self.clone() } else { self.second() };
            tokio::spawn(task(fresh, n))
        };
        let running: Vec<_> = (0..count).map(start).collect();
        let mut answers = Vec::with_capacity(running.len());
        for task in running {
            answers.push(task.await.unwrap());
        }
        answers
    }

    /// Runs `count` tasks concurrently, as [`Self::at_once`] does. Returns how many succeeded.
    pub async fn wins<F>(&self, count: u32, task: impl Fn(Fresh, u32) -> F) -> usize
    where
        F: Future<Output = bool> + Send + 'static,
    {
        let won = self.at_once(count, task).await.into_iter();
        won.filter(|won| *won).count()
    }

    /// Returns the user's stacks in the window.
    pub async fn stacks_of(&self, person: &UserId) -> Vec<Stack> {
        let requested = std::slice::from_ref(person);
        let mut found = self.windows(window(), requested).await.unwrap();
        assert_eq!(found.len(), 1, "one answer for one user");
        found.remove(0).stacks
    }

    /// Returns the entries of the stack with a text `_id` on this day, or none.
    pub async fn entries_of(&self, person: &UserId, day: Day) -> Vec<Entry> {
        let requested = std::slice::from_ref(person);
        let only = DaySet::ending(day, 0);
        let mut found = self.windows(only, requested).await.unwrap();
        let mut stacks = found.remove(0).stacks.into_iter();
        let written = stacks.find(|stack| stack.id == StackId::for_day(day));
        written.map_or(Vec::new(), |stack| stack.entries)
    }

    /// Scans the window and returns its chunks.
    pub async fn chunks(&self, after: Option<UserId>, chunk: usize) -> Vec<Vec<UserStacks>> {
        self.scan(window(), after, chunk).try_collect().await.unwrap()
    }

    /// Scans the window and returns all users with entries.
    pub async fn everybody(&self, after: Option<UserId>, chunk: usize) -> Vec<UserStacks> {
        let mut all = self.chunks(after, chunk).await.concat();
        all.retain(|person| person.stacks.iter().any(|stack| !stack.entries.is_empty()));
        all
    }

    /// Returns all documents of the day.
    pub async fn exported(&self, day: Day) -> Vec<String> {
        let chunks: Vec<_> = self.export_day(day).try_collect().await.unwrap();
        chunks.concat()
    }
}
