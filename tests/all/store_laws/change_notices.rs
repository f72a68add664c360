//! Contract tests of change notices: a subscriber receives each change of a feed, from any handle.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use tidings::domain::{ChangeNotice, Inbox, NoticeKey, Object, ObjectKey, Subject, User};
use tidings::store::Result;

use crate::support::*;

/// Timeout for a notice, which normally arrives at once.
const TIMEOUT: Duration = Duration::from_secs(30);

type Notices = BoxStream<'static, Result<ChangeNotice>>;

async fn next(notices: &mut Notices) -> ChangeNotice {
    let notice = tokio::time::timeout(TIMEOUT, notices.next());
    let notice = notice.await.expect("nothing was heard");
    notice.expect("it ended").unwrap()
}

/// Waits for a notice that names this user or object.
async fn until(notices: &mut Notices, name: &str, of_people: bool) {
    loop {
        match next(notices).await {
            ChangeNotice::Users(keys)
                if of_people && keys.contains(&NoticeKey::from_name(name)) =>
            {
                return;
            }
            ChangeNotice::Objects(keys)
                if !of_people && keys.contains(&NoticeKey::from_name(name)) =>
            {
                return;
            }
            _ => {}
        }
    }
}

pub async fn a_subscriber_receives_notices_of_pushes_marks_and_objects(store: Fresh) {
    let mut notices = store.change_notices().await.unwrap();
    assert_eq!(next(&mut notices).await, ChangeNotice::All);

    let both = [user("ada"), user("ben")];
    store.push_list_to_all(&both, vec![event("a1", 1)]).await;
    until(&mut notices, "ben", true).await;
    let inbox = Inbox::empty(user("cem"));
    assert!(store.put_inbox(&inbox, id(1)).await.unwrap());
    until(&mut notices, "cem", true).await;
    let mut muting = User::new(user("dee"));
    let subject = Subject::stored("Thread:9");
    muting.mutes.mute(subject, None, None, noon());
    assert_eq!(store.put_users(&[muting]).await.unwrap(), [true]);
    until(&mut notices, "dee", true).await;
    let object = Object::without_data(ObjectKey::stored("Artwork:1"));
    store.put_objects(&[object]).await.unwrap();
    until(&mut notices, "Artwork:1", false).await;
}

pub async fn a_late_subscriber_receives_later_notices(store: Fresh) {
    let users = people(3_000);
    let push = |n: u32| {
        let pushes = push_to_all(&users, vec![event("a1", n)]);
        let store = &store;
        async move { store.push(today(), 1_000, &pushes).await.unwrap() }
    };
    push(1).await;
    let mut notices = store.change_notices().await.unwrap();
    assert_eq!(next(&mut notices).await, ChangeNotice::All);

    push(2).await;

    until(&mut notices, "p02999", true).await;
}
