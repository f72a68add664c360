//! Records that a worker runs, and when digests last ran, so that `status` can say it.
//!
//! All workers share one note. A worker writes it every [`BEAT`]; after [`SILENT`] without a write,
//! no worker counts as running.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::engine::Result;
use crate::wire::status::{DigestActivity, WorkerActivity};

/// Time between two heartbeats of a worker.
pub const BEAT: TimeDelta = TimeDelta::seconds(10);
/// Time after which a worker without a heartbeat counts as dead.
const SILENT: TimeDelta = TimeDelta::seconds(60);

const WORKER: &str = "activity-worker";
const DIGEST: &str = "activity-digest";

/// Writes and reads the activity of all processes.
pub struct Activity {
    pub(crate) context: Arc<Context>,
}

#[derive(Serialize, Deserialize)]
struct Beat {
    at: DateTime<Utc>,
    owner: String,
    stopped: bool,
}

impl Activity {
    /// Records that this process works now, or that it has stopped, unless another worker has
    /// written since.
    pub async fn beat(&self, stopped: bool) -> Result<()> {
        let read = self.context.store.note(WORKER).await?;
        let last: Option<Beat> = read.as_deref().and_then(parse);
        let at = self.context.clock.now();
        let others = last.is_some_and(|last| {
            last.owner != self.context.owner && !last.stopped && at - last.at < SILENT
        });
        if stopped && others {
            return Ok(());
        }
        let owner = self.context.owner.clone();
        self.write(WORKER, read.as_deref(), &Beat { at, owner, stopped })
            .await
    }

    /// Records a run of digests.
    pub async fn record_digests(&self, run: &DigestActivity) -> Result<()> {
        let read = self.context.store.note(DIGEST).await?;
        self.write(DIGEST, read.as_deref(), run).await
    }

    /// Replaces a note, unless another process has changed it since. That text is as recent.
    async fn write(&self, name: &str, read: Option<&str>, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value).unwrap_or_default();
        self.context
            .store
            .swap_note(name, read, Some(&text))
            .await?;
        Ok(())
    }

    /// Returns when a worker was last active and whether one runs; `None` if none ever did.
    pub async fn worker(&self) -> Result<Option<WorkerActivity>> {
        let store = &self.context.store;
        let last: Option<Beat> = store.note(WORKER).await?.as_deref().and_then(parse);
        let now = self.context.clock.now();
        Ok(last.map(|last| WorkerActivity {
            running: !last.stopped && now - last.at < SILENT,
            seen: last.at,
        }))
    }

    /// Returns the last run of digests; `None` if there was none.
    pub async fn digests(&self) -> Result<Option<DigestActivity>> {
        let store = &self.context.store;
        Ok(store.note(DIGEST).await?.as_deref().and_then(parse))
    }
}

/// A note that another version wrote in another form counts as absent: the next one replaces it.
fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}
