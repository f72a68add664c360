//! Implements [`Stacks`] on day collections. [`super::push`] and [`super::markers`] write them;
//! [`super::scan`] and [`super::windows`] read them.
//!
//! A day collection is created before its first push, clustered by `_id`.

use async_trait::async_trait;
use bson::doc;
use futures::stream::BoxStream;

use super::patience::Failure;
use super::push::Push;
use super::{Known, Layout, Mongo};
use crate::domain::{BadStack, ChangeNotice, Day, PersonStacks, UserId, Window};
use crate::store::{NewMarker, People, Pushed, Pushes, Result, Stacks};

#[async_trait]
impl Stacks for Mongo {
    async fn catch_up(&self) -> Result<()> {
        self.caught_up().await
    }

    async fn push(&self, day: Day, cap: usize, pushes: &Pushes) -> Result<Pushed> {
        if pushes.people.is_empty() {
            return Ok(Pushed::default());
        }
        let pushed = Push::new(self, day, cap, pushes).await?.run().await?;
        let people = pushes.people.iter().map(|(user, _)| user.as_str());
        self.poke(ChangeNotice::people(people)).await;
        Ok(pushed)
    }

    fn scan(
        &self,
        window: Window,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<PersonStacks>>> {
        self.scan_window(window, after, chunk)
    }

    async fn windows(&self, window: Window, people: People<'_>) -> Result<Vec<PersonStacks>> {
        match people {
            People::Each(people) => self.windows_of_each(window, people).await,
            People::Between(people) => self.windows_between(window, people).await,
        }
    }

    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<BadStack>> {
        self.append_markers(markers).await
    }
}

impl Mongo {
    /// Creates a clustered day collection before the first write to it. An existing one keeps its
    /// layout.
    pub(super) async fn create_day(&self, day: Day) -> Result<()> {
        if self.known(day).is_some() {
            return Ok(());
        }
        let name = day.collection();
        let command = doc! {
            "create": &name,
            "clusteredIndex": {"key": {"_id": 1}, "unique": true},
            "writeConcern": {"w": "majority"},
        };
        let doing = format!("creating {name}");
        let created = self.patiently(&doing, || {
            let run = self.0.db.run_command(command.clone());
            async move {
                match run.await.map_err(Failure::from) {
                    Ok(_) => Ok(true),
                    Err(failure) if failure.code == Some(NAMESPACE_EXISTS) => Ok(false),
                    Err(failure) => Err(failure),
                }
            }
        });
        if created.await? {
            let known = Known {
                layout: Layout::Clustered,
                mostly_new: true,
                mostly_standing: false,
            };
            self.note(day, known);
        } else {
            self.layouts(&Window::ending(day, 0)).await?;
        }
        Ok(())
    }
}

/// Server error code: the collection already exists.
pub(super) const NAMESPACE_EXISTS: i32 = 48;
