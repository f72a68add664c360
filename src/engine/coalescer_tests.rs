//! Tests that waiting requests share a call, and that a caller without a result calls alone.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures::channel::oneshot::{Receiver, Sender, channel};
use futures::future::join_all;

use super::*;

/// Records the requests of each call and returns ten times each number. A call waits for its result
/// if the test has announced one.
#[derive(Default)]
struct Server {
    calls: Mutex<Vec<Vec<usize>>>,
    ends: Mutex<VecDeque<Receiver<Result<()>>>>,
}

impl Server {
    /// Returns a sender for the result of the next call without one.
    fn next(&self) -> Sender<Result<()>> {
        let (sender, end) = channel();
        self.ends.lock().unwrap().push_back(end);
        sender
    }

    async fn call(self: Arc<Self>, requests: Vec<usize>) -> Result<Vec<usize>> {
        self.calls.lock().unwrap().push(requests.clone());
        let end = self.ends.lock().unwrap().pop_front();
        if let Some(end) = end {
            end.await.unwrap()?;
        }
        Ok(requests.into_iter().map(|number| 10 * number).collect())
    }

    fn calls(&self) -> Vec<Vec<usize>> {
        self.calls.lock().unwrap().clone()
    }
}

/// Polls the future up to nine times, and lets the other tasks run in between.
async fn once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    let mut polled = Poll::Pending;
    for _ in 0..9 {
        if polled.is_pending() {
            polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        tokio::task::yield_now().await;
    }
    polled
}

#[tokio::test]
async fn requests_that_arrive_during_a_call_share_the_next_call() {
    let (coalescer, server) = <(Arc<Coalescer<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let call = |number| coalescer.call(number, |all| server.clone().call(all));
    let mut all = pin!(join_all([1, 2, 3, 4].map(call)));

    assert!(once(all.as_mut()).await.is_pending());
    assert_eq!(server.calls(), [[1]], "nobody waits for others to come");
    end.send(Ok(())).unwrap();
    let results: Vec<_> = all.await.into_iter().map(Result::unwrap).collect();

    assert_eq!(results, [10, 20, 30, 40]);
    assert_eq!(server.calls(), [vec![1], vec![2, 3, 4]]);
}

#[tokio::test]
async fn a_call_contains_at_most_the_maximum_number_of_requests() {
    let (coalescer, server) = <(Arc<Coalescer<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let call = |number| coalescer.call(number, |all| server.clone().call(all));
    let mut all = pin!(join_all((0..2 * MAX_REQUESTS_PER_CALL + 5).map(call)));

    assert!(once(all.as_mut()).await.is_pending());
    end.send(Ok(())).unwrap();
    let results = all.await;

    assert!(results.into_iter().enumerate().all(|(n, result)| result.unwrap() == 10 * n));
    let sizes: Vec<usize> = server.calls().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, MAX_REQUESTS_PER_CALL, MAX_REQUESTS_PER_CALL, 4]);
}

#[tokio::test]
async fn a_request_dropped_while_waiting_is_not_sent() {
    let (coalescer, server) = <(Arc<Coalescer<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let mut first = pin!(coalescer.call(1, |all| server.clone().call(all)));
    let mut third = pin!(coalescer.call(3, |all| server.clone().call(all)));
    assert!(once(first.as_mut()).await.is_pending());
    {
        let mut second = pin!(coalescer.call(2, |all| server.clone().call(all)));
        assert!(once(second.as_mut()).await.is_pending());
        assert!(once(third.as_mut()).await.is_pending());
    }

    end.send(Ok(())).unwrap();

    assert_eq!((first.await.unwrap(), third.await.unwrap()), (10, 30));
    assert_eq!(server.calls(), [[1], [3]]);
}

#[tokio::test]
async fn dropping_the_calling_future_does_not_lose_the_other_results() {
    let (coalescer, server) = <(Arc<Coalescer<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let call = |number| coalescer.call(number, |all| server.clone().call(all));
    let mut caller = Box::pin(call(1));
    let mut others = Box::pin(join_all([2, 3].map(call)));
    assert!(once(caller.as_mut()).await.is_pending());
    assert!(once(others.as_mut()).await.is_pending());

    drop(caller);
    end.send(Ok(())).unwrap();
    let results: Vec<_> = others.await.into_iter().map(Result::unwrap).collect();

    assert_eq!(results, [20, 30]);
    assert_eq!(server.calls(), [vec![1], vec![2, 3]]);
}

#[tokio::test]
async fn after_a_call_without_a_result_each_waiting_caller_calls_alone() {
    let (coalescer, server) = <(Arc<Coalescer<_, _>>, Arc<Server>)>::default();
    let [end, never] = [server.next(), server.next()];
    let call = |number| coalescer.call(number, |all| server.clone().call(all));
    let mut all = Box::pin(join_all([1, 2, 3].map(call)));
    assert!(once(all.as_mut()).await.is_pending());

    end.send(Ok(())).unwrap();
    // The call panics.
    drop(never);
    let results: Vec<_> = all.await.into_iter().map(Result::unwrap).collect();

    assert_eq!(results, [10, 20, 30]);
    assert_eq!(server.calls(), [vec![1], vec![2, 3], vec![2], vec![3]]);
}

#[tokio::test]
async fn an_outage_fails_all_waiting_callers_and_other_errors_are_retried_alone() {
    for (error, failed, calls) in [
        (Error::database("accepting", "the disk is full"), MAX_REQUESTS_PER_CALL + 9, 2),
        (Error::corrupt("fan-out 7", "it is torn"), 0, MAX_REQUESTS_PER_CALL + 3),
    ] {
        let (coalescer, server) = <(Arc<Coalescer<_, _>>, Arc<Server>)>::default();
        let [first, second] = [server.next(), server.next()];
        let call = |number| coalescer.call(number, |all| server.clone().call(all));
        let mut all = Box::pin(join_all((0..MAX_REQUESTS_PER_CALL + 10).map(call)));
        assert!(once(all.as_mut()).await.is_pending());

        first.send(Ok(())).unwrap();
        second.send(Err(error)).unwrap();
        let results = all.await;

        let refused = results.iter().filter(|result| result.is_err()).count();
        assert_eq!((refused, server.calls().len()), (failed, calls));
    }
}

#[tokio::test]
async fn an_outage_of_a_single_request_fails_all_waiting_callers() {
    let (coalescer, server) = <(Arc<Coalescer<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let call = |number| coalescer.call(number, |all| server.clone().call(all));
    let mut all = Box::pin(join_all([1, 2, 3].map(call)));
    assert!(once(all.as_mut()).await.is_pending());

    end.send(Err(Error::database("accepting", "no answer"))).unwrap();
    let results = all.await;

    assert!(results.iter().all(Result::is_err), "{results:?}");
    assert_eq!(server.calls(), [[1]]);
}

#[tokio::test]
async fn the_error_of_a_single_request_is_returned_unchanged() {
    let (coalescer, server) = <(Arc<Coalescer<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    end.send(Err(Error::corrupt("fan-out 7", "it is torn"))).unwrap();

    let result = coalescer.call(1, |all| server.clone().call(all)).await;

    assert!(matches!(result, Err(Error::Corrupt { .. })), "{result:?}");
    assert_eq!(server.calls(), [[1]]);
}
