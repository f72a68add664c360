//! Tests that waiting statements share a command, and that a caller without a result writes alone.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures::channel::oneshot::{Receiver, Sender, channel};
use futures::future::join_all;

use super::*;

/// Records the statements of each command. A command waits for its result if the test has announced
/// one; otherwise it succeeds.
#[derive(Default)]
struct Server {
    commands: Mutex<Vec<Vec<&'static str>>>,
    ends: Mutex<VecDeque<Receiver<Result<bool>>>>,
}

impl Server {
    /// Returns a sender for the result of the next command without one.
    fn next(&self) -> Sender<Result<bool>> {
        let (sender, end) = channel();
        self.ends.lock().unwrap().push_back(end);
        sender
    }

    async fn write(&self, statements: Vec<(String, &'static str)>) -> Result<bool> {
        let statements = statements.into_iter().map(|(_, statement)| statement);
        self.commands.lock().unwrap().push(statements.collect());
        let end = self.ends.lock().unwrap().pop_front();
        match end {
            Some(end) => end.await.unwrap(),
            None => Ok(true),
        }
    }

    fn commands(&self) -> Vec<Vec<&'static str>> {
        self.commands.lock().unwrap().clone()
    }
}

fn once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn failed() -> Result<bool> {
    Err(Error::database("putting", "the disk is full"))
}

#[tokio::test]
async fn statements_that_arrive_during_a_command_share_the_next_command() {
    let (coalescer, server) = (Joint::default(), Server::default());
    let end = server.next();
    let write = |key: &'static str| coalescer.write(key, key, |all| server.write(all));
    let mut all = pin!(join_all(["ada", "ben", "cem", "dia"].map(write)));

    assert!(once(all.as_mut()).is_pending());
    assert_eq!(server.commands(), [["ada"]]);
    end.send(Ok(true)).unwrap();
    let done = all.await;

    assert!(done.into_iter().all(|done| done.unwrap()));
    assert_eq!(server.commands(), [vec!["ada"], vec!["ben", "cem", "dia"]]);
}

#[tokio::test]
async fn a_command_has_at_most_one_statement_for_each_key() {
    let (coalescer, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let write = |(key, what): (&str, &'static str)| {
        let key = key.to_owned();
        let (coalescer, server) = (&coalescer, &server);
        async move { coalescer.write(&key, what, |all| server.write(all)).await }
    };
    let writes = [("x", "x1"), ("ada", "a1"), ("ada", "a2"), ("ben", "b1")];
    let mut all = pin!(join_all(writes.map(write)));

    for end in ends {
        assert!(once(all.as_mut()).is_pending());
        end.send(Ok(true)).unwrap();
    }
    let done = all.await.into_iter().map(Result::unwrap);

    // The second statement for `ada` compares with a replaced revision.
    assert_eq!(done.collect::<Vec<_>>(), [true, true, false, true]);
    assert_eq!(server.commands(), [vec!["x1"], vec!["a1", "b1"]]);
}

#[tokio::test]
async fn a_statement_is_tried_after_an_earlier_one_for_its_key_failed() {
    let (coalescer, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let write = |what: &'static str| coalescer.write("ada", what, |all| server.write(all));
    let mut all = pin!(join_all(["a1", "a2"].map(write)));

    for (end, done) in ends.into_iter().zip([false, true]) {
        assert!(once(all.as_mut()).is_pending());
        end.send(Ok(done)).unwrap();
    }
    let done = all.await.into_iter().map(Result::unwrap);

    assert_eq!(done.collect::<Vec<_>>(), [false, true]);
    assert_eq!(server.commands(), [["a1"], ["a2"]]);
}

#[tokio::test]
async fn after_an_incomplete_command_each_caller_writes_alone() {
    let (coalescer, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next(), server.next()];
    let write = |key: &'static str| coalescer.write(key, key, |all| server.write(all));
    let mut all = pin!(join_all(["x", "ada", "ben"].map(write)));

    let [first, some, ada] = ends;
    assert!(once(all.as_mut()).is_pending());
    first.send(Ok(false)).unwrap();
    assert!(once(all.as_mut()).is_pending());
    some.send(Ok(false)).unwrap();
    ada.send(Ok(false)).unwrap();
    let done = all.await.into_iter().map(Result::unwrap);

    // The first was alone, so its result is final. Of the last two, one succeeded on its own.
    assert_eq!(done.collect::<Vec<_>>(), [false, false, true]);
    let commands = server.commands();
    assert_eq!(commands[..2], [vec!["x"], vec!["ada", "ben"]]);
    assert_eq!(commands[2..], [["ada"], ["ben"]]);
}

#[tokio::test]
async fn a_failed_command_fails_all_its_callers() {
    let (coalescer, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let write = |key: &'static str| coalescer.write(key, key, |all| server.write(all));
    let mut all = pin!(join_all(["x", "ada", "ben"].map(write)));

    for (end, ended) in ends.into_iter().zip([Ok(true), failed()]) {
        assert!(once(all.as_mut()).is_pending());
        end.send(ended).unwrap();
    }
    let done = all.await;

    assert!(done[0].as_ref().unwrap());
    for failed in &done[1..] {
        let Err(Error::Database { doing, cause }) = failed else {
            panic!("{failed:?}");
        };
        assert_eq!(
            (doing.as_str(), cause.to_string()),
            ("putting", "the disk is full".into())
        );
    }
    assert_eq!(server.commands().len(), 2);
}

#[tokio::test]
async fn after_the_writing_future_is_dropped_the_others_write_alone() {
    let (coalescer, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let write = |key: &'static str| Box::pin(coalescer.write(key, key, |all| server.write(all)));
    let (mut x, mut ada, mut ben) = (write("x"), write("ada"), write("ben"));
    for future in [&mut x, &mut ada, &mut ben] {
        assert!(once(future.as_mut()).is_pending());
    }
    let [first, _never] = ends;
    first.send(Ok(true)).unwrap();
    assert!(x.await.unwrap());
    assert!(once(ada.as_mut()).is_pending());
    assert_eq!(server.commands(), [vec!["x"], vec!["ada", "ben"]]);

    drop(ada);

    assert!(ben.await.unwrap());
    assert_eq!(server.commands()[2..], [["ben"]]);
}

#[tokio::test]
async fn a_statement_dropped_while_waiting_is_not_written() {
    let (coalescer, server) = (Joint::default(), Server::default());
    let end = server.next();
    let write = |key: &'static str| Box::pin(coalescer.write(key, key, |all| server.write(all)));
    let (mut x, mut ada, mut ben) = (write("x"), write("ada"), write("ben"));
    for future in [&mut x, &mut ada, &mut ben] {
        assert!(once(future.as_mut()).is_pending());
    }

    drop(ada);
    end.send(Ok(true)).unwrap();
    x.await.unwrap();
    ben.await.unwrap();

    assert_eq!(server.commands(), [["x"], ["ben"]]);
}
