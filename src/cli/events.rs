//! `tidings notify`, `retract` and `flush`: accepts an event, retracts events, and discards the
//! pending events of a user. On SQLite, `notify` fans its event out at once.

use chrono::{DateTime, Utc};
use clap::{ArgGroup, Args as Arguments};

use super::batches::note_omitted;
use super::failure_text::{WithoutKeys, causes};
use super::fan_out::FanOutArgs;
use super::session::{Access, Exit, Session, phrases};
use crate::domain::details::Actor;
use crate::domain::name::join_names;
use crate::domain::{
    Audience, BrandName, Details, EventType, FanoutCounts, FanoutState, FollowKey, InvalidValue,
    ObjectId, Point, UserId,
};
use crate::engine;
use crate::engine::ingest::NewEvent;
use crate::wire::Flushed;
use crate::wire::event::{MAX_LISTED_NAMES, Notified, Receipt};

/// Notify users of an event
///
/// Accepts an event, as POST /v1/events does. With a key, it is safe to repeat. `import events -`
/// reads events with all fields.
#[derive(Debug, Arguments)]
#[command(group = ArgGroup::new("audience").required(true).args(["to", "followers_of", "near"]))]
#[command(override_usage = USAGE, after_help = AFTER_HELP)]
pub(super) struct NotifyArgs {
    /// Event type, such as ArtworkPublished
    #[arg(value_name = "TYPE")]
    kind: EventType,
    /// One or more object ids
    #[arg(value_name = "OBJECT", required = true)]
    objects: Vec<ObjectId>,
    /// Recipients: these users
    #[arg(long, value_name = "USER", num_args = 1..)]
    to: Vec<UserId>,
    /// Recipients: everyone who follows any of these keys, such as artist:558
    #[arg(long, value_name = "KEY", num_args = 1..)]
    followers_of: Vec<FollowKey>,
    /// Recipients: everyone within KM kilometers of this point, in degrees
    #[arg(long, value_name = "LNG,LAT,KM", value_parser = near, allow_hyphen_values = true)]
    near: Option<(Point, f64)>,
    /// Users to exclude from the recipients
    #[arg(long, value_name = "USER", num_args = 1..)]
    except: Vec<UserId>,
    /// Idempotency key: an event with a key that was accepted before is not accepted again
    #[arg(long)]
    key: Option<String>,
    /// Brand of the emails, instead of each user's; the type must be `branded`
    #[arg(long, value_name = "BRAND")]
    brand: Option<BrandName>,
    /// Id of the user who acted; they are not notified
    #[arg(long, value_name = "USER")]
    actor: Option<UserId>,
    /// The actor's name, shown instead of the id
    #[arg(long, value_name = "NAME", requires = "actor")]
    actor_name: Option<String>,
    /// Plain text to show in feeds and emails, such as a comment; up to 500 characters
    #[arg(long)]
    text: Option<String>,
    /// Time of the event, which determines its day [default: now]
    #[arg(long, value_name = "TIME", value_parser = phrases::parse_time)]
    at: Option<DateTime<Utc>>,
    #[command(flatten)]
    fan_out: FanOutArgs,
}

const USAGE: &str = "tidings notify [OPTIONS] <TYPE> <OBJECT>... \
    <--to <USER>...|--followers-of <KEY>...|--near <LNG,LAT,KM>>";

const AFTER_HELP: &str = "\
Examples:
  tidings notify ArtworkPublished A00001 A00002 --followers-of artist:558 --key publish-A00001
  tidings notify NearbyShow S17 --near -9.14,38.72,25 --except mara
  tidings notify Invited S17 --to mara ben --at \"2014-04-22 09:00\"";

/// Parses a point and a number of kilometers.
fn near(text: &str) -> Result<(Point, f64), String> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
    let Some(&[lng, lat, km]) = numbers.as_deref() else {
        return Err("not longitude, latitude and kilometers, such as -9.14,38.72,25".into());
    };
    let point = Point::new(lng, lat).map_err(|error| error.to_string())?;
    Ok((point, km))
}

impl NotifyArgs {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (app, screen) = (session.open(Access::Create).await?, &mut *session.screen);
        // A new database contains no users, so this may be the wrong folder.
        if session.is_new {
            let store = &app.config.store;
            screen.warning(format!("there was no database: created {store:?}"))?;
        }
        let request = self.request()?;
        let accepted = app.notify().accept(vec![request.clone()]).await;
        let receipt = accepted.map_err(|error| match request.key {
            Some(_) => error.into(),
            None => WithoutKeys::add_to(error),
        })?[0];
        // The event is accepted, so this must not fail: the caller would post the event again.
        let fanned_out = self.fan_out.run(&app, screen).await.unwrap_or_default();
        let mut failures = Vec::from_iter(fanned_out.failure_text());
        let mut add_failure = |what: &str, error: engine::Error| {
            failures.push(format!("{what} could not be determined: {}", causes(&error.into())));
        };
        let progress = match app.notify().find(receipt.id).await {
            Ok(Some(fanout)) => Some((fanout.state, fanout.progress.counts)),
            Ok(None) => Some((FanoutState::Pending, FanoutCounts::default())),
            Err(error) => {
                add_failure("the progress of the fan-out", error);
                None
            }
        };
        let warnings = app.name_lookup().warnings(&request).await;
        let mut warnings = warnings.unwrap_or_else(|error| {
            add_failure("which users will not see it", error);
            Vec::new()
        });
        let exit = Exit::Done.partly_unless(fanned_out.is_complete() && failures.is_empty());
        if !failures.is_empty() {
            warnings.append(&mut failures);
            warnings.push("the event is accepted; do not post it again".into());
        }
        let notified = Notified {
            receipt,
            state: progress.map(|(state, _)| state),
            counts: progress.map(|(_, counts)| counts),
            bad_stacks: &fanned_out.done.bad_stacks,
            bad_fanouts: &fanned_out.done.bad_fanouts,
            warnings,
        };
        if !screen.answer(&notified)? {
            screen.line(describe_receipt(receipt, progress))?;
            screen.warnings(notified.warnings)?;
        }
        Ok(exit)
    }

    fn request(&self) -> Result<NewEvent, InvalidValue> {
        let audience = match self.near {
            Some((point, km)) => Audience::near(point, km)?,
            None if self.to.is_empty() => Audience::followers_of(self.followers_of.clone())?,
            None => Audience::users(self.to.clone())?,
        };
        let actor = self.actor.clone().map(|id| {
            let name = self.actor_name.clone();
            Actor { name, ..Actor::bare(id) }
        });
        Ok(NewEvent {
            kind: self.kind.clone(),
            objects: self.objects.clone(),
            audience: audience.except(self.except.iter().chain(&self.actor).cloned()),
            key: self.key.clone(),
            batch_key: None,
            details: Details {
                actor,
                brand: self.brand.clone(),
                text: self.text.clone(),
                ..Details::default()
            },
            at: self.at,
        })
    }
}

fn describe_receipt(receipt: Receipt, progress: Option<(FanoutState, FanoutCounts)>) -> String {
    let accepted = if receipt.duplicate { "accepted before under this key" } else { "accepted" };
    let progress = match progress {
        None => String::new(),
        Some((FanoutState::Pending, _)) => ": a worker fans it out (tidings worker --once)".into(),
        Some((FanoutState::Done, counts)) => phrases::list([
            Some(format!(": reached {}", phrases::users(counts.people))),
            phrases::nonzero(counts.capped, "entries did not fit into full days"),
        ]),
    };
    format!("{accepted}{progress}  fan-out {}", receipt.id)
}

/// Retract events: remove them from feeds and unsent emails
///
/// Removes all earlier events of this type about these objects from feeds and their counts,
/// digests, batches and unsent emails. This includes accepted events that are not fanned out yet.
/// Later events about the same objects are not affected.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Examples:
  tidings retract Comment c17 c18")]
pub(super) struct RetractArgs {
    #[arg(value_name = "TYPE")]
    kind: EventType,
    #[arg(required = true, value_name = "OBJECT")]
    objects: Vec<ObjectId>,
}

impl RetractArgs {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (app, screen) = (session.open(Access::Write).await?, &mut *session.screen);
        let retracted = app.objects().retract(&self.kind, &self.objects).await?;
        screen.warnings(&retracted.warnings)?;
        if screen.answer(&retracted)? {
            return Ok(Exit::Done);
        }
        let (kind, objects) = (&self.kind, join_names(&retracted.objects, MAX_LISTED_NAMES));
        screen.line(format!("retracted: {kind} about {objects}"))?;
        let removed = retracted.removed_events;
        if let Some(events) = phrases::nonzero_count(removed.removed, "event", "events") {
            screen.line(format!("{events} removed from open batches"))?;
        }
        note_omitted(screen, removed)?;
        Ok(Exit::Done)
    }
}

/// Discard a user's pending events, so that no digest includes them
///
/// Later events are emailed as usual, and the feed still shows all events.
#[derive(Debug, Arguments)]
pub(super) struct FlushArgs {
    user: UserId,
}

impl FlushArgs {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (app, screen) = (session.open(Access::Write).await?, &mut *session.screen);
        let user = &self.user;
        let flushed = app.backlog().flush(user).await?;
        if !screen.answer(&Flushed { user, flushed })? {
            let events = phrases::events(flushed);
            let pronoun = if flushed == 1 { "it" } else { "them" };
            screen.line(match flushed {
                0 => format!("nothing is pending for {user}"),
                _ => format!("flushed {events} pending for {user}: no digest includes {pronoun}"),
            })?;
        }
        Ok(Exit::Done)
    }
}
