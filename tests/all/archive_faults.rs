//! Archiving while MongoDB loses cursors, elects a primary, or loses replies.
//!
//! The faults are fail points of the server, as in [`crate::mongo_faults`].

use bson::doc;
use tidings::domain::Day;
use tidings::engine::{NoProgress, archive};
use tidings::store::mongo::MongoOptions;
use tidings::wire::archive::DayFate;

use crate::mongo_faults::{lost_reply, refused};
use crate::support::mongo::{Faulty, faulty};
use crate::support::town::{Town, monday};
use crate::support::*;

const LARGE_CAP: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_continues_after_its_cursor_is_lost() {
    faulty(MongoOptions::default(), async |store: &Faulty| {
        store.push_list_to_all(&people(3_500), events(1, 1)).await;
        let old = format!(r#"{{"_id":{{"$oid":"{}"}},"events":[]}}"#, id(5));
        let old = std::slice::from_ref(&old);
        store.restore_stacks(today(), old).await;
        let whole = store.exported(today()).await;
        assert_eq!(whole.len(), 3_501);
        for fault in [
            refused("getMore", 43),
            refused("find", 11600),
            refused("getMore", 10107),
            doc! {"failCommands": ["getMore"], "closeConnection": true},
        ] {
            store.fails(3, fault).await;

            assert!(store.exported(today()).await == whole);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archived_day_survives_a_failover_at_every_command() {
    let commands =
        "find getMore aggregate listCollections renameCollection drop insert update delete";
    faulty(MongoOptions::default(), async |store: &Faulty| {
        let town = Town::of(store).await;
        let pushes = push_to_all(&people(2_500), events(1, 1));
        for command in commands.split(' ') {
            for fault in [refused(command, 189), lost_reply(command)] {
                town.clock.set(monday(0));
                let day = Day::of(monday(0));
                store.push(day, LARGE_CAP, &pushes).await.unwrap();
                town.clock.set(monday(9));
                let folder = tempfile::tempdir().unwrap();
                let request = archive::ArchiveRequest {
                    export: Some(folder.path().to_owned()),
                    force: true,
                    ..keep_days(30)
                };
                store.fails(2, fault).await;

                let (app, mut reports) = (town.process(), Vec::new());
                let ran = app.archive().run(&request, &NoProgress, &mut reports).await;

                ran.unwrap();
                let fate = &reports[0].fate;
                assert!(matches!(fate, DayFate::Dropped { file: Some(_) }), "{command}: {fate:?}");
            }
        }
    })
    .await;
}
