//! A document that cannot be read, marked or pushed to affects only its own user.

use bson::{Bson, Document, doc};
use chrono::TimeDelta;
use tidings::domain::schedule::DueUserFilter;
use tidings::domain::{Day, Defect, DefectiveStack, DeliveryState, FollowKey, Point, User, UserId};
use tidings::engine::NoProgress;
use tidings::store::UserFilter;
use tidings::wire::run_report::DigestReport;

use crate::support::poison::{NOT_UTF8, database, file, fill_up, put, put_into, stored_document};
use crate::support::town::{Town, monday, on_both_stores, only_on_mongo, request, saturday, to};
use crate::support::{Fresh, Shorthand, key, user};

on_both_stores! {
    malformed_entries_are_skipped_and_keep_their_index
    a_document_without_a_valid_user_id_blocks_no_email
    records_with_invalid_utf8_block_no_email
    unreadable_fan_outs_do_not_block_others
    an_unreadable_id_ends_no_audience
}

// A row of SQLite always accepts another entry; a document may not.
only_on_mongo! {
    a_stack_without_room_for_a_marker_blocks_no_other_digest
    events_of_a_stack_repaired_after_it_left_the_window_are_emailed
    an_events_field_that_is_no_array_blocks_no_batch
    a_document_that_accepts_no_entries_blocks_no_other_push
    a_digest_whose_marker_is_rejected_after_sending_is_sent_once
}

const BATCHES: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
"#;

fn first_day() -> Day {
    Day::of(saturday())
}

fn bad(person: &str, reason: Defect) -> DefectiveStack {
    DefectiveStack { user: user(person), day: first_day(), reason }
}

async fn a_stack_without_room_for_a_marker_blocks_no_other_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben", "cem"])).await;
    let database = database(&fresh).await.unwrap();
    fill_up(&database, first_day(), "ada").await;

    let first = town.digests_at(monday(0)).await;
    town.clock.set(monday(0) + TimeDelta::days(2));
    town.happens(&["a3"], to(&["ada", "ben"])).await;
    let second = town.digests_at(monday(1)).await;

    let first_bad = |report: &DigestReport| report.emails.bad_stacks.first.clone();
    assert_eq!(first_bad(&first), [bad("ada", Defect::NoRoom)]);
    assert_eq!((first.emails.sent, second.emails.sent), (2, 2));
    assert_eq!(town.emailed_to("ben"), ["a1", "a2", "a3"]);
    assert_eq!(town.emailed_to("cem"), ["a1", "a2"]);
    // Events that cannot be marked are not emailed, because each run would repeat them. The
    // events of Ada's other days are.
    assert_eq!(town.emailed_to("ada"), ["a3"]);
    assert_eq!(town.feed("ada").await.items.len(), 1);
}

async fn events_of_a_stack_repaired_after_it_left_the_window_are_emailed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben"])).await;
    let database = database(&fresh).await.unwrap();
    let intact = stored_document(&database, first_day(), "ada").await;
    fill_up(&database, first_day(), "ada").await;

    // The day leaves the window between these two runs.
    for week in 0..2 {
        let report = town.digests_at(monday(week)).await;
        let first_bad = &report.emails.bad_stacks.first;
        assert_eq!(first_bad, &[bad("ada", Defect::NoRoom)], "week {week}");
    }
    put(&database, first_day(), intact).await;
    town.digests_at(monday(2)).await;

    assert_eq!(town.emailed_to("ada"), ["a1", "a2"]);
    assert_eq!(town.emailed_to("ben"), ["a1", "a2"]);
}

async fn an_events_field_that_is_no_array_blocks_no_batch(fresh: Fresh) {
    let database = database(&fresh).await.unwrap();
    for (n, spoilt) in
        [Bson::Null, doc! {"0": {"t": "T", "o": "a"}}.into(), "none".into(), 7.into()]
            .into_iter()
            .enumerate()
    {
        fresh.clear().await;
        let town = Town::found(&fresh, true, BATCHES).await;
        put(&database, first_day(), doc! {"_id": "ada", "events": spoilt}).await;
        town.happens(&["a1"], to(&["ada", "ben"])).await;

        let tally = town.send_due_at(saturday() + TimeDelta::minutes(6)).await;

        assert_eq!(tally.sent, 2, "shape {n}");
        assert_eq!(tally.bad_stacks.first, [bad("ada", Defect::NoList)]);
        for person in ["ada", "ben"] {
            let rows = town.deliveries_of(person).await;
            assert_eq!(rows[0].state, DeliveryState::Sent, "shape {n}");
            assert!(!rows[0].open, "shape {n}");
        }
        town.digests_at(monday(0)).await;
        town.digests_at(monday(1)).await;
        assert_eq!(town.emails().len(), 2, "shape {n}");
    }
}

async fn malformed_entries_are_skipped_and_keep_their_index(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    if let Some(database) = database(&fresh).await {
        let mut ada = stored_document(&database, first_day(), "ada").await;
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
        let without_id = doc! {"_id": NOT_UTF8, "events": [{"t": "ArtworkPublished", "o": "a2"}]};
        put(&database, first_day(), without_id).await;
    } else {
        let spoil = format!(
            "UPDATE {} SET n = 'many', events = CAST(events || CAST(x'7b2274223a22ff220a' AS TEXT) AS BLOB) WHERE id = 'ada'",
            first_day().collection_name()
        );
        assert_eq!(file(&fresh).execute(&spoil, []).unwrap(), 1);
    }
    town.happens(&["a3"], to(&["ada", "ben"])).await;

    assert_eq!(town.feed("ada").await.items.len(), 2);
    assert_eq!(town.digests_at(monday(0)).await.emails.sent, 2);
    assert_eq!(town.digests_at(monday(1)).await.emails.sent, 0);

    for person in ["ada", "ben"] {
        assert_eq!(town.emailed_to(person), ["a1", "a3"]);
    }
}

async fn a_document_that_accepts_no_entries_blocks_no_other_push(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    let database = database(&fresh).await.unwrap();
    fill_up(&database, first_day(), "ada").await;
    let no_list = doc! {"_id": "cem", "events": Bson::Null};
    put(&database, first_day(), no_list).await;

    let app = town.process();
    let event = request(&["a2", "a3"], to(&["ada", "ben", "cem"]), None);
    let receipt = app.notify().accept(vec![event]).await.unwrap()[0];
    let done = app.fanouts().drain(&NoProgress).await.unwrap();

    let expected = [bad("ada", Defect::NoRoom), bad("cem", Defect::NoList)];
    assert_eq!(done.bad_stacks.first, expected);
    let fanout = town.store.fanout(receipt.id).await.unwrap().unwrap();
    let counts = fanout.progress.counts;
    assert_eq!((counts.people, counts.pushed, counts.capped), (3, 2, 4));
    assert_eq!(town.feed("ben").await.items.len(), 3);
    assert_eq!(town.feed("cem").await.items.len(), 0);
}

async fn a_digest_whose_marker_is_rejected_after_sending_is_sent_once(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    let database = database(&fresh).await.unwrap();
    let validator = |rule| doc! {"collMod": first_day().collection_name(), "validator": rule};
    // This validator rejects the marker in Ada's stack. It is set between reading and marking.
    let rule = validator(doc! {"$or": [{"_id": {"$ne": "ada"}}, {"events.1": {"$exists": false}}]});
    let handle = database.clone();
    town.meanwhile(move || Box::pin(async move { drop(handle.run_command(rule).await.unwrap()) }));

    let first = town.digests_at(monday(0)).await;
    let later = town.digests_at(monday(1)).await;

    assert_eq!((first.emails.sent, later.emails.sent), (2, 0));
    assert_eq!(town.emails().len(), 2);
    assert!(!town.deliveries_of("ben").await[0].open);
    let ada = town.deliveries_of("ada").await.remove(0);
    assert_eq!((ada.state, ada.open), (DeliveryState::Sent, true));
    for report in [first, later] {
        assert_eq!(report.emails.bad_stacks.first, [bad("ada", Defect::Refused)]);
    }

    database.run_command(validator(doc! {})).await.unwrap();
    town.digests_at(monday(1) + TimeDelta::hours(1)).await;

    assert!(!town.deliveries_of("ada").await[0].open);
    assert_eq!(town.emails().len(), 2);
}

async fn a_document_without_a_valid_user_id_blocks_no_email(fresh: Fresh) {
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
                first_day().collection_name()
            );
            file(&fresh).execute(&row, []).unwrap();
        }
    }

    let report = town.digests_at(monday(0)).await;

    assert_eq!(report.emails.sent, 1);
}

async fn records_with_invalid_utf8_block_no_email(fresh: Fresh) {
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

    // Only the name in Ada's record is unreadable.
    assert_eq!(report.emails.sent, 2);
    assert_eq!(town.emailed_to("ben"), ["a1"]);
    assert_eq!(town.emailed_to("ada"), ["a1"]);
    assert_eq!(town.feed("ben").await.items.len(), 2);
    assert_eq!(town.feed("ada").await.items.len(), 2);
}

async fn unreadable_fan_outs_do_not_block_others(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let app = town.process();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let event = request(&["a1"], to(&["ada"]), None);
        ids.push(app.notify().accept(vec![event]).await.unwrap()[0].id);
    }
    if let Some(database) = database(&fresh).await {
        let broken = doc! {"_id": "odd", "state": "pending", "type": NOT_UTF8, "day": "soon"};
        put_into(&database, "fanouts", broken).await;
        let fanouts = database.collection::<bson::Document>("fanouts");
        let first = doc! {"_id": bson::oid::ObjectId::from_bytes(ids[0].bytes())};
        let unset = doc! {"$unset": {"objects": ""}};
        fanouts.update_one(first, unset).await.unwrap();
        // Earlier versions stored long audiences in parts. This one is missing.
        let second = doc! {"_id": bson::oid::ObjectId::from_bytes(ids[1].bytes())};
        let set = doc! {"$set": {"audience": {"parts": 1}}};
        fanouts.update_one(second, set).await.unwrap();
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

    let done = app.fanouts().drain(&NoProgress).await.unwrap();
    let again = app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!((done.completed, again.completed), (1, 0));
    assert_eq!(town.feed("ben").await.items.len(), 1);
    assert!(app.context.store.backlog().await.pending >= 2);
}

async fn an_unreadable_id_ends_no_audience(fresh: Fresh) {
    let (ben, zoe) = (user("ben"), user("zoe"));
    let (artist, other) = (key("artist:7"), key("artist:8"));
    let follow = |key: &FollowKey, user: &UserId| (key.clone(), user.clone());
    fresh.follow(&[follow(&artist, &ben), follow(&artist, &zoe)]).await;
    fresh.follow(&[follow(&other, &ben)]).await;
    let berlin = Point::new(13.405, 52.52).unwrap();
    for id in [&ben, &zoe] {
        let record = User { loc: Some(berlin), ..User::new(id.clone()) };
        fresh.put_users(&[record]).await.unwrap();
    }
    if let Some(database) = database(&fresh).await {
        let users = database.collection::<Document>("users");
        let mut odd = users.find_one(doc! {"_id": "ben"}).await.unwrap().unwrap();
        odd.insert("_id", format!("b{NOT_UTF8}"));
        put_into(&database, "users", odd).await;
        let odd_user = ("artist:7".to_owned(), format!("b{NOT_UTF8}"));
        let odd_key = (format!("artist:7{NOT_UTF8}"), "ben".to_owned());
        for (key, user) in [odd_user, odd_key] {
            let odd = doc! {"_id": {"k": key, "u": user}};
            put_into(&database, "follows", odd).await;
        }
    } else {
        let odd = "CREATE TEMP TABLE odd AS SELECT * FROM users WHERE id = 'ben';
            UPDATE odd SET id = CAST(x'62ffff' AS TEXT);
            INSERT INTO users SELECT * FROM odd;
            INSERT INTO follows VALUES
                ('artist:7', CAST(x'62ffff' AS TEXT)), (CAST(x'6172746973743a37ff' AS TEXT), 'ben');";
        file(&fresh).execute_batch(odd).unwrap();
    }

    let expected = [ben.clone(), zoe];
    let choices =
        DueUserFilter { tz: None, cadences: vec![None], weekdays: vec![None], hour: None };
    for filter in [
        UserFilter::Follow(&artist),
        UserFilter::All,
        UserFilter::Near(berlin, 5.0),
        UserFilter::Choices(&choices),
    ] {
        let all = fresh.find_users(&filter, None, 9).await.unwrap();
        let second = fresh.find_users(&filter, Some(&ben), 1).await.unwrap();

        assert_eq!(all, expected, "{filter:?}");
        assert_eq!(second, expected[1..], "{filter:?}");
    }
    let follows = fresh.follows(&ben, Some(&artist), 1).await.unwrap();
    assert_eq!(follows, [other]);
}
