//! Laws of `Diagnostics`: facts of the store itself, and nothing is changed by asking.

use chrono::TimeDelta;
use tidings::clock::{Clock, SystemClock};
use tidings::store::{Engine, Topology};

use crate::support::*;

pub async fn a_store_says_what_it_runs_on(store: Fresh) {
    let version = match store.server().await.unwrap().engine {
        Engine::Sqlite { version, journal } => {
            assert_eq!(journal, "wal");
            version
        }
        Engine::Mongo { version, topology } => {
            assert!(
                matches!(topology, Topology::ReplicaSet { members: 1.. }),
                "{topology:?}"
            );
            version
        }
    };

    assert!(
        version.starts_with(|c: char| c.is_ascii_digit()),
        "{version}"
    );
    assert!(version.contains('.'), "{version}");
}

pub async fn a_fresh_store_lacks_no_index(store: Fresh) {
    assert_eq!(store.missing_indexes().await.unwrap(), [] as [String; 0]);
}

pub async fn the_servers_clock_is_asked_and_nothing_is_left_by_asking(store: Fresh) {
    let before = SystemClock.now() - TimeDelta::seconds(1);
    let told = store.server().await.unwrap().time;
    let after = SystemClock.now() + TimeDelta::seconds(1);

    assert!(told.is_none_or(|at| before < at && at < after), "{told:?}");
    assert_eq!(store.days().await.unwrap().len(), 0);
}
