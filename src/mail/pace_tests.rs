//! Whether the pace is kept, on a clock that the tests turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::advance;

use super::super::http::tests::{kind, mail};
use super::*;

/// The call that it is asked about once too often.
const TOO_MANY: &str = "once too often";

/// Answers after so long, and remembers when it was called.
struct Slow {
    takes: Duration,
    calls: Mutex<Vec<Instant>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    answers: Mutex<Vec<Outcome>>,
}

#[async_trait]
impl Mailer for Slow {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        vec![(0..messages.len()).collect()]
    }

    async fn send(&self, _reference: &str, messages: &[Message], _leave: &Leave) -> Vec<Outcome> {
        self.calls.lock().unwrap().push(Instant::now());
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        sleep(self.takes).await;
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        let accepted = Outcome::Accepted {
            provider_id: "1".into(),
        };
        let answer = self.answers.lock().unwrap().pop();
        vec![answer.unwrap_or(accepted); messages.len()]
    }

    fn certainty(&self) -> Certainty {
        Certainty::Ask
    }

    async fn ask(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<Answer> {
        let answer = match reference {
            TOO_MANY => Answer::Silent(Silence {
                reason: "too many questions".into(),
                after: Some(Duration::from_secs(3600)),
            }),
            _ => Answer::NotTaken,
        };
        vec![answer; deliveries.len()]
    }

    async fn check(&self) -> Checked {
        Checked::ready("slow")
    }

    fn name(&self) -> &str {
        "slow"
    }
}

fn paced(takes: Duration, per_second: u32, at_once: usize) -> (Arc<Slow>, Paced) {
    let slow = Arc::new(Slow {
        takes,
        calls: Mutex::default(),
        at_once: AtomicUsize::new(0),
        most_at_once: AtomicUsize::new(0),
        answers: Mutex::default(),
    });
    let pace = Pace {
        per_second: NonZeroU32::new(per_second).unwrap(),
        at_once,
        patience: Duration::from_secs(60),
    };
    (slow.clone(), Paced::new(slow, pace))
}

fn later(seconds: u64) -> Outcome {
    Outcome::TryLater {
        reason: "429".into(),
        after: Some(Duration::from_secs(seconds)),
    }
}

async fn send(paced: &Paced) -> String {
    kind(
        &paced
            .send("ref", &[mail("ada", "x")], &Leave::always())
            .await[0],
    )
}

#[tokio::test(start_paused = true)]
async fn calls_begin_evenly_and_no_faster_than_the_rate() {
    let (slow, paced) = paced(Duration::ZERO, 5, 100);
    let start = Instant::now();

    futures::future::join_all((0..11).map(|_| send(&paced))).await;

    let calls = slow.calls.lock().unwrap();
    let since: Vec<_> = calls.iter().map(|at| (*at - start).as_millis()).collect();
    assert_eq!(since.len(), 11);
    for (n, at) in since.iter().enumerate() {
        let due = n as u128 * 200;
        assert!((due..due + 20).contains(at), "{since:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_under_way_than_allowed() {
    let (slow, paced) = paced(Duration::from_secs(3), 1000, 2);

    futures::future::join_all((0..7).map(|_| send(&paced))).await;

    assert_eq!(slow.most_at_once.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_try_later_nobody_calls_before_its_time() {
    let (slow, paced) = paced(Duration::ZERO, 1000, 1);
    slow.answers.lock().unwrap().push(later(30));
    let start = Instant::now();

    let outcomes = futures::future::join_all((0..3).map(|_| send(&paced))).await;

    assert_eq!(
        outcomes,
        ["later, in 30 s", "accepted as 1", "accepted as 1"]
    );
    let calls = slow.calls.lock().unwrap();
    assert!(calls[1] - start >= Duration::from_secs(30), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_turn_hears_of_the_quiet_that_began_meanwhile() {
    let (slow, paced) = paced(Duration::from_millis(100), 4, 4);
    slow.answers.lock().unwrap().push(later(10));
    let start = Instant::now();

    // The second waits for its turn at 250 ms; the first is told at 100 ms to leave the provider
    // alone.
    futures::future::join_all((0..2).map(|_| send(&paced))).await;

    let calls = slow.calls.lock().unwrap();
    assert!(
        calls[1] - start >= Duration::from_millis(10_100),
        "{calls:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_for_nobody_and_takes_nobodys_turn() {
    let (slow, paced) = paced(Duration::from_millis(1), 1, 1);
    slow.answers.lock().unwrap().push(later(30));
    send(&paced).await;
    let began = Instant::now();

    for _ in 0..100 {
        assert_eq!(paced.check().await, Checked::ready("slow"));
    }

    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(slow.calls.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_quiet_is_not_waited_out_but_told() {
    let (slow, paced) = paced(Duration::ZERO, 1000, 1);
    slow.answers.lock().unwrap().push(later(3600));
    send(&paced).await;
    advance(Duration::from_secs(600)).await;

    assert_eq!(send(&paced).await, "later, in 3000 s");
    let asked = paced.ask("ref", &[mail("ada", "x").delivery]).await;
    assert!(matches!(asked[0], Answer::Silent(_)), "{asked:?}");
    assert_eq!(slow.calls.lock().unwrap().len(), 1);

    advance(Duration::from_secs(3000)).await;
    assert_eq!(send(&paced).await, "accepted as 1");
    assert_eq!(
        paced.ask("ref", &[mail("ada", "x").delivery]).await,
        [Answer::NotTaken]
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_question_is_answered_with_holds_for_calls_too() {
    let (slow, paced) = paced(Duration::ZERO, 1000, 1);

    paced.ask(TOO_MANY, &[mail("ada", "x").delivery]).await;
    advance(Duration::from_secs(600)).await;

    assert_eq!(send(&paced).await, "later, in 3000 s");
    assert!(slow.calls.lock().unwrap().is_empty());
}
