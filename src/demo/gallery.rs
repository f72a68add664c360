//! The gallery of `serve --demo`: visitors publish, look as any user, and send the digests.
//!
//! Everything goes through the engine, as over HTTP. Digests are sent as if the next due time of
//! every user had come, so visitors can send them again and again. No event is emailed twice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync;

use super::post::Book;
use super::records::{self, artists, key, picture_path, works};
use super::{PEOPLE, Posted};
use crate::app::App;
use crate::domain::details::Actor;
use crate::domain::{
    Audience, Cadence, Details, FanoutState, Id, Invalid, Object, ObjectKey, User, UserId,
};
use crate::engine::ingest::notify::Request;
use crate::engine::{Result, Silent, digest};
use crate::wire::demo::{Artist, Mail, Mails, Person, Published, Scene, Work};

/// The gallery, its works, and the sent emails.
pub struct Gallery {
    /// The URL for a browser, without a slash at its end.
    url: String,
    book: Arc<Book>,
    /// Newest first.
    works: Mutex<Vec<Work>>,
    comments: AtomicUsize,
    last: sync::Mutex<Last>,
}

/// The last digests that were sent.
struct Last {
    /// Their simulated time; `None` before the first.
    at: Option<DateTime<Utc>>,
    /// The number of emails up to then.
    mails: usize,
}

/// Digests that were sent.
pub(crate) struct Sent {
    /// Their simulated time.
    pub at: DateTime<Utc>,
    /// The number of emails since the last time, including those that were due by themselves.
    pub mails: usize,
}

/// The longest title of a work, in characters.
const MAX_TITLE: usize = 80;
/// The longest comment, in characters.
const MAX_COMMENT: usize = 280;
/// How long to wait for emails that the provider delays.
const PATIENCE: TimeDelta = TimeDelta::seconds(20);
/// The pause between two checks for pending fan-outs.
const REST: TimeDelta = TimeDelta::milliseconds(20);
/// A page size above the number of follows of any demo user.
const MANY: usize = 100;

impl Gallery {
    /// Returns a gallery at this URL, whose emails are recorded in this book.
    pub(crate) fn new(url: String, book: Arc<Book>) -> Self {
        let mut works = works();
        works.reverse();
        let last = Last {
            at: None,
            mails: book.len(),
        };
        Self {
            url,
            book,
            works: Mutex::new(works),
            comments: AtomicUsize::new(0),
            last: sync::Mutex::new(last),
        }
    }

    /// The URL for a browser, without a slash at its end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn works(&self) -> MutexGuard<'_, Vec<Work>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the users, artists, works and follows.
    pub(crate) async fn scene(&self, app: &App) -> Result<Scene> {
        let mut people = Vec::with_capacity(PEOPLE.len());
        for id in PEOPLE {
            let service = app.people();
            let id = UserId::stored(id);
            let Some(user) = service.get(&id).await? else {
                continue;
            };
            people.push(Person {
                name: name(&user),
                picture: picture_path(id.as_str()),
                digest: when_mailed(app, &user),
                follows: service.follows(&id, None, MANY).await?,
                id,
            });
        }
        let works = self.works().clone();
        let artist = |name: &str| {
            Ok(Artist {
                name: name.to_owned(),
                key: key(name)?,
            })
        };
        let artists: Result<_> = artists(&works).into_iter().map(artist).collect();
        Ok(Scene {
            people,
            artists: artists?,
            works,
        })
    }

    /// Returns the user of this id, if the demo has one.
    pub(crate) fn person(&self, id: &str) -> Option<UserId> {
        PEOPLE.contains(&id).then(|| UserId::stored(id))
    }

    /// Publishes a work and returns once the artist's followers are notified.
    pub(crate) async fn publish(&self, app: &App, artist: &str, title: &str) -> Result<Published> {
        let title = text("title", title, MAX_TITLE)?;
        let (id, key) = {
            let mut works = self.works();
            if !works.iter().any(|work| work.artist == artist) {
                return Err(Invalid::new("artist", artist, "has no work in the gallery").into());
            }
            let id = format!("N{}", works.len());
            works.insert(
                0,
                Work {
                    picture: picture_path(&id),
                    id: id.clone(),
                    title: title.to_owned(),
                    artist: artist.to_owned(),
                    made: "new in the gallery".to_owned(),
                },
            );
            (id, key(artist)?)
        };
        let object = Object {
            title: Some(title.to_owned()),
            url: Some(self.page_of(&id)),
            image: Some(format!("{}{}", self.url, picture_path(&id))),
            by: Some(artist.to_owned()),
            ..Object::bare(ObjectKey::stored(format!("Artwork:{id}")))
        };
        app.objects().put(vec![object]).await?;
        let event = event("ArtworkPublished", &id, Audience::followers_of([key])?)?;
        self.tell(app, event, id).await
    }

    /// Publishes a comment on a work, and returns once the other followers of its artist are
    /// notified.
    pub(crate) async fn comment(
        &self,
        app: &App,
        who: &str,
        work: &str,
        said: &str,
    ) -> Result<Published> {
        let said = text("comment", said, MAX_COMMENT)?;
        let nobody = || Invalid::new("person", who, "is nobody of the demo");
        let id = self.person(who).ok_or_else(nobody)?;
        let name = app.people().get(&id).await?.as_ref().map(name);
        let name = name.ok_or_else(nobody)?;
        let found = self.works().iter().find(|known| known.id == work).cloned();
        let work = found.ok_or_else(|| Invalid::new("work", work, "is not in the gallery"))?;
        let number = self.comments.fetch_add(1, Ordering::Relaxed) + 1;
        let comment = format!("C{number}");
        let actor = Actor {
            name: Some(name.clone()),
            image: Some(format!("{}{}", self.url, picture_path(who))),
            ..Actor::bare(id.clone())
        };
        let url = self.page_of(&work.id);
        // Batches use this title, if a user chooses batches for comments.
        let about = [("title", work.title.as_str()), ("url", url.as_str())];
        let about = serde_json::Value::from_iter(about);
        let object = Object {
            title: Some(format!("Comment on {}", work.title)),
            url: Some(url),
            by: Some(name),
            data: serde_json::Value::from_iter([("about", about)]).into(),
            ..Object::bare(ObjectKey::stored(format!("Comment:{comment}")))
        };
        app.objects().put(vec![object]).await?;
        let audience = Audience::followers_of([key(&work.artist)?])?.except([id]);
        let event = Request {
            details: Details {
                actor: Some(actor),
                text: Some(said.to_owned()),
                ..Details::default()
            },
            ..event("Comment", &comment, audience)?
        };
        self.tell(app, event, comment).await
    }

    fn page_of(&self, work: &str) -> String {
        format!("{}/demo#{work}", self.url)
    }

    async fn tell(&self, app: &App, event: Request, object: String) -> Result<Published> {
        let notify = app.notify();
        let receipts = notify.accept(vec![event]).await?;
        fanned_out(app, &receipts.iter().map(|one| one.id).collect::<Vec<_>>()).await?;
        let mut people = 0;
        for receipt in receipts {
            let told = notify.find(receipt.id).await?;
            people += told.map_or(0, |fanout| fanout.progress.counts.people);
        }
        let id = object;
        Ok(Published { id, people })
    }

    /// Sends the next digest of every user, with all events accepted up to now, as if it were due.
    pub(crate) async fn send_digests(&self, app: &App) -> Result<Sent> {
        let mut last = self.last.lock().await;
        everything_fanned_out(app).await?;
        let now = app.context.clock.now();
        let from = last.at.map_or(now, |at| at.max(now));
        let (mut at, mut people) = (from, Vec::with_capacity(PEOPLE.len()));
        for id in PEOPLE.map(UserId::stored) {
            let user = app.people().get(&id).await?;
            let schedule = user.map(|user| user.schedule(&app.config.digest.schedule));
            let due = schedule.and_then(|schedule| schedule.next_due(from));
            at = due.map_or(at, |due| at.max(due.at));
            people.push(id);
        }
        // With all users named, the run records no backlog of days that have left the window. Today
        // may have left it at the simulated time.
        let request = digest::Request {
            at: Some(at),
            users: Some(people),
            patience: Some(PATIENCE),
            ..digest::Request::default()
        };
        let report = app.digests().run(&request, &Silent).await?;
        if report.due.users > 0 {
            last.at = Some(at);
        }
        let before = std::mem::replace(&mut last.mails, self.book.len());
        let mails = last.mails - before;
        Ok(Sent { at, mails })
    }

    /// All sent emails; the newest ones are marked as new.
    pub(crate) fn mails(&self, sent: Option<Sent>) -> Mails {
        let mails = self.book.all().into_iter().enumerate().rev();
        let mail = |(number, mail): (usize, Posted)| Mail {
            number,
            user: mail.user,
            subject: mail.subject,
            at: mail.at,
        };
        Mails {
            new: sent.as_ref().map_or(0, |sent| sent.mails),
            at: sent.map(|sent| sent.at),
            mails: mails.map(mail).collect(),
        }
    }

    /// Returns the HTML of an email. Its links open in other tabs.
    pub(crate) fn mail(&self, number: usize) -> Option<String> {
        let head = "<head>";
        let beside = "<head><base target=\"_blank\">";
        Some(self.book.get(number)?.html.replacen(head, beside, 1))
    }

    /// Whether there is a picture of this work, show or user.
    pub(crate) fn has_picture(&self, id: &str) -> bool {
        let is_show = super::SHOWS.contains(&format!("\"id\": \"{id}\""));
        let known = |work: &Work| work.id == id;
        self.person(id).is_some()
            || id == records::WITHDRAWN
            || is_show
            || self.works().iter().any(known)
    }
}

fn event(kind: &str, object: &str, audience: Audience) -> Result<Request> {
    Ok(Request {
        kind: kind.parse()?,
        objects: vec![object.parse()?],
        audience,
        key: None,
        batch_key: None,
        details: Details::default(),
        at: None,
    })
}

/// Fans out these events and waits for those that a worker holds. The time limit of the request
/// ends the wait.
async fn fanned_out(app: &App, ids: &[Id]) -> Result<()> {
    let notify = app.notify();
    for id in ids {
        loop {
            app.fanouts().drain(&Silent).await?;
            let found = notify.find(*id).await?;
            if found.is_none_or(|fanout| fanout.state == FanoutState::Done) {
                break;
            }
            app.context.clock.sleep(REST).await;
        }
    }
    Ok(())
}

/// Fans out all accepted events.
async fn everything_fanned_out(app: &App) -> Result<()> {
    loop {
        app.fanouts().drain(&Silent).await?;
        if app.context.store.busy_days().await?.is_empty() {
            return Ok(());
        }
        app.context.clock.sleep(REST).await;
    }
}

/// Trims a text and checks its length, in characters.
fn text<'a>(what: &'static str, text: &'a str, most: usize) -> Result<&'a str> {
    let text = text.trim();
    let why = match text.chars().count() {
        0 => "is empty".to_owned(),
        count if count > most => format!("is longer than {most} characters"),
        _ if text.contains(char::is_control) => "holds control characters".to_owned(),
        _ => return Ok(text),
    };
    Err(Invalid::new(what, text, why).into())
}

fn name(user: &User) -> String {
    let id = || user.id.to_string();
    user.name.clone().unwrap_or_else(id)
}

/// Describes when a user gets a digest.
fn when_mailed(app: &App, user: &User) -> String {
    let schedule = user.schedule(&app.config.digest.schedule);
    let place = schedule.tz.name().rsplit('/').next().unwrap_or_default();
    let place = place.replace('_', " ");
    let (hour, day) = (schedule.hour, schedule.weekday);
    match schedule.cadence {
        _ if user.unsubscribed.is_some() => "unsubscribed".to_owned(),
        _ if !user.confirmed => "address not confirmed".to_owned(),
        Cadence::Never => "feed only".to_owned(),
        Cadence::Daily => format!("daily {hour}:00, {place}"),
        Cadence::Weekly => format!("{day} {hour}:00, {place}"),
    }
}
