//! `tidings notify`: accepts an event and, on SQLite, fans it out at once.

use chrono::{DateTime, Utc};
use clap::{ArgGroup, Args as Arguments};

use super::exit::{Exit, WithoutKeys, causes};
use super::fan_out::{FanOut, FanOutEnd};
use super::ink::Ink;
use super::passed_over::{bad_stacks, passed_over};
use super::screen::Screen;
use super::{time, words};
use crate::app::App;
use crate::domain::details::Actor;
use crate::domain::{
    Audience, BrandName, ChosenKey, Counts, Details, EventType, FanoutState, FollowKey, Invalid,
    Json, ObjectId, Point, UserId,
};
use crate::engine::ingest::notify::Request;
use crate::wire::event::{Notified, Receipt};

/// Tell people that something happened
///
/// Accepts an event, as POST /v1/events does. With a key, it is safe to repeat.
#[derive(Debug, Arguments)]
#[command(
    group = ArgGroup::new("audience").required(true).args(["to", "followers_of", "near"]),
    override_usage = "tidings notify [OPTIONS] <TYPE> <OBJECT>... \
        <--to <USER>...|--followers-of <KEY>...|--near <LNG,LAT,KM>>",
    after_help = AFTER_HELP
)]
pub(super) struct Args {
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
    /// Recipients: everyone within KM kilometers of this place, in degrees
    #[arg(long, value_name = "LNG,LAT,KM", value_parser = near, allow_hyphen_values = true)]
    near: Option<Near>,
    /// Users to exclude from the recipients
    #[arg(long, value_name = "USER", num_args = 1..)]
    except: Vec<UserId>,
    /// Idempotency key: an event with a key that was accepted before is not accepted again
    #[arg(long)]
    key: Option<String>,
    /// Batch the event by this key instead of by its type
    #[arg(long, value_name = "KEY")]
    batch_key: Option<ChosenKey>,
    /// Brand of the emails, instead of each user's; the type must be `branded`
    #[arg(long, value_name = "BRAND")]
    brand: Option<BrandName>,
    /// Id of the user who acted; they are not notified
    #[arg(long, value_name = "USER")]
    actor: Option<UserId>,
    /// The actor's name, shown instead of the id
    #[arg(long, value_name = "NAME", requires = "actor")]
    actor_name: Option<String>,
    /// URL of the actor's picture, https:// or http://
    #[arg(long, value_name = "URL", requires = "actor")]
    actor_image: Option<String>,
    /// Plain text to show in feeds and emails, such as a comment; up to 500 characters
    #[arg(long)]
    text: Option<String>,
    /// More data for your feed, up to 2 KiB of JSON
    #[arg(long, value_name = "JSON", value_parser = json)]
    data: Option<Json>,
    /// Time of the event, which determines its day [default: now]
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    at: Option<DateTime<Utc>>,
    #[command(flatten)]
    fan_out: FanOut,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  tidings notify ArtworkPublished A00001 A00002 --followers-of artist:558 --key publish-A00001
  tidings notify NearbyShow S17 --near -9.14,38.72,25 --except mara
  tidings notify Invited S17 --to mara ben --at \"2014-04-22 09:00\"";

#[derive(Debug, Clone, Copy)]
struct Near {
    point: Point,
    km: f64,
}

fn json(text: &str) -> Result<Json, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

fn near(text: &str) -> Result<Near, String> {
    let numbers: Option<Vec<f64>> = text
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect();
    let Some([lng, lat, km]) = numbers.as_deref() else {
        return Err("not longitude, latitude and kilometers, such as -9.14,38.72,25".into());
    };
    let point = Point::new(*lng, *lat).map_err(|error| error.to_string())?;
    Ok(Near { point, km: *km })
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let request = self.request()?;
        let accepted = app.notify().accept(vec![request.clone()]).await;
        let accepted = accepted.map_err(|error| match request.key {
            Some(_) => error.into(),
            None => WithoutKeys::note(error),
        })?;
        let receipt = accepted[0];
        // The event is accepted, so this must not fail: the caller would post the event again.
        let fanned_out = match self.fan_out.wanted(app) {
            true => FanOutEnd::all(app, &screen.bar("people reached")).await,
            false => FanOutEnd::default(),
        };
        let mut failures = Vec::from_iter(fanned_out.failure());
        let mut failed = |what: &str, error: anyhow::Error| {
            failures.push(format!("{what} was not found out: {}", causes(&error)));
        };
        let found = match app.notify().find(receipt.id).await {
            Ok(found) => Some(found),
            Err(error) => {
                failed("how far the event has come", error.into());
                None
            }
        };
        let reached = found.map(|found| {
            found.map_or((FanoutState::Pending, Counts::default()), |fanout| {
                (fanout.state, fanout.progress.counts)
            })
        });
        let mut warnings = match app.known().warnings(&request).await {
            Ok(warnings) => warnings,
            Err(error) => {
                failed("who will not see it", error.into());
                Vec::new()
            }
        };
        let exit = fanned_out.exit(match failures.is_empty() {
            true => Exit::Done,
            false => Exit::Partly,
        });
        if !failures.is_empty() {
            warnings.append(&mut failures);
            warnings.push("the event is accepted; it need not be handed in again".into());
        }
        if self.json {
            screen.json(&Notified {
                receipt,
                state: reached.map(|(state, _)| state),
                counts: reached.map(|(_, counts)| counts),
                bad_stacks: &fanned_out.done.bad_stacks,
                bad_fanouts: &fanned_out.done.bad_fanouts,
                warnings,
            })?;
        } else {
            screen.line(self.sentence(screen, receipt, reached))?;
            for warning in warnings {
                screen.warning(warning)?;
            }
        }
        bad_stacks(&fanned_out.done.bad_stacks, screen)?;
        passed_over(&fanned_out.done.bad_fanouts, "fan-outs", screen)?;
        Ok(exit)
    }

    fn request(&self) -> Result<Request, Invalid> {
        let audience = match self.near {
            Some(near) => Audience::near(near.point, near.km)?,
            None if self.to.is_empty() => Audience::followers_of(self.followers_of.clone())?,
            None => Audience::users(self.to.clone())?,
        };
        Ok(Request {
            kind: self.kind.clone(),
            objects: self.objects.clone(),
            audience: audience.except(self.except.iter().chain(&self.actor).cloned()),
            key: self.key.clone(),
            batch_key: self.batch_key.clone(),
            details: Details {
                actor: self.actor.clone().map(|id| Actor {
                    name: self.actor_name.clone(),
                    image: self.actor_image.clone(),
                    ..Actor::bare(id)
                }),
                brand: self.brand.clone(),
                text: self.text.clone(),
                data: self.data.clone().unwrap_or_default(),
                ..Details::default()
            },
            at: self.at,
        })
    }

    fn sentence(
        &self,
        screen: &Screen,
        receipt: Receipt,
        reached: Option<(FanoutState, Counts)>,
    ) -> String {
        let accepted = if receipt.known {
            "accepted before under this key"
        } else {
            "accepted"
        };
        let id = screen.ink(Ink::Faint, format!("fan-out {}", receipt.id));
        let Some((state, counts)) = reached else {
            return format!("{accepted}  {id}");
        };
        let what = match (state, counts.people) {
            (FanoutState::Pending, _) => {
                let next = screen.ink(Ink::Accent, "tidings worker --once");
                format!("a worker fans it out ({next})")
            }
            (FanoutState::Done, 0) => "reached nobody".to_owned(),
            (FanoutState::Done, people) => {
                let people = words::count(people, "person", "people");
                let capped = words::some(counts.capped, "entries did not fit into full days");
                words::list([Some(format!("reached {people}")), capped])
            }
        };
        format!("{accepted}: {what}  {id}")
    }
}
