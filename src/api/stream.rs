//! A person's feed as a stream: how it stands, as soon as that changes (server-sent events).
//!
//! The rule: an event says only how the feed stands now, under its cursor as id, so that nobody
//! needs a log to go on after a break; of several changes the last one is told. A stream looks when
//! its person is poked, and now and then in any case: each at a moment of its own, as streams that
//! were opened together would else ask all at once, for ever. There are as many as configured, a
//! few of each person, and a few looks at once, however many are poked together; what nothing
//! called for waits in a line of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix_web::http::{Method, header};
use actix_web::web::{Bytes, Data};
use actix_web::{HttpMessage, HttpRequest, HttpResponse};
use futures::stream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::auth::Caller;
use super::problem::{Code, Problem};
use super::uri::{NoQuery, segment};
use crate::app::App;
use crate::domain::{PokeKey, UserId};
use crate::services::polls::Waiting;

/// Streams of one person at once, on one process; of one more the oldest ends.
const OF_ONE: usize = 5;
/// Looks at once at feeds that may have changed, and at those that nothing was heard of.
const LOOKS: usize = 16;
const ROUNDS: usize = 4;
/// So long after something was said, something is said again.
const BEAT: Duration = Duration::from_secs(25);
/// How long a stream lasts that a server key opened.
const OF_A_KEY: Duration = Duration::from_secs(600);
/// What comes together is looked at once.
const TOGETHER: Duration = Duration::from_millis(50);
/// A feed is looked at again after this at the latest, poked or not; or, where the store did not
/// answer, after this.
const LATEST: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_secs(2);

/// All streams of a process.
pub(super) struct Streams {
    places: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    rounds: Arc<Semaphore>,
    /// Whether the last look failed.
    fails: AtomicBool,
    of: Mutex<HashMap<UserId, VecDeque<Arc<Notify>>>>,
    stop: watch::Receiver<bool>,
}

impl Streams {
    pub(super) fn new(most: usize, stop: watch::Receiver<bool>) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            looks: Arc::new(Semaphore::new(LOOKS)),
            rounds: Arc::new(Semaphore::new(ROUNDS)),
            fails: AtomicBool::new(false),
            of: Mutex::default(),
            stop,
        }
    }

    fn of(&self) -> MutexGuard<'_, HashMap<UserId, VecDeque<Arc<Notify>>>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one stream.
struct Place {
    streams: Data<Streams>,
    user: UserId,
    /// Told when it is to end, as another one takes its place.
    over: Arc<Notify>,
    _place: OwnedSemaphorePermit,
}

impl Place {
    fn take(streams: Data<Streams>, user: UserId) -> Result<Self, Problem> {
        let place = Arc::clone(&streams.places).try_acquire_owned();
        let place = place.map_err(|_| {
            let detail =
                "this server has as many streams as it serves; poll the feed, and try again later";
            Problem::new(Code::TooManyStreams, detail)
        })?;
        let over = Arc::new(Notify::new());
        {
            let mut of = streams.of();
            let theirs = of.entry(user.clone()).or_default();
            theirs.push_back(Arc::clone(&over));
            // Most of a person's streams that are left are those of pages that were closed, which a
            // server notices late.
            if theirs.len() > OF_ONE
                && let Some(oldest) = theirs.pop_front()
            {
                oldest.notify_one();
            }
        }
        Ok(Self {
            streams,
            user,
            over,
            _place: place,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of = self.streams.of();
        if let Some(theirs) = of.get_mut(&self.user) {
            theirs.retain(|over| !Arc::ptr_eq(over, &self.over));
            if theirs.is_empty() {
                of.remove(&self.user);
            }
        }
    }
}

/// A stream that is served.
struct Live {
    app: Data<App>,
    place: Place,
    news: Waiting,
    stop: watch::Receiver<bool>,
    /// When it has to be opened again.
    end: Instant,
    /// What was told last.
    told: Vec<u8>,
    /// When something is said again, and when the feed is looked at again.
    beat: Instant,
    look: Instant,
    /// Whether something called for the next look.
    called: bool,
    /// When it is looked at if nothing calls, after that look.
    next: Duration,
}

/// `GET /v1/users/{id}/feed/stream`
pub(super) async fn stream(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
    streams: Data<Streams>,
) -> Result<HttpResponse, Problem> {
    let user: UserId = segment(&req, "id")?;
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((header::CACHE_CONTROL, "no-store"))
        // Whoever stands between hands on what comes as it comes.
        .insert_header(("X-Accel-Buffering", "no"));
    if req.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let now = Instant::now();
    let live = Live {
        called: true,
        next: moment(&user),
        news: app.polls().wait_for(&user),
        stop: streams.stop.clone(),
        end: now + lasts(&req, &app),
        place: Place::take(streams, user)?,
        app,
        told: Vec::new(),
        beat: now + BEAT,
        look: now,
    };
    let said = stream::unfold(live, |mut live| async move {
        let said = live.next().await?;
        Some((Ok::<_, actix_web::Error>(said), live))
    });
    Ok(response.streaming(Box::pin(said)))
}

/// When, within [`LATEST`], nothing calls for a look at this person's feed and one is taken.
fn moment(user: &UserId) -> Duration {
    let among = LATEST.as_millis() as u32;
    Duration::from_millis(u64::from(PokeKey::of(user.as_str()).0 % among))
}

/// For how long it may be served: as long as the token lasts that opens it. A key may be revoked.
fn lasts(req: &HttpRequest, app: &App) -> Duration {
    match req.extensions().get::<Caller>() {
        Some(Caller::Person { until, .. }) => {
            (*until - app.clock.now()).to_std().unwrap_or_default()
        }
        Some(Caller::Key { .. }) | None => OF_A_KEY,
    }
}

impl Live {
    /// What is said next; nothing where its time is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let is_due = self.look <= Instant::now();
            let streams = &self.place.streams;
            let line = match self.called {
                true => Arc::clone(&streams.looks),
                false => Arc::clone(&streams.rounds),
            };
            let turn = tokio::select! {
                _ = self.stop.wait_for(|stop| *stop) => return None,
                () = tokio::time::sleep_until(self.end) => return None,
                () = self.place.over.notified() => return None,
                // Whoever waits for a turn already is called at most once.
                () = self.news.news(), if !(is_due && self.called) => {
                    tokio::time::sleep(TOGETHER).await;
                    (self.look, self.called) = (Instant::now(), true);
                    continue;
                }
                () = tokio::time::sleep_until(self.look), if !is_due => continue,
                turn = line.acquire_owned(), if is_due => {
                    turn.expect("nobody closes this semaphore")
                }
                () = tokio::time::sleep_until(self.beat) => {
                    self.beat = Instant::now() + BEAT;
                    return Some(Bytes::from_static(b":\n\n"));
                }
            };
            self.called = false;
            self.look = Instant::now() + std::mem::replace(&mut self.next, LATEST);
            let event = self.event().await;
            drop(turn);
            if let Some(event) = event {
                self.beat = Instant::now() + BEAT;
                return Some(event);
            }
        }
    }

    /// How the feed stands, if that was not told yet.
    async fn event(&mut self) -> Option<Bytes> {
        let streams = &self.place.streams;
        let counts = self.app.feeds().counts(&self.place.user, false).await;
        let counts = match counts {
            Ok(counts) => {
                streams.fails.store(false, Ordering::Relaxed);
                counts.answer
            }
            Err(error) => {
                // Told once, however many streams there are.
                if !streams.fails.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "streams cannot tell how feeds stand, and look again");
                }
                (self.look, self.called) = (Instant::now() + AGAIN, true);
                return None;
            }
        };
        let data = serde_json::to_vec(&counts).expect("what is on the wire is always JSON");
        if data == self.told {
            return None;
        }
        let mut event = format!("id: {}\ndata: ", counts.cursor).into_bytes();
        event.extend(&data);
        event.extend(b"\n\n");
        self.told = data;
        Some(event.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_that_nothing_was_heard_of_are_looked_at_evenly() {
        let mut in_each_second = [0; 30];
        for n in 0..30_000 {
            let moment = moment(&UserId::stored(format!("user-{n}")));
            in_each_second[moment.as_secs() as usize] += 1;
        }

        let evenly = 850..1_150;
        assert!(
            in_each_second.iter().all(|n| evenly.contains(n)),
            "{in_each_second:?}"
        );
    }
}
