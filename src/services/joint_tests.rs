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

    async fn call(&self, asked: Vec<usize>) -> Result<Vec<usize>> {
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

fn once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn what_comes_while_a_call_is_under_way_goes_with_the_next() {
    let (joint, server) = (Joint::default(), Server::default());
    let end = server.next();
    let call = |number| joint.call(number, |all| server.call(all));
    let mut all = pin!(join_all([1, 2, 3, 4].map(call)));

    assert!(once(all.as_mut()).is_pending());
    assert_eq!(server.calls(), [[1]], "nobody waits for others to come");
    end.send(Ok(())).unwrap();
    let told: Vec<_> = all.await.into_iter().map(Result::unwrap).collect();

    assert_eq!(told, [10, 20, 30, 40]);
    assert_eq!(server.calls(), [vec![1], vec![2, 3, 4]]);
}

#[tokio::test]
async fn a_call_holds_no_more_than_the_most() {
    let (joint, server) = (Joint::default(), Server::default());
    let end = server.next();
    let call = |number| joint.call(number, |all| server.call(all));
    let mut all = pin!(join_all((0..2 * MOST + 5).map(call)));

    assert!(once(all.as_mut()).is_pending());
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
    let (joint, server) = (Joint::default(), Server::default());
    let end = server.next();
    let mut first = pin!(joint.call(1, |all| server.call(all)));
    let mut third = pin!(joint.call(3, |all| server.call(all)));
    assert!(once(first.as_mut()).is_pending());
    {
        let mut second = pin!(joint.call(2, |all| server.call(all)));
        assert!(once(second.as_mut()).is_pending());
        assert!(once(third.as_mut()).is_pending());
    }

    end.send(Ok(())).unwrap();

    assert_eq!((first.await.unwrap(), third.await.unwrap()), (10, 30));
    assert_eq!(server.calls(), [[1], [3]]);
}

#[tokio::test]
async fn where_whoever_calls_is_given_up_each_calls_alone() {
    let (joint, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let call = |number| joint.call(number, |all| server.call(all));
    let mut first = Box::pin(call(1));
    assert!(once(first.as_mut()).is_pending());
    let (mut caller, mut others) = (Box::pin(call(2)), Box::pin(join_all([3, 4].map(call))));
    assert!(once(caller.as_mut()).is_pending());
    assert!(once(others.as_mut()).is_pending());
    let [end, _never] = ends;
    end.send(Ok(())).unwrap();
    assert!(once(first.as_mut()).is_ready());
    assert!(once(caller.as_mut()).is_pending());
    assert_eq!(server.calls(), [vec![1], vec![2, 3, 4]]);

    drop(caller);
    let told: Vec<_> = others.await.into_iter().map(Result::unwrap).collect();

    assert_eq!(told, [30, 40]);
    assert_eq!(server.calls()[2..], [[3], [4]]);
}

#[tokio::test]
async fn an_outage_is_told_to_all_and_anything_else_to_whom_it_concerns() {
    for (error, calls) in [
        (Error::database("accepting", "the disk is full"), 2),
        (Error::corrupt("fan-out 7", "it is torn"), 4),
    ] {
        let is_outage = error.is_outage();
        let (joint, server) = (Joint::default(), Server::default());
        let ends = [server.next(), server.next()];
        let call = |number| joint.call(number, |all| server.call(all));
        let mut all = pin!(join_all([1, 2, 3].map(call)));
        assert!(once(all.as_mut()).is_pending());
        let [first, second] = ends;

        first.send(Ok(())).unwrap();
        second.send(Err(error)).unwrap();
        let told = all.await;

        let failed = told.iter().filter(|told| told.is_err()).count();
        assert_eq!(failed, if is_outage { 2 } else { 0 });
        assert_eq!(server.calls().len(), calls);
    }
}

#[tokio::test]
async fn an_error_of_a_call_alone_is_told_as_it_is() {
    let (joint, server) = (Joint::default(), Server::default());
    let end = server.next();
    end.send(Err(Error::corrupt("fan-out 7", "it is torn")))
        .unwrap();

    let told = joint.call(1, |all| server.call(all)).await;

    assert!(matches!(told, Err(Error::Corrupt { .. })), "{told:?}");
    assert_eq!(server.calls(), [[1]]);
}
