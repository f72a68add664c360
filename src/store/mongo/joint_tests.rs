//! Tests that waiting statements share a command, and that a caller without a result writes alone.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use futures::channel::oneshot::{Receiver, Sender, channel};
use futures::future::join_all;

use super::*;

/// Records the statements of each command. A command waits until the test sends its result.
#[derive(Default)]
struct Server {
    commands: Mutex<Vec<Vec<&'static str>>>,
    ends: Mutex<VecDeque<Receiver<Result<bool>>>>,
}

impl Server {
    /// Returns a sender for the result of the next command without one.
    fn next(&self) -> Sender<Result<bool>> {
        let (tell, end) = channel();
        self.ends.lock().unwrap().push_back(end);
        tell
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
async fn what_comes_while_a_command_is_under_way_goes_with_the_next() {
    let (joint, server) = (Joint::default(), Server::default());
    let end = server.next();
    let write = |key: &'static str| joint.write(key, key, |all| server.write(all));
    let mut all = pin!(join_all(["ada", "ben", "cem", "dia"].map(write)));

    assert!(once(all.as_mut()).is_pending());
    assert_eq!(server.commands(), [["ada"]]);
    end.send(Ok(true)).unwrap();
    let done = all.await;

    assert!(done.into_iter().all(|done| done.unwrap()));
    assert_eq!(server.commands(), [vec!["ada"], vec!["ben", "cem", "dia"]]);
}

#[tokio::test]
async fn of_one_key_a_command_has_one_statement() {
    let (joint, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let write = |(key, what): (&str, &'static str)| {
        let key = key.to_owned();
        let (joint, server) = (&joint, &server);
        async move { joint.write(&key, what, |all| server.write(all)).await }
    };
    let asked = [("x", "x1"), ("ada", "a1"), ("ada", "a2"), ("ben", "b1")];
    let mut all = pin!(join_all(asked.map(write)));

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
async fn what_waits_behind_one_that_was_not_done_is_tried() {
    let (joint, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let write = |what: &'static str| joint.write("ada", what, |all| server.write(all));
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
async fn where_only_some_were_done_each_finds_out_about_its_own() {
    let (joint, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next(), server.next()];
    let write = |key: &'static str| joint.write(key, key, |all| server.write(all));
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
async fn all_who_were_in_a_command_that_fails_are_told() {
    let (joint, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let write = |key: &'static str| joint.write(key, key, |all| server.write(all));
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
async fn who_is_given_up_while_writing_for_others_leaves_them_to_themselves() {
    let (joint, server) = (Joint::default(), Server::default());
    let ends = [server.next(), server.next()];
    let write = |key: &'static str| Box::pin(joint.write(key, key, |all| server.write(all)));
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
async fn what_was_given_up_while_it_waited_is_not_written() {
    let (joint, server) = (Joint::default(), Server::default());
    let end = server.next();
    let write = |key: &'static str| Box::pin(joint.write(key, key, |all| server.write(all)));
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
