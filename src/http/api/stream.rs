//! A user's feed counts as a stream of server-sent events.
//!
//! Each event contains the current counts and the cursor as its id, so a client can resume without
//! a log. A stream reads the counts after a change notice for its user, and every 30 seconds at an
//! offset of its own. `feed.streams` limits the streams, [`MAX_PER_USER`] those of one user, and
//! [`MAX_CONCURRENT_READS`] the concurrent reads. Start with [`FeedStream::next`].

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::http::{Method, header};
use actix_web::web::{Bytes, Data};
use actix_web::{HttpMessage, HttpResponse};
use futures::stream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::callers::Caller;
use super::problem::{ApiResult, Code, Problem};
use super::request::ApiRequest;
use super::route::routes;
use crate::app::App;
use crate::domain::{NoticeKey, UserId};
use crate::engine::feed::cache::FeedSubscription;
use crate::mutex::lock;
use crate::wire::to_json;

routes! {ROUTES under "/v1":
    "/users/{id}/feed/stream" => {get read own: stream}
}

/// The maximum number of streams per user and process. One more ends the oldest.
const MAX_PER_USER: usize = 5;
const MAX_CONCURRENT_READS: usize = 16;
/// The longest silence of a stream: a comment follows. Proxies cut silent connections, some after
/// 20 seconds.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The lifetime of a stream that a server key opened.
const KEY_LIFETIME: Duration = Duration::from_secs(600);
/// Change notices within this time cause one read.
const NOTICE_WINDOW: Duration = Duration::from_millis(50);
/// The longest time between two reads of a feed.
const READ_INTERVAL: Duration = Duration::from_secs(30);
/// The wait after a failed read.
const RETRY_WAIT: Duration = Duration::from_secs(2);

/// The signals that end the streams of each user, oldest first.
type EndSignals = HashMap<UserId, VecDeque<Arc<Notify>>>;

/// All streams of a process.
pub(super) struct Streams {
    slots: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    /// Whether the last read failed.
    is_failing: AtomicBool,
    end_signals: Mutex<EndSignals>,
    stop: watch::Receiver<bool>,
}

impl Streams {
    pub(super) fn new(max: usize, stop: watch::Receiver<bool>) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(max)),
            reads: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
            is_failing: AtomicBool::new(false),
            end_signals: Mutex::default(),
            stop,
        }
    }
}

/// The slot of one stream.
struct StreamSlot {
    streams: Data<Streams>,
    user: UserId,
    /// Notified when the user has too many newer streams.
    end_signal: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl StreamSlot {
    fn take(streams: Data<Streams>, user: UserId) -> Result<Self, Problem> {
        let Ok(permit) = Arc::clone(&streams.slots).try_acquire_owned() else {
            let detail =
                "this server has reached its limit of streams; poll the feed, and try again later";
            return Err(Problem::new(Code::TooManyStreams, detail));
        };
        let end_signal = Arc::new(Notify::new());
        {
            let mut end_signals = lock(&streams.end_signals);
            let signals = end_signals.entry(user.clone()).or_default();
            signals.push_back(Arc::clone(&end_signal));
            // Most extra streams belong to closed pages: a server notices a closed page late.
            if signals.len() > MAX_PER_USER
                && let Some(oldest) = signals.pop_front()
            {
                oldest.notify_one();
            }
        }
        Ok(Self { streams, user, end_signal, _permit: permit })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut end_signals = lock(&self.streams.end_signals);
        if let Some(signals) = end_signals.get_mut(&self.user) {
            signals.retain(|signal| !Arc::ptr_eq(signal, &self.end_signal));
            if signals.is_empty() {
                end_signals.remove(&self.user);
            }
        }
    }
}

/// An open stream.
struct FeedStream {
    app: Data<App>,
    slot: StreamSlot,
    subscription: FeedSubscription,
    stop: watch::Receiver<bool>,
    /// When the stream ends. The client opens it again.
    end: Instant,
    /// Who opened it.
    caller: Option<Caller>,
    /// The last counts that were sent.
    last_counts: Vec<u8>,
    /// When the next comment and the next read are due.
    heartbeat_at: Instant,
    read_at: Instant,
    /// The wait after that read, without a change notice.
    next_wait: Duration,
}

/// `GET /v1/users/{id}/feed/stream`
async fn stream(request: ApiRequest, streams: Data<Streams>) -> ApiResult {
    let (user, app): (UserId, _) = (request.segment("id")?, request.app.clone());
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        // nginx would buffer the events.
        .insert_header(("X-Accel-Buffering", "no"));
    if request.http.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let now = Instant::now();
    let feed_stream = FeedStream {
        next_wait: offset(&user),
        subscription: app.feed_cache.subscribe(&user),
        stop: streams.stop.clone(),
        end: now + lifetime(&request),
        caller: request.http.extensions().get::<Caller>().cloned(),
        slot: StreamSlot::take(streams, user)?,
        app,
        last_counts: Vec::new(),
        heartbeat_at: now + HEARTBEAT,
        read_at: now,
    };
    let events = stream::unfold(feed_stream, |mut feed_stream| async move {
        let event = feed_stream.next().await?;
        Some((Ok::<_, actix_web::Error>(event), feed_stream))
    });
    Ok(response.streaming(Box::pin(events)))
}

/// Returns this user's offset within [`READ_INTERVAL`], so that streams do not all read at once.
fn offset(user: &UserId) -> Duration {
    let hash = NoticeKey::from_name(user.as_str()).0;
    Duration::from_millis(u64::from(hash % READ_INTERVAL.as_millis() as u32))
}

/// Returns the longest lifetime: until the token expires. A key may be revoked, so its streams end
/// earlier.
fn lifetime(request: &ApiRequest) -> Duration {
    match request.http.extensions().get() {
        Some(Caller::User(token)) => {
            let remaining = token.expires_at - request.app.context.clock.now();
            remaining.to_std().unwrap_or_default()
        }
        Some(Caller::Key(_)) | None => KEY_LIFETIME,
    }
}

impl FeedStream {
    /// Returns the next event or comment; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let is_due = self.read_at <= Instant::now();
            let permits = Arc::clone(&self.slot.streams.reads);
            let permit = tokio::select! {
                _ = self.stop.wait_for(|stop| *stop) => return None,
                () = tokio::time::sleep_until(self.end) => return None,
                () = self.slot.end_signal.notified() => return None,
                // A stream that already waits for its permit ignores further notices.
                _ = self.subscription.changes.changed(), if !is_due => {
                    tokio::time::sleep(NOTICE_WINDOW).await;
                    self.read_at = Instant::now();
                    continue;
                }
                () = tokio::time::sleep_until(self.read_at), if !is_due => continue,
                permit = permits.acquire_owned(), if is_due => {
                    permit.expect("this semaphore is never closed")
                }
                () = tokio::time::sleep_until(self.heartbeat_at) => {
                    self.heartbeat_at = Instant::now() + HEARTBEAT;
                    return Some(Bytes::from_static(b":\n\n"));
                }
            };
            self.read_at = Instant::now() + std::mem::replace(&mut self.next_wait, READ_INTERVAL);
            if self.is_of_earlier_user().await {
                return None;
            }
            let event = self.changed_counts().await;
            drop(permit);
            if let Some(event) = event {
                self.heartbeat_at = Instant::now() + HEARTBEAT;
                return Some(event);
            }
        }
    }

    /// Returns whether its token was issued to an earlier user of the id. Returns `false` while the
    /// store does not answer, so that the stream stays open; it then sends no counts.
    async fn is_of_earlier_user(&self) -> bool {
        let Some(caller) = &self.caller else {
            return false;
        };
        let checked = caller.check_start(&self.app).await;
        matches!(checked, Err(problem) if problem.code == Code::Unauthorized)
    }

    /// Returns the counts as an event, if they differ from the last ones.
    async fn changed_counts(&mut self) -> Option<Bytes> {
        let streams = &self.slot.streams;
        let counts = match self.app.feeds().counts(&self.slot.user, false).await {
            Ok(response) => {
                streams.is_failing.store(false, Ordering::Relaxed);
                response.answer
            }
            Err(error) => {
                // Logged once for all streams.
                if !streams.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "streams cannot read the counts of feeds, and will try again");
                }
                self.read_at = Instant::now() + RETRY_WAIT;
                return None;
            }
        };
        let data = to_json(&counts);
        if data == self.last_counts {
            return None;
        }
        let mut event = format!("id: {}\ndata: ", counts.cursor).into_bytes();
        event.extend(&data);
        event.extend(b"\n\n");
        self.last_counts = data;
        Some(event.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_keep_a_stream_open_behind_a_proxy_with_a_short_timeout() {
        assert!(HEARTBEAT <= Duration::from_secs(15), "{HEARTBEAT:?}");
    }

    #[test]
    fn rereads_of_idle_feeds_are_spread_evenly() {
        let mut in_each_second = [0; 30];
        for n in 0..30_000 {
            let offset = offset(&UserId::stored(format!("user-{n}")));
            in_each_second[offset.as_secs() as usize] += 1;
        }

        let evenly = 850..1_150;
        assert!(in_each_second.iter().all(|n| evenly.contains(n)), "{in_each_second:?}");
    }
}
