//! One document that cannot be read, marked or pushed to is its owner's trouble only.

use bson::{Bson, doc};
use chrono::TimeDelta;
use tidings::domain::{Audience, BadStack, Day, Defect, DeliveryState};
use tidings::engine::Silent;
use tidings::wire::digest::Report;

use crate::support::poison::{NOT_UTF8, database, file, fill_up, put, put_into, standing};
use crate::support::town::{Town, monday, on_both_stores, request, saturday, to};
use crate::support::{Fresh, Shorthand, feed_of, user};

on_both_stores! {
    entries_of_odd_types_and_bad_text_stop_nobody_and_hold_their_places
    a_document_that_is_nobodys_stops_nobody
    records_with_bad_text_stop_no_email
    fan_outs_that_nobody_can_read_stop_no_others
}

/// A row of SQLite takes a line more whatever stands in it; documents of MongoDB may not.
macro_rules! on_mongodb {
    ($($test:ident)*) => {
        mod mongo_only {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    crate::support::mongo::run(super::$test).await;
                }
            )*
        }
    };
}

on_mongodb! {
    a_stack_that_cannot_take_a_marker_stops_nobody_elses_digest
    what_a_stack_held_that_is_repaired_after_its_day_left_the_window_is_mailed
    events_that_are_no_list_stop_nobody_elses_batch
    a_document_that_takes_no_entries_stops_nobody_elses_push
    a_digest_whose_marker_is_refused_after_mailing_is_mailed_once
}

const BATCHES: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
"#;

fn first_day() -> Day {
    Day::of(saturday())
}

fn bad(person: &str, reason: Defect) -> BadStack {
    BadStack {
        user: user(person),
        day: first_day(),
        reason,
    }
}

async fn feed(town: &Town, person: &str) -> usize {
    let request = feed_of(&user(person));
    let page = town.process().feeds().page(&request).await.unwrap();
    page.answer.items.len()
}

async fn a_stack_that_cannot_take_a_marker_stops_nobody_elses_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben", "cem"]))
        .await;
    let database = database(&fresh).await.unwrap();
    fill_up(&database, first_day(), "ada").await;

    let first = town.digests_at(monday(0)).await;
    town.clock.set(monday(0) + TimeDelta::days(2));
    town.happens(&["a3"], to(&["ada", "ben"])).await;
    let second = town.digests_at(monday(1)).await;

    let told = |report: &Report| report.mails.bad_stacks.first.clone();
    assert_eq!(told(&first), [bad("ada", Defect::NoRoom)]);
    assert_eq!((first.mails.sent, second.mails.sent), (2, 2));
    assert_eq!(town.told_to("ben"), ["a1", "a2", "a3"]);
    assert_eq!(town.told_to("cem"), ["a1", "a2"]);
    // What cannot be marked is not mailed, or it would be again and again; her other days are.
    assert_eq!(town.told_to("ada"), ["a3"]);
    assert_eq!(feed(&town, "ada").await, 1);
}

async fn what_a_stack_held_that_is_repaired_after_its_day_left_the_window_is_mailed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben"])).await;
    let database = database(&fresh).await.unwrap();
    let sound = standing(&database, first_day(), "ada").await;
    fill_up(&database, first_day(), "ada").await;

    // The day leaves the window between these two runs.
    for week in 0..2 {
        let report = town.digests_at(monday(week)).await;
        let told = &report.mails.bad_stacks.first;
        assert_eq!(told, &[bad("ada", Defect::NoRoom)], "week {week}");
    }
    put(&database, first_day(), sound).await;
    town.digests_at(monday(2)).await;

    assert_eq!(town.told_to("ada"), ["a1", "a2"]);
    assert_eq!(town.told_to("ben"), ["a1", "a2"]);
}

async fn events_that_are_no_list_stop_nobody_elses_batch(fresh: Fresh) {
    let database = database(&fresh).await.unwrap();
    for (n, spoilt) in [
        Bson::Null,
        doc! {"0": {"t": "T", "o": "a"}}.into(),
        "none".into(),
        7.into(),
    ]
    .into_iter()
    .enumerate()
    {
        fresh.clear().await;
        let town = Town::found(&fresh, true, BATCHES).await;
        put(
            &database,
            first_day(),
            doc! {"_id": "ada", "events": spoilt},
        )
        .await;
        town.happens(&["a1"], to(&["ada", "ben"])).await;
        town.clock.set(saturday() + TimeDelta::minutes(6));

        let app = town.process();
        app.closer().drain(&Silent).await.unwrap();
        let sender = app.sender();
        sender.drain().await.unwrap();

        let tally = sender.ledger.tally.so_far();
        assert_eq!(tally.sent, 2, "shape {n}");
        assert_eq!(tally.bad_stacks.first, [bad("ada", Defect::NoList)]);
        for person in ["ada", "ben"] {
            let rows = town.deliveries_of(person).await;
            assert_eq!(rows[0].state, DeliveryState::Sent, "shape {n}");
            assert!(!rows[0].open, "shape {n}");
        }
        town.digests_at(monday(0)).await;
        town.digests_at(monday(1)).await;
        assert_eq!(town.mails().len(), 2, "shape {n}");
    }
}

async fn entries_of_odd_types_and_bad_text_stop_nobody_and_hold_their_places(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    if let Some(database) = database(&fresh).await {
        let mut ada = standing(&database, first_day(), "ada").await;
        let entries = ada.get_array_mut("events").unwrap();
        let odd: [Bson; 6] = [
            Bson::Null,
            Bson::MinKey,
            doc! {"t": NOT_UTF8, "o": "a2"}.into(),
            doc! {"t": "ArtworkPublished", "o": NOT_UTF8}.into(),
            doc! {"x": NOT_UTF8, "n": Bson::Decimal128("7".parse().unwrap())}.into(),
            Bson::JavaScriptCode("f()".into()),
        ];
        entries.extend(odd);
        put(&database, first_day(), ada).await;
        let nobody = doc! {"_id": NOT_UTF8, "events": [{"t": "ArtworkPublished", "o": "a2"}]};
        put(&database, first_day(), nobody).await;
    } else {
        let spoil = format!(
            "UPDATE {} SET n = 'many', events = CAST(events || CAST(x'7b2274223a22ff220a' AS TEXT) AS BLOB) WHERE id = 'ada'",
            first_day().collection()
        );
        assert_eq!(file(&fresh).execute(&spoil, []).unwrap(), 1);
    }
    town.happens(&["a3"], to(&["ada", "ben"])).await;

    assert_eq!(feed(&town, "ada").await, 2);
    assert_eq!(town.digests_at(monday(0)).await.mails.sent, 2);
    assert_eq!(town.digests_at(monday(1)).await.mails.sent, 0);

    for person in ["ada", "ben"] {
        assert_eq!(town.told_to(person), ["a1", "a3"]);
    }
}

async fn a_document_that_takes_no_entries_stops_nobody_elses_push(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    let database = database(&fresh).await.unwrap();
    fill_up(&database, first_day(), "ada").await;
    let no_list = doc! {"_id": "cem", "events": Bson::Null};
    put(&database, first_day(), no_list).await;

    let app = town.process();
    let event = request(&["a2", "a3"], to(&["ada", "ben", "cem"]), None);
    let receipt = app.notify().accept(vec![event]).await.unwrap()[0];
    let done = app.fanouts().drain(&Silent).await.unwrap();

    let expected = [bad("ada", Defect::NoRoom), bad("cem", Defect::NoList)];
    assert_eq!(done.bad_stacks.first, expected);
    let fanout = town.store.fanout(receipt.id).await.unwrap().unwrap();
    let counts = fanout.progress.counts;
    assert_eq!((counts.people, counts.pushed, counts.capped), (3, 2, 4));
    assert_eq!(feed(&town, "ben").await, 3);
    assert_eq!(feed(&town, "cem").await, 0);
}

async fn a_digest_whose_marker_is_refused_after_mailing_is_mailed_once(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    let database = database(&fresh).await.unwrap();
    let validator = |rule| doc! {"collMod": first_day().collection(), "validator": rule};
    // Somebody's rule forbids what ada's stack would become; it comes between reading and marking.
    let rule = validator(doc! {"$or": [{"_id": {"$ne": "ada"}}, {"events.1": {"$exists": false}}]});
    let of_the_moment = database.clone();
    town.meanwhile(move || {
        Box::pin(async move { drop(of_the_moment.run_command(rule).await.unwrap()) })
    });

    let first = town.digests_at(monday(0)).await;
    let later = town.digests_at(monday(1)).await;

    assert_eq!((first.mails.sent, later.mails.sent), (2, 0));
    assert_eq!(town.mails().len(), 2);
    assert!(!town.deliveries_of("ben").await[0].open);
    let ada = town.deliveries_of("ada").await.remove(0);
    assert_eq!((ada.state, ada.open), (DeliveryState::Sent, true));
    for report in [first, later] {
        assert_eq!(report.mails.bad_stacks.first, [bad("ada", Defect::Refused)]);
    }

    database.run_command(validator(doc! {})).await.unwrap();
    town.digests_at(monday(1) + TimeDelta::hours(1)).await;

    assert!(!town.deliveries_of("ada").await[0].open);
    assert_eq!(town.mails().len(), 2);
}

async fn a_document_that_is_nobodys_stops_nobody(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    if let Some(database) = database(&fresh).await {
        for id in [Bson::Null, 5.into(), doc! {"a": 1}.into()] {
            put(&database, first_day(), doc! {"_id": id, "events": []}).await;
        }
    } else {
        for id in ["5", "x'0102'", "CAST(x'ff61' AS TEXT)"] {
            let row = format!(
                "INSERT INTO {} (id, n, events) VALUES ({id}, 0, '')",
                first_day().collection()
            );
            file(&fresh).execute(&row, []).unwrap();
        }
    }

    let report = town.digests_at(monday(0)).await;

    assert_eq!(report.mails.sent, 1);
}

async fn records_with_bad_text_stop_no_email(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben"])).await;
    if let Some(database) = database(&fresh).await {
        let ada =
            doc! {"_id": "ada", "email": "ada@example.org", "confirmed": true, "name": NOT_UTF8};
        put_into(&database, "users", ada).await;
        let work = doc! {"_id": "a2", "notifiable": true, "title": NOT_UTF8};
        put_into(&database, "objects", work).await;
        let seen = doc! {"_id": "ada", "days": NOT_UTF8};
        put_into(&database, "inboxes", seen).await;
    } else {
        let file = file(&fresh);
        for spoil in [
            "INSERT INTO inboxes VALUES ('ada', '', 0, CAST(x'ff' AS TEXT))",
            "UPDATE users SET name = CAST(x'ff' AS TEXT) WHERE id = 'ada'",
            "UPDATE objects SET title = CAST(x'ff' AS TEXT) WHERE id = 'a2'",
        ] {
            assert_eq!(file.execute(spoil, []).unwrap(), 1);
        }
    }

    let report = town.digests_at(monday(0)).await;
    town.happens(&["a3"], to(&["ada", "ben"])).await;

    // Of her record only the name cannot be read.
    assert_eq!(report.mails.sent, 2);
    assert_eq!(town.told_to("ben"), ["a1"]);
    assert_eq!(town.told_to("ada"), ["a1"]);
    assert_eq!(feed(&town, "ben").await, 2);
    assert_eq!(feed(&town, "ada").await, 2);
}

async fn fan_outs_that_nobody_can_read_stop_no_others(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let app = town.process();
    // Long enough to be kept apart from their fan-outs.
    let many = (0..100_000).map(|n| user(&format!("{n:0>160}")));
    let many = request(&["a1"], Audience::users(many).unwrap(), None);
    let mut ids = Vec::new();
    for event in [request(&["a1"], to(&["ada"]), None), many] {
        ids.push(app.notify().accept(vec![event]).await.unwrap()[0].id);
    }
    if let Some(database) = database(&fresh).await {
        let broken = doc! {"_id": "odd", "state": "pending", "type": NOT_UTF8, "day": "soon"};
        put_into(&database, "fanouts", broken).await;
        let fanouts = database.collection::<bson::Document>("fanouts");
        let first = doc! {"_id": bson::oid::ObjectId::from_bytes(ids[0].bytes())};
        let unset = doc! {"$unset": {"objects": ""}};
        fanouts.update_one(first, unset).await.unwrap();
        let parts = database.collection::<bson::Document>("audiences");
        assert_eq!(parts.delete_one(doc! {}).await.unwrap().deleted_count, 1);
    } else {
        let [first, second] = [ids[0], ids[1]].map(|id| id.to_string());
        let spoil = format!(
            "UPDATE fanouts SET day = 'soon' WHERE id = '{first}';
             DELETE FROM audiences WHERE fanout = '{second}';"
        );
        file(&fresh).execute_batch(&spoil).unwrap();
    }
    let fine = request(&["a2"], to(&["ben"]), None);
    app.notify().accept(vec![fine]).await.unwrap();

    let done = app.fanouts().drain(&Silent).await.unwrap();
    let again = app.fanouts().drain(&Silent).await.unwrap();

    assert_eq!((done.done, again.done), (1, 0));
    assert_eq!(feed(&town, "ben").await, 1);
    assert!(app.context.store.backlog().await.unwrap().pending >= 2);
}
