//! Whether a call may be made now: so many a second, what the provider asks for, what goes wrong,
//! the pause, and the limit an operator sets.
//!
//! The rule: nothing is sent while the provider asks for patience, in any process ([`shared`]), or
//! while mails are paused, until a person resumes ([`pause`]). Each call waits for its turn
//! ([`pacer`]), and asks what all processes know once more right before it is made: what one hears
//! meanwhile holds for those that wait. The operator's limit holds over all processes: whoever has
//! the lease `pace` may send, and it lasts as long as the mails are to take. A process that stood
//! still finds out by the wall clock and the monotonic clock before anything goes out: half a lease
//! after it last had the store's word it has no leave any more, so that clocks of several machines
//! need not agree to the second. Whoever takes over counts on it ([`super::retry`]).

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::domain::{BrandName, Lease, Pause, Sending};
use crate::email::{Leave, Mailer, Standing};
use crate::engine::Result;

mod lately;
mod pacer;
mod pause;
mod shared;

pub use pacer::{Pacer, Turn};

/// Says whether a call may be made now.
#[derive(Clone)]
pub struct Gate {
    pub(crate) context: Arc<Context>,
    /// The name of this process at this account, under which it holds leases.
    pub owner: String,
    /// The limits: mails an hour, leases, and the shares that stop everything.
    pub settings: Sending,
    /// How the references of all calls begin that are made for this brand at the mailer's account.
    pub account_prefix: String,
    /// What tells the account from others, whichever brands share it.
    pub account: Account,
    /// What holds calls back that this process knows of; shared by all that send in it.
    pub(crate) pacer: Arc<Pacer>,
}

/// Whether calls may be made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateState {
    /// A call may be made at once.
    Open,
    /// Not before then: the provider or our own limit asks for patience.
    ClosedUntil(DateTime<Utc>),
    /// Not until somebody resumes.
    Paused(Pause),
    /// Not by this process, which is to end.
    Stopping,
}

/// Why a mail is held back, and until when if that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub until: Option<DateTime<Utc>>,
    pub reason: String,
}

impl From<String> for Held {
    fn from(reason: String) -> Self {
        let until = None;
        Self { until, reason }
    }
}

impl GateState {
    /// Why a mail waits that this holds back.
    pub(super) fn holds(&self) -> Held {
        match self {
            Self::Open => "it waits".to_owned().into(),
            Self::ClosedUntil(until) => Held {
                until: Some(*until),
                reason: "it waits for its turn".to_owned(),
            },
            Self::Paused(pause) => format!("sending is paused: {}", pause.reason).into(),
            Self::Stopping => "the process that held it ended".to_owned().into(),
        }
    }
}

/// How soon the limit is asked again where another process has used it up.
const ASK_AGAIN: TimeDelta = TimeDelta::seconds(5);

/// The longest time between the checks of an email and the begin of its call (P6, P7).
pub(super) const FRESH: TimeDelta = TimeDelta::seconds(2);

/// How the references of all calls begin that are made at this mailer's account, for mails of this
/// brand: whoever finds one later knows which brand it was made for.
pub fn account_prefix(mailer: &dyn Mailer, brand: Option<&BrandName>) -> String {
    match brand {
        Some(brand) => prefix(&format!("{}\0{brand}", mailer.account())),
        None => prefix(&mailer.account()),
    }
}

fn prefix(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..4]) + "-"
}

/// An account at a provider, as notes name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// What stands for it.
    pub name: String,
    /// Whether it is the one that is no brand's own.
    pub is_default: bool,
}

impl Account {
    /// The default's, at this mailer.
    pub fn of_default(mailer: &dyn Mailer) -> Self {
        Self {
            name: account_prefix(mailer, None),
            is_default: true,
        }
    }

    /// A brand's own, which this tells from any other.
    pub fn of_brand(told_apart: &str) -> Self {
        Self {
            name: prefix(told_apart),
            is_default: false,
        }
    }
}

impl Gate {
    /// Waits for its turn to make calls; others wait until this is dropped, in the order in which
    /// they came.
    pub async fn turn(&self) -> Turn {
        self.pacer.turn().await
    }

    /// Whether anything may be begun at this moment.
    pub async fn before_chunk(&self) -> Result<GateState> {
        match self.before_call().await? {
            GateState::Open => {
                let paced = self.pacer.paced(self.context.clock.now());
                Ok(paced.map_or(GateState::Open, GateState::ClosedUntil))
            }
            held => Ok(held),
        }
    }

    /// Waits until the rate limit permits one more call.
    pub(super) async fn permit(&self) {
        while let Some(wait) = self.pacer.too_soon() {
            sleep(wait).await;
        }
    }

    /// Checks right before a call that it may be made; `Err` says why not.
    pub(super) async fn before_send(&self, leave: &Leave) -> std::result::Result<(), Held> {
        if let Some(reason) = leave.withheld() {
            return Err(reason.into());
        }
        match self.before_call().await {
            Ok(GateState::Open) => Ok(()),
            Ok(held) => Err(held.holds()),
            Err(error) => {
                Err(format!("the store does not say whether it may leave: {error}").into())
            }
        }
    }

    /// How many rows are taken in hand together: under a limit, what may leave in a minute.
    pub fn chunk(&self) -> usize {
        let chunk = self.settings.chunk;
        match self.settings.mails_per_hour as usize {
            0 => chunk,
            limit => chunk.min((limit / 60).max(1)),
        }
    }

    /// Asks for leave to send so many mails; if there is none now, answers when to ask again.
    pub(super) async fn pace(&self, mails: usize) -> Result<Option<DateTime<Utc>>> {
        let limit = i64::from(self.settings.mails_per_hour);
        if limit == 0 {
            return Ok(None);
        }
        let now = self.context.clock.now();
        let until = now + TimeDelta::milliseconds(3_600_000 * mails as i64 / limit);
        let asked = self.pacer.asks();
        // Each time as somebody else: the holder of a lease could extend it.
        let lease = Lease {
            owner: format!("{}-{asked}", self.owner),
            until,
        };
        let granted = self.context.store.lease("pace", &lease, now).await?;
        let next = if granted {
            until
        } else {
            until.min(now + ASK_AGAIN)
        };
        self.pacer.pace_until(next);
        Ok((!granted).then_some(next))
    }

    /// Leave to hand over mails of a call that is first made at `tried`, and whose lease is about
    /// to begin anew.
    pub(super) fn leave(&self, tried: DateTime<Utc>) -> Leave {
        let (now, lease) = (self.context.clock.now(), self.settings.lease);
        let until = (now + lease / 2).min(tried + lease);
        let (begun, span) = (Instant::now(), (until - now).to_std().unwrap_or_default());
        let (clock, pacer) = (self.context.clock.clone(), self.pacer.clone());
        Leave::new(move || {
            if clock.now() >= until || begun.elapsed() >= span {
                Standing::Over
            } else if pacer.ending() {
                Standing::Ending
            } else {
                Standing::Given
            }
        })
    }

    /// The same leave, which also ends when no call has begun soon after these checks.
    pub(super) fn fresh(&self, leave: Leave, checked: DateTime<Utc>) -> Leave {
        let clock = self.context.clock.clone();
        Leave::new(move || match leave.standing() {
            Standing::Given if clock.now() - checked > FRESH => Standing::Stale,
            standing => standing,
        })
    }
}
