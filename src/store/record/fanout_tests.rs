//! How entries of the journal are written and read.

use bson::Document;
use chrono::DateTime;

use super::*;
use crate::domain::{FollowKey, Id, Lease, ObjectId, Point, UserId};
use crate::store::record::{read_bson, write_bson};

/// As it is read again.
fn again(fanout: &Fanout) -> Fanout {
    let document = write_bson("testing", &FanoutRecord::whole(fanout, 0)).unwrap();
    read_bson::<FanoutRecord>(&document).unwrap().0
}

#[test]
fn a_fan_out_is_read_as_written() {
    let at = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
    let user = UserId::stored("$alice");
    let audiences = [
        Audience::users([user.clone(), UserId::stored("b")])
            .unwrap()
            .except([user.clone()]),
        Audience::followers_of([FollowKey::stored("artist:558")]).unwrap(),
        Audience::near(Point::new(13.4, 52.5).unwrap(), 0.5).unwrap(),
    ];
    for audience in audiences {
        let objects = vec![ObjectId::stored("1"), ObjectId::stored("0")];
        let id = Id::at(at, [1; 8]);
        let new = Fanout::new(id, None, EventType::stored("T"), objects, audience).unwrap();
        assert_eq!(again(&new), new);
        let document = write_bson("testing", &FanoutRecord::whole(&new, 0)).unwrap();
        let document = Document::try_from(document).unwrap();
        assert!(!document.contains_key("batch_key"));
        let new = new.with_batch_key("$a.b".parse().ok());
        assert_eq!(again(&new), new);
        let counts = Counts {
            people: 3,
            pushed: u64::from(u32::MAX) + 1,
            capped: 1,
        };
        let owner = "me".to_owned();
        let held = Fanout {
            progress: Progress {
                cursor: Some(user.clone()),
                counts,
                done: true,
            },
            state: FanoutState::Done,
            lease: Some(Lease { owner, until: at }),
            ..new
        };
        assert_eq!(again(&held), held);
    }
}
