//! A store whose nth call fails, either before it takes effect or after it.
//!
//! Each method counts as one call, including reads, under its name or its kind of change. A test
//! that runs through all n, with each [`Fault`] and [`Then`], has failed and crashed at every step.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use tidings::domain::batch::Accumulator;
use tidings::store::{Error, Intercept, Result, Store};

/// How the nth call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call has no effect.
    Refused,
    /// The call takes effect, but its reply is lost. A stream ends after its first chunk.
    Unheard,
}

/// The outcome of the calls after the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// They succeed, as after a short network failure.
    Recovers,
    /// They fail, as if the process had died. Its successor needs another handle.
    StaysDown,
}

/// A store that wraps another one.
pub struct FailingStore {
    inner: Arc<dyn Store>,
    plan: Mutex<Plan>,
    /// Runs before each call.
    before: Option<Before>,
    /// The method before which `before` must run, and whether it did.
    due: Option<(&'static str, Arc<AtomicBool>)>,
    /// Outdated accumulators that the next search also returns, first.
    stale: Mutex<Vec<Accumulator>>,
}

impl Drop for FailingStore {
    fn drop(&mut self) {
        let Some((verb, came)) = &self.due else {
            return;
        };
        if !std::thread::panicking() {
            assert!(came.load(Ordering::Relaxed), "{verb} was not called");
        }
    }
}

/// Runs before a call of this method.
pub type Before = Box<dyn Fn(&'static str) -> BoxFuture<'static, ()> + Send + Sync>;

#[derive(Default)]
struct Plan {
    calls: usize,
    fails: Option<(usize, Fault, Then)>,
    /// If set, only calls of this method count.
    only: Option<&'static str>,
    struck: Option<&'static str>,
    verbs: BTreeSet<&'static str>,
}

impl FailingStore {
    /// A store that passes on all calls, and counts them.
    fn passing(inner: Arc<dyn Store>) -> Self {
        Self { inner, plan: Mutex::default(), before: None, due: None, stale: Mutex::default() }
    }

    /// A store whose call number `nth` fails, counted from 0.
    pub fn new(inner: Arc<dyn Store>, nth: usize, fault: Fault, then: Then) -> Arc<Self> {
        let store = Self::passing(inner);
        store.plan.lock().unwrap().fails = Some((nth, fault, then));
        Arc::new(store)
    }

    /// A store that fails only call number `nth` of this method, counted from 0.
    pub fn of_verb(inner: Arc<dyn Store>, verb: &'static str, nth: usize) -> Arc<Self> {
        let store = Self::new(inner, nth, Fault::Refused, Then::Recovers);
        store.plan.lock().unwrap().only = Some(verb);
        store
    }

    /// A store that runs `what` before the first call of this method. Dropping it panics if there
    /// was no such call.
    pub fn before(
        inner: Arc<dyn Store>,
        verb: &'static str,
        what: BoxFuture<'static, ()>,
    ) -> Arc<Self> {
        let (once, came) = (Mutex::new(Some(what)), Arc::new(AtomicBool::new(false)));
        let due = Some((verb, came.clone()));
        let before: Before = Box::new(move |called| {
            let what = (called == verb).then(|| once.lock().unwrap().take());
            match what.flatten() {
                Some(what) => {
                    came.store(true, Ordering::Relaxed);
                    what
                }
                None => Box::pin(std::future::ready(())),
            }
        });
        let mut store = Self::passing(inner);
        (store.before, store.due) = (Some(before), due);
        Arc::new(store)
    }

    /// A store whose first search for accumulators returns these, instead of the current ones.
    /// MongoDB may find an accumulator in its old state while it moves in the index.
    pub fn finding_stale_first(inner: Arc<dyn Store>, stale: Vec<Accumulator>) -> Arc<Self> {
        let store = Self::passing(inner);
        *store.stale.lock().unwrap() = stale;
        Arc::new(store)
    }

    /// A store that only counts calls.
    pub fn counting(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self::passing(inner))
    }

    /// A store that waits for `before` at each call, except for streams.
    pub fn waiting(inner: Arc<dyn Store>, before: Before) -> Arc<Self> {
        let mut store = Self::passing(inner);
        store.before = Some(before);
        Arc::new(store)
    }

    /// The number of calls, including failed ones.
    pub fn calls(&self) -> usize {
        self.plan.lock().unwrap().calls
    }

    /// The method that failed, or `None` if there were too few calls.
    pub fn struck(&self) -> Option<&'static str> {
        self.plan.lock().unwrap().struck
    }

    /// The methods that were called.
    pub fn verbs(&self) -> BTreeSet<&'static str> {
        self.plan.lock().unwrap().verbs.clone()
    }

    /// Counts a call and returns its fault, if any.
    fn next(&self, verb: &'static str) -> Option<Fault> {
        let mut plan = self.plan.lock().unwrap();
        plan.verbs.insert(verb);
        if plan.only.is_some_and(|only| only != verb) {
            return None;
        }
        let call = plan.calls;
        plan.calls += 1;
        let (nth, fault, then) = plan.fails?;
        if call == nth {
            plan.struck = Some(verb);
            return Some(fault);
        }
        (call > nth && then == Then::StaysDown).then_some(Fault::Refused)
    }
}

impl Intercept for FailingStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    /// Subscribing does not count as a call, because servers subscribe at unpredictable times.
    async fn call<T: Send + 'static>(
        &self,
        verb: &'static str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        if verb == "change_notices" {
            return work.await;
        }
        if let Some(before) = &self.before {
            before(verb).await;
        }
        let mut answer = match self.next(verb) {
            None => work.await?,
            Some(Fault::Refused) => return Err(failure(verb)),
            Some(Fault::Unheard) => {
                work.await?;
                return Err(failure(verb));
            }
        };
        if verb == "find_accumulators"
            && let Some(found) = (&mut answer as &mut dyn Any).downcast_mut::<Vec<Accumulator>>()
        {
            let stale = std::mem::take(&mut *self.stale.lock().unwrap());
            found.retain(|one| stale.iter().all(|old| old.id != one.id));
            found.splice(0..0, stale);
        }
        Ok(answer)
    }

    fn stream<'a, T: Send + 'a>(
        &'a self,
        verb: &'static str,
        chunks: BoxStream<'a, Result<T>>,
    ) -> BoxStream<'a, Result<T>> {
        let broken = stream::once(async move { Err(failure(verb)) });
        match self.next(verb) {
            None => chunks,
            Some(Fault::Refused) => broken.boxed(),
            Some(Fault::Unheard) => chunks.take(1).chain(broken).boxed(),
        }
    }
}

fn failure(verb: &str) -> Error {
    Error::database(format!("calling {verb}"), "the test wanted it to fail")
}

#[tokio::test]
#[should_panic(expected = "release was not called")]
async fn waiting_for_a_method_that_is_never_called_panics() {
    super::sqlite::run(|fresh| async move {
        let never = Box::pin(std::future::ready(()));
        FailingStore::before(fresh.handle(), "release", never);
    })
    .await;
}
