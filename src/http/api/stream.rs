//! A user's feed counts as a stream of server-sent events.
//!
//! Each event contains the current counts and the cursor as its id, so a client can resume without
//! a log. A stream reads the counts after a change notice for its user, and every 30 seconds at an
//! offset of its own. `feed.streams` limits the streams, [`MAX_PER_USER`] those of one user, and
//! [`READS`] the concurrent reads. Start with [`Live::next`].

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use crate::engine::feed::cache::Subscription;
use crate::wire::to_json;

routes! {ROUTES under "/v1":
    "/users/{id}/feed/stream" => {get read own: stream}
}

/// The maximum number of streams per user and process. One more ends the oldest.
const MAX_PER_USER: usize = 5;
/// The maximum number of concurrent reads.
const READS: usize = 16;
/// The longest silence of a stream: a comment follows. Proxies cut silent connections, some after
/// 20 seconds.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The lifetime of a stream that a server key opened.
const KEY_LIFETIME: Duration = Duration::from_secs(600);
/// Change notices within this time cause one read.
const NOTICE_WINDOW: Duration = Duration::from_millis(50);
/// The longest time between two reads of a feed, and the wait after a failed read.
const PERIOD: Duration = Duration::from_secs(30);
const RETRY_WAIT: Duration = Duration::from_secs(2);

/// All streams of a process.
pub(super) struct Streams {
    places: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    /// Whether the last read failed.
    is_failing: AtomicBool,
    of: Mutex<HashMap<UserId, VecDeque<Arc<Notify>>>>,
    stop: watch::Receiver<bool>,
}

impl Streams {
    pub(super) fn new(most: usize, stop: watch::Receiver<bool>) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            reads: Arc::new(Semaphore::new(READS)),
            is_failing: AtomicBool::new(false),
            of: Mutex::default(),
            stop,
        }
    }

    fn of(&self) -> MutexGuard<'_, HashMap<UserId, VecDeque<Arc<Notify>>>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one stream.
struct StreamSlot {
    streams: Data<Streams>,
    user: UserId,
    /// Notified when a newer stream takes this place.
    replaced: Arc<Notify>,
    _place: OwnedSemaphorePermit,
}

impl StreamSlot {
    fn take(streams: Data<Streams>, user: UserId) -> Result<Self, Problem> {
        let place = Arc::clone(&streams.places).try_acquire_owned();
        let place = place.map_err(|_| {
            let detail =
                "this server has as many streams as it serves; poll the feed, and try again later";
            Problem::new(Code::TooManyStreams, detail)
        })?;
        let replaced = Arc::new(Notify::new());
        {
            let mut of = streams.of();
            let of_user = of.entry(user.clone()).or_default();
            of_user.push_back(Arc::clone(&replaced));
            // Most extra streams belong to closed pages: a server notices a closed page late.
            if of_user.len() > MAX_PER_USER
                && let Some(oldest) = of_user.pop_front()
            {
                oldest.notify_one();
            }
        }
        Ok(Self { streams, user, replaced, _place: place })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut of = self.streams.of();
        if let Some(of_user) = of.get_mut(&self.user) {
            of_user.retain(|replaced| !Arc::ptr_eq(replaced, &self.replaced));
            if of_user.is_empty() {
                of.remove(&self.user);
            }
        }
    }
}

/// An open stream.
struct Live {
    app: Data<App>,
    place: StreamSlot,
    subscription: Subscription,
    stop: watch::Receiver<bool>,
    /// When the stream ends. The client opens it again.
    end: Instant,
    /// Who opened it.
    caller: Option<Caller>,
    /// The last counts that were sent.
    last: Vec<u8>,
    /// When the next comment and the next read are due.
    heartbeat_at: Instant,
    read_at: Instant,
    /// The wait after that read, without a change notice.
    next: Duration,
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
    let live = Live {
        next: offset(&user),
        subscription: app.feed_cache.subscribe(&user),
        stop: streams.stop.clone(),
        end: now + lifetime(&request),
        caller: request.http.extensions().get::<Caller>().cloned(),
        place: StreamSlot::take(streams, user)?,
        app,
        last: Vec::new(),
        heartbeat_at: now + HEARTBEAT,
        read_at: now,
    };
    let sent = stream::unfold(live, |mut live| async move {
        let sent = live.next().await?;
        Some((Ok::<_, actix_web::Error>(sent), live))
    });
    Ok(response.streaming(Box::pin(sent)))
}

/// Returns this user's offset within [`PERIOD`], so that streams do not all read at once.
fn offset(user: &UserId) -> Duration {
    let among = PERIOD.as_millis() as u32;
    Duration::from_millis(u64::from(NoticeKey::of(user.as_str()).0 % among))
}

/// Returns the longest lifetime: until the token expires. A key may be revoked, so its streams end
/// earlier.
fn lifetime(request: &ApiRequest) -> Duration {
    match request.http.extensions().get() {
        Some(Caller::User(token)) => {
            let left = token.expires_at - request.app.context.clock.now();
            left.to_std().unwrap_or_default()
        }
        Some(Caller::Key(_)) | None => KEY_LIFETIME,
    }
}

impl Live {
    /// Returns the next event or comment; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let is_due = self.read_at <= Instant::now();
            let permits = Arc::clone(&self.place.streams.reads);
            let permit = tokio::select! {
                _ = self.stop.wait_for(|stop| *stop) => return None,
                () = tokio::time::sleep_until(self.end) => return None,
                () = self.place.replaced.notified() => return None,
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
            self.read_at = Instant::now() + std::mem::replace(&mut self.next, PERIOD);
            if self.is_of_earlier_user().await {
                return None;
            }
            let event = self.event().await;
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
    async fn event(&mut self) -> Option<Bytes> {
        let streams = &self.place.streams;
        let counts = self.app.feeds().counts(&self.place.user, false).await;
        let counts = match counts {
            Ok(counts) => {
                streams.is_failing.store(false, Ordering::Relaxed);
                counts.answer
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
        if data == self.last {
            return None;
        }
        let mut event = format!("id: {}\ndata: ", counts.cursor).into_bytes();
        event.extend(&data);
        event.extend(b"\n\n");
        self.last = data;
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
