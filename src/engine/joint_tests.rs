//! Who waits goes with the next; who does not learn how it ended calls alone.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures::channel::oneshot::{Receiver, Sender, channel};
use futures::future::join_all;

use super::*;

/// What was asked, call by call. Each waits until it is told how it ends; without, it answers ten
/// times each number.
#[derive(Default)]
struct Server {
    calls: Mutex<Vec<Vec<usize>>>,
    ends: Mutex<VecDeque<Receiver<Result<()>>>>,
}

impl Server {
    /// How the next call ends that has no end yet.
    fn next(&self) -> Sender<Result<()>> {
        let (tell, end) = channel();
        self.ends.lock().unwrap().push_back(end);
        tell
    }

    async fn call(self: Arc<Self>, asked: Vec<usize>) -> Result<Vec<usize>> {
        self.calls.lock().unwrap().push(asked.clone());
        let end = self.ends.lock().unwrap().pop_front();
        if let Some(end) = end {
            end.await.unwrap()?;
        }
        Ok(asked.into_iter().map(|number| 10 * number).collect())
    }

    fn calls(&self) -> Vec<Vec<usize>> {
        self.calls.lock().unwrap().clone()
    }
}

/// Lets everybody come as far as they can.
async fn once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    let mut told = Poll::Pending;
    for _ in 0..9 {
        if told.is_pending() {
            told = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
        tokio::task::yield_now().await;
    }
    told
}

#[tokio::test]
async fn what_comes_while_a_call_is_under_way_goes_with_the_next() {
    let (joint, server) = <(Arc<Joint<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let call = |number| joint.call(number, |all| server.clone().call(all));
    let mut all = pin!(join_all([1, 2, 3, 4].map(call)));

    assert!(once(all.as_mut()).await.is_pending());
    assert_eq!(server.calls(), [[1]], "nobody waits for others to come");
    end.send(Ok(())).unwrap();
    let told: Vec<_> = all.await.into_iter().map(Result::unwrap).collect();

    assert_eq!(told, [10, 20, 30, 40]);
    assert_eq!(server.calls(), [vec![1], vec![2, 3, 4]]);
}

#[tokio::test]
async fn a_call_holds_no_more_than_the_most() {
    let (joint, server) = <(Arc<Joint<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let call = |number| joint.call(number, |all| server.clone().call(all));
    let mut all = pin!(join_all((0..2 * MOST + 5).map(call)));

    assert!(once(all.as_mut()).await.is_pending());
    end.send(Ok(())).unwrap();
    let told = all.await;

    assert!(
        told.into_iter()
            .enumerate()
            .all(|(n, told)| told.unwrap() == 10 * n)
    );
    let sizes: Vec<usize> = server.calls().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, MOST, MOST, 4]);
}

#[tokio::test]
async fn who_is_given_up_while_waiting_is_not_asked_for() {
    let (joint, server) = <(Arc<Joint<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let mut first = pin!(joint.call(1, |all| server.clone().call(all)));
    let mut third = pin!(joint.call(3, |all| server.clone().call(all)));
    assert!(once(first.as_mut()).await.is_pending());
    {
        let mut second = pin!(joint.call(2, |all| server.clone().call(all)));
        assert!(once(second.as_mut()).await.is_pending());
        assert!(once(third.as_mut()).await.is_pending());
    }

    end.send(Ok(())).unwrap();

    assert_eq!((first.await.unwrap(), third.await.unwrap()), (10, 30));
    assert_eq!(server.calls(), [[1], [3]]);
}

#[tokio::test]
async fn whoever_calls_may_be_given_up_and_all_are_told() {
    let (joint, server) = <(Arc<Joint<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    let call = |number| joint.call(number, |all| server.clone().call(all));
    let mut caller = Box::pin(call(1));
    let mut others = Box::pin(join_all([2, 3].map(call)));
    assert!(once(caller.as_mut()).await.is_pending());
    assert!(once(others.as_mut()).await.is_pending());

    drop(caller);
    end.send(Ok(())).unwrap();
    let told: Vec<_> = others.await.into_iter().map(Result::unwrap).collect();

    assert_eq!(told, [20, 30]);
    assert_eq!(server.calls(), [vec![1], vec![2, 3]]);
}

#[tokio::test]
async fn where_a_call_never_ends_each_calls_alone() {
    let (joint, server) = <(Arc<Joint<_, _>>, Arc<Server>)>::default();
    let [end, never] = [server.next(), server.next()];
    let call = |number| joint.call(number, |all| server.clone().call(all));
    let mut all = Box::pin(join_all([1, 2, 3].map(call)));
    assert!(once(all.as_mut()).await.is_pending());

    end.send(Ok(())).unwrap();
    // It panics.
    drop(never);
    let told: Vec<_> = all.await.into_iter().map(Result::unwrap).collect();

    assert_eq!(told, [10, 20, 30]);
    assert_eq!(server.calls(), [vec![1], vec![2, 3], vec![2], vec![3]]);
}

#[tokio::test]
async fn an_outage_is_told_to_all_who_wait_and_anything_else_to_whom_it_concerns() {
    for (error, failed, calls) in [
        (
            Error::database("accepting", "the disk is full"),
            MOST + 9,
            2,
        ),
        (Error::corrupt("fan-out 7", "it is torn"), 0, MOST + 3),
    ] {
        let (joint, server) = <(Arc<Joint<_, _>>, Arc<Server>)>::default();
        let [first, second] = [server.next(), server.next()];
        let call = |number| joint.call(number, |all| server.clone().call(all));
        let mut all = Box::pin(join_all((0..MOST + 10).map(call)));
        assert!(once(all.as_mut()).await.is_pending());

        first.send(Ok(())).unwrap();
        second.send(Err(error)).unwrap();
        let told = all.await;

        let refused = told.iter().filter(|told| told.is_err()).count();
        assert_eq!((refused, server.calls().len()), (failed, calls));
    }
}

#[tokio::test]
async fn an_error_of_a_call_alone_is_told_as_it_is() {
    let (joint, server) = <(Arc<Joint<_, _>>, Arc<Server>)>::default();
    let end = server.next();
    end.send(Err(Error::corrupt("fan-out 7", "it is torn")))
        .unwrap();

    let told = joint.call(1, |all| server.clone().call(all)).await;

    assert!(matches!(told, Err(Error::Corrupt { .. })), "{told:?}");
    assert_eq!(server.calls(), [[1]]);
}
