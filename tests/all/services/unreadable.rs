//! User records with fields of a newer version: such a field gets its default and is reported.

use bson::{Document, doc};
use chrono::{DateTime, Utc};
use tidings::domain::user::UnmailableReason;
use tidings::domain::{EventType, User};
use tidings::engine::users::find_unreadable;
use tidings::store::UserFilter;

use crate::support::poison::{database, file};
use crate::support::town::{Town, monday, on_both_stores, to};
use crate::support::{Fresh, noon, user, window};

on_both_stores! {
    an_unreadable_field_gets_its_default_and_is_named
    an_unreadable_suppression_still_stops_every_email
    an_unreadable_zone_does_not_stop_the_digest_and_explain_names_it
    unreadable_fields_are_counted_and_the_first_users_are_named
}

/// One field as a newer version may write it: in BSON, and in a column of SQLite.
pub(crate) struct Odd {
    field: &'static str,
    bson: Document,
    column: &'static str,
    value: &'static str,
}

fn odd(field: &'static str, bson: Document, column: &'static str, value: &'static str) -> Odd {
    Odd { field, bson, column, value }
}

pub(crate) async fn write(fresh: &Fresh, id: &str, odd: &Odd) {
    if let Some(database) = database(fresh).await {
        let users = database.collection::<Document>("users");
        let set = doc! {"$set": odd.bson.clone()};
        let done = users.update_one(doc! {"_id": id}, set).await.unwrap();
        assert_eq!(done.modified_count, 1, "{}", odd.field);
        return;
    }
    let sql = format!("UPDATE users SET {} = {} WHERE id = ?1", odd.column, odd.value);
    assert_eq!(file(fresh).execute(&sql, [id]).unwrap(), 1);
}

async fn ada(fresh: &Fresh) -> User {
    let found = fresh.users(&[user("ada")]).await.unwrap();
    found.into_iter().next().unwrap().expect("there is a record of ada")
}

fn fields(user: &User) -> Vec<&str> {
    user.unreadable.iter().map(|of| of.field.as_str()).collect()
}

pub(crate) fn zone() -> Odd {
    odd("tz", doc! {"tz": "Mars/Base"}, "tz", "'Mars/Base'")
}

async fn an_unreadable_field_gets_its_default_and_is_named(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let fine = ada(&fresh).await;
    let all = [
        zone(),
        odd("name", doc! {"name": 7}, "name", "x'ff'"),
        odd("locale", doc! {"locale": ["de"]}, "locale", "x'ff'"),
        odd("brand", doc! {"brand": 7}, "brand", "x'ff'"),
        odd("confirmed", doc! {"confirmed": "perhaps"}, "confirmed", "'perhaps'"),
        odd("digest.cadence", doc! {"digest.cadence": "hourly"}, "cadence", "'hourly'"),
        odd("digest.weekday", doc! {"digest.weekday": "payday"}, "weekday", "'payday'"),
        odd("digest.hour", doc! {"digest.hour": 24}, "hour", "24"),
        odd("digest.since", doc! {"digest.since": "now"}, "digest_since", "'now'"),
        odd("quiet", doc! {"quiet": {"days": "Mon-Fri"}}, "quiet", "'{\"days\": \"Mon-Fri\"}'"),
        odd("quiet", doc! {"quiet": "nights"}, "quiet", "'nights'"),
        odd(
            "types.Sale",
            doc! {"types": [{"t": "Sale", "route": "pigeon"}, {"t": "Kept", "route": "never"}]},
            "types",
            "'{\"Sale\": [\"pigeon\", 0], \"Kept\": [\"never\", 0]}'",
        ),
        odd(
            "mutes.Thread:9",
            doc! {"mutes": [{"s": "Thread:9", "at": "noon"}]},
            "mutes",
            "'{\"Thread:9\": [\"noon\", null, null]}'",
        ),
    ];

    for odd in &all {
        town.change("ada", |ada| *ada = User { revision: ada.revision, ..fine.clone() }).await;
        write(&fresh, "ada", odd).await;
        let read = ada(&fresh).await;
        let of_feed = fresh.feeds(window(), &[user("ada")]).await.unwrap();

        assert_eq!(fields(&read), [odd.field]);
        assert_eq!(of_feed[0].user.as_ref().unwrap().unreadable, read.unreadable);
        let kept = EventType::stored("Kept");
        assert_eq!(read.types.contains_key(&kept), odd.field == "types.Sale");
        let as_before = User {
            confirmed: odd.field != "confirmed",
            types: read.types.clone(),
            revision: read.revision,
            unreadable: read.unreadable.clone(),
            ..fine.clone()
        };
        assert_eq!(read, as_before, "{}", odd.field);
    }
}

async fn an_unreadable_suppression_still_stops_every_email(fresh: Fresh) {
    Town::of(&fresh).await;
    let all = [
        (
            odd("suppressed", doc! {"suppressed": "soon"}, "suppressed", "'soon'"),
            UnmailableReason::Suppressed,
        ),
        (
            odd("unsubscribed", doc! {"unsubscribed": {"all": true}}, "unsubscribed", "x'01'"),
            UnmailableReason::Suppressed,
        ),
    ];
    for (odd, why) in all {
        write(&fresh, "ada", &odd).await;
        let read = ada(&fresh).await;
        assert!(fields(&read).contains(&odd.field));
        assert_eq!(read.mailable_address(), Err(why));
    }
    let start = odd("start", doc! {"start": 7}, "start", "7");
    write(&fresh, "ada", &start).await;
    let read = ada(&fresh).await;
    let start = read.start.unwrap();
    assert!(
        start.is_after(tidings::ids::Ids::deterministic(1).next(noon())),
        "it hides all events"
    );
    let epoch = Some(DateTime::<Utc>::UNIX_EPOCH);
    assert_eq!((read.suppressed, read.unsubscribed), (epoch, epoch));
}

async fn an_unreadable_zone_does_not_stop_the_digest_and_explain_names_it(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    write(&fresh, "ada", &zone()).await;

    let explain = town.process().explain();
    let explained = explain.user(&user("ada"), None).await.unwrap();
    let status = town.process().status().current_status().await.unwrap();
    let report = town.digests_at(monday(0)).await;

    assert!(explained.has_record && explained.unmailable.is_none());
    assert_eq!(explained.unreadable[0].field, "tz");
    assert!(explained.unreadable[0].why.contains("Mars/Base"), "{explained:?}");
    assert_eq!(status.unreadable.users, 1);
    assert_eq!(status.unreadable.first[0].user, user("ada"));
    assert_eq!((report.emails.sent, town.emailed_to("ada").len()), (1, 1));
}

async fn unreadable_fields_are_counted_and_the_first_users_are_named(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    for id in town.crowd(12).await {
        write(&fresh, &id, &zone()).await;
    }
    let all = fresh.find_users(&UserFilter::All, None, 100).await.unwrap();

    let found = find_unreadable(&*fresh.handle(), 1_000).await.unwrap();
    let fewer = find_unreadable(&*fresh.handle(), 5).await.unwrap();

    assert_eq!((found.records_read, found.users), (all.len() as u64, 12));
    assert_eq!((found.first.len(), fewer.records_read), (10, 5));
    let sentence = serde_json::to_string(&found.first[0]).unwrap();
    assert!(sentence.contains("\"field\":\"tz\""), "{sentence}");
}
