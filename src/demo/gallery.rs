//! The gallery of `serve --demo`: visitors publish, act as any user, and send the digests.
//!
//! Everything goes through the engine, as over HTTP. Digests are sent as if the next due time of
//! every user had come, so visitors can send them again and again. No event is emailed twice.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Mutex;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync;

use super::USER_IDS;
use super::folder::WORKS;
use crate::app::App;
use crate::domain::text_checks::one_line;
use crate::domain::{
    Audience, Cadence, Delivery, DeliveryState, Details, EventType, FollowKey, InvalidValue,
    Object, ObjectKey, User, UserId,
};
use crate::engine::delivery::brand_identities::new_outbox;
use crate::engine::delivery::operator_actions::DeliverySelection;
use crate::engine::ingest::NewEvent;
use crate::engine::{Error, NoProgress, Result, digest};
use crate::mutex::lock;
use crate::wire::local_pages::{
    DemoEmail, DemoEmails, GalleryState, LocalUser, Published, Work, WorkDetails,
};

/// The gallery and its works.
pub struct Gallery {
    /// The URL for a browser, without a slash at its end.
    pub(crate) url: String,
    /// Newest first.
    works: Mutex<Vec<Work>>,
    /// The simulated time of the last digests; `None` before the first.
    sent_at: sync::Mutex<Option<DateTime<Utc>>>,
}

/// The longest title of a work, in characters.
const MAX_TITLE: usize = 80;
/// The number of emails that the page can list.
const MAX_EMAILS: usize = 1_000;
/// How long to wait for emails that the provider delays.
const MAX_EMAIL_WAIT: TimeDelta = TimeDelta::seconds(20);
/// The pause between two checks for pending fan-outs.
const POLL_INTERVAL: TimeDelta = TimeDelta::milliseconds(20);
/// A page size that no demo user's follows exceed.
const FOLLOWS_PER_PAGE: usize = 100;

impl Gallery {
    /// Returns a gallery at this URL.
    pub(crate) fn new(url: String) -> Self {
        Self { url, works: Mutex::new(works()), sent_at: sync::Mutex::default() }
    }

    /// Returns the users, the works, and the followers of each artist.
    pub(crate) async fn scene(&self, app: &App) -> Result<GalleryState> {
        let works = lock(&self.works).clone();
        let mut followers: BTreeMap<_, Vec<UserId>> =
            works.iter().map(|work| (work.artist.clone(), Vec::new())).collect();
        let mut people = Vec::with_capacity(USER_IDS.len());
        for user in users(app).await? {
            let follows = app.users().follows(&user.id, None, FOLLOWS_PER_PAGE).await?;
            for (artist, followers) in &mut followers {
                if follows.contains(&follow_key(artist)?) {
                    followers.push(user.id.clone());
                }
            }
            let digest = describe_schedule(app, &user);
            let name = user.name.unwrap_or_else(|| user.id.to_string());
            people.push(LocalUser { id: user.id, name, digest });
        }
        Ok(GalleryState { users: people, works, followers })
    }

    /// Publishes a work and returns once the artist's followers are notified.
    pub(crate) async fn publish(&self, app: &App, artist: &str, title: &str) -> Result<Published> {
        let title = one_line("title", title, MAX_TITLE)?;
        let id = {
            let mut works = lock(&self.works);
            if !works.iter().any(|work| work.artist == artist) {
                return Err(
                    InvalidValue::new("artist", artist, "has no work in the gallery").into()
                );
            }
            let id = format!("N{}", works.len());
            let work = Work {
                id: id.clone(),
                title: title.to_owned(),
                artist: artist.to_owned(),
                data: WorkDetails { medium: "new in the gallery".to_owned(), year: None },
            };
            works.insert(0, work);
            id
        };
        let object = Object {
            title: Some(title.to_owned()),
            url: Some(format!("{}/demo#{id}", self.url)),
            image: Some(format!("{}/demo/pictures/{id}", self.url)),
            by: Some(artist.to_owned()),
            ..Object::without_data(ObjectKey::stored(format!("Artwork:{id}")))
        };
        app.objects().put(vec![object]).await?;
        let request = NewEvent {
            kind: EventType::stored("ArtworkPublished"),
            objects: vec![id.parse()?],
            audience: Audience::followers_of([follow_key(artist)?])?,
            key: None,
            batch_key: None,
            details: Details::default(),
            at: None,
        };
        let receipts = app.notify().accept(vec![request]).await?;
        fan_out(app).await?;
        let fanout = app.notify().find(receipts[0].id).await?;
        let people = fanout.map_or(0, |fanout| fanout.progress.counts.people);
        Ok(Published { id, notified_users: people })
    }

    /// Sends the next digest of every user, with all events accepted up to now, as if it were due.
    pub(crate) async fn send_digests(&self, app: &App) -> Result<DemoEmails> {
        let mut sent_at = self.sent_at.lock().await;
        let previous_count = sent_deliveries(app).await?.len();
        fan_out(app).await?;
        let now = app.context.clock.now();
        let start = sent_at.map_or(now, |at| at.max(now));
        let (users, default) = (users(app).await?, &app.config.digest.schedule);
        let dues = users.iter().filter_map(|user| user.schedule(default).next_due(start));
        let at = dues.map(|due| due.at).max().unwrap_or(start);
        // With all users named, the run records no backlog of days that have left the window. Today
        // may have left it at the simulated time.
        let request = digest::DigestRequest {
            at: Some(at),
            users: Some(USER_IDS.map(UserId::stored).into()),
            patience: Some(MAX_EMAIL_WAIT),
            ..digest::DigestRequest::default()
        };
        let report = app.digests().run(&request, &NoProgress).await?;
        if report.due.users > 0 {
            *sent_at = Some(at);
        }
        let mut emails = self.emails(app).await?;
        emails.new = emails.emails.len() - previous_count;
        Ok(emails)
    }

    /// Lists the sent emails, newest first.
    pub(crate) async fn emails(&self, app: &App) -> Result<DemoEmails> {
        let rows = sent_deliveries(app).await?;
        let mut emails = Vec::with_capacity(rows.len());
        for (number, row) in (0..rows.len()).rev().zip(rows) {
            let at = row.outcome.settled.unwrap_or(row.created);
            let user = row.user.to_string();
            let email = app.compose().describe_delivery(row).await?.email;
            let subject = email.map_or(String::new(), |email| email.subject);
            emails.push(DemoEmail { number, user, subject, at });
        }
        Ok(DemoEmails { new: 0, emails })
    }

    /// Returns the HTML of an email, by its number from 0. Its links open in other tabs.
    pub(crate) async fn email(&self, app: &App, number: usize) -> Result<Option<String>> {
        let rows = sent_deliveries(app).await?;
        let Some(row) = rows.into_iter().rev().nth(number) else {
            return Ok(None);
        };
        let page = new_outbox(&app.config).page_path(&row.id);
        match tokio::fs::read_to_string(&page).await {
            Ok(html) => Ok(Some(html.replacen("<head>", "<head><base target=\"_blank\">", 1))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file(format!("reading {}", page.display()), error)),
        }
    }
}

/// Fans out all accepted events, and waits for those that a worker has leased. The time limit of
/// the request ends the wait.
async fn fan_out(app: &App) -> Result<()> {
    loop {
        app.fanouts().drain(&NoProgress).await?;
        if app.context.store.pending(usize::MAX).await?.days.is_empty() {
            return Ok(());
        }
        app.context.clock.sleep(POLL_INTERVAL).await;
    }
}

/// Returns the deliveries that were sent, newest first.
async fn sent_deliveries(app: &App) -> Result<Vec<Delivery>> {
    let filter =
        DeliverySelection { state: Some(DeliveryState::Sent), ..DeliverySelection::default() };
    app.deliveries().list(&filter, MAX_EMAILS).await
}

async fn users(app: &App) -> Result<Vec<User>> {
    let users = app.context.store.users(&USER_IDS.map(UserId::stored)).await?;
    Ok(users.into_iter().flatten().collect())
}

/// Describes when a user gets a digest, such as `Mon 9:00, New York`.
fn describe_schedule(app: &App, user: &User) -> String {
    let schedule = user.schedule(&app.config.digest.schedule);
    let (hour, day, zone) = (schedule.hour, schedule.weekday, schedule.tz.name());
    let city = zone.rsplit('/').next().unwrap_or(zone).replace('_', " ");
    match schedule.cadence {
        _ if user.unsubscribed.is_some() => "unsubscribed".to_owned(),
        _ if !user.confirmed => "address not confirmed".to_owned(),
        Cadence::Never => "feed only".to_owned(),
        Cadence::Daily => format!("daily {hour}:00, {city}"),
        Cadence::Weekly => format!("{day} {hour}:00, {city}"),
    }
}

/// The work that the story withdraws.
const WITHDRAWN: &str = "W04";

/// Returns all works that can be shown, newest first.
fn works() -> Vec<Work> {
    // A test reads every line.
    let works = WORKS.lines().rev().filter_map(|line| serde_json::from_str::<Work>(line).ok());
    works.filter(|work| work.id != WITHDRAWN).collect()
}

/// Returns the follow key of an artist: `artist:` and the family name.
fn follow_key(artist: &str) -> std::result::Result<FollowKey, InvalidValue> {
    let name = artist.rsplit(' ').next().unwrap_or_default();
    format!("artist:{}", name.to_lowercase()).parse()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_artist_has_works_and_followers() {
        let works = works();
        let followed: BTreeSet<String> = include_str!("data/follows.ndjson")
            .lines()
            .map(|line| {
                let follow: serde_json::Value = serde_json::from_str(line).unwrap();
                follow["key"].as_str().unwrap().to_owned()
            })
            .collect();

        let keys: BTreeSet<String> =
            works.iter().map(|work| follow_key(&work.artist).unwrap().to_string()).collect();

        assert_eq!((works.len(), keys.len()), (59, 12));
        assert_eq!(keys, followed);
    }
}
