//! Laws of pokes: whoever listens hears of every change of feeds, by whatever handle.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use tidings::domain::{Inbox, Object, ObjectKey, Poke, PokeKey, Subject, User};
use tidings::store::Result;

use crate::support::*;

/// Longer than it ever takes; it is a moment.
const PATIENCE: Duration = Duration::from_secs(30);

type Heard = BoxStream<'static, Result<Poke>>;

async fn next(heard: &mut Heard) -> Poke {
    let poke = tokio::time::timeout(PATIENCE, heard.next());
    let poke = poke.await.expect("nothing was heard");
    poke.expect("it ended").unwrap()
}

/// The first poke that names this.
async fn until(heard: &mut Heard, name: &str, of_people: bool) {
    loop {
        match next(heard).await {
            Poke::People(keys) if of_people && keys.contains(&PokeKey::of(name)) => return,
            Poke::Objects(keys) if !of_people && keys.contains(&PokeKey::of(name)) => return,
            _ => {}
        }
    }
}

pub async fn whoever_listens_hears_of_pushes_marks_and_objects(store: Fresh) {
    let mut heard = store.pokes().await.unwrap();
    assert_eq!(next(&mut heard).await, Poke::All);

    let both = [user("ada"), user("ben")];
    let pushes = push_to_all(&both, vec![event("a1", 1)]);
    store.push(today(), 1_000, &pushes).await.unwrap();
    until(&mut heard, "ben", true).await;
    let inbox = Inbox::empty(user("cem"));
    assert!(store.put_inbox(&inbox, id(1)).await.unwrap());
    until(&mut heard, "cem", true).await;
    let mut muting = User::new(user("dee"));
    let subject = Subject::stored("Thread:9");
    muting.mutes.mute(subject, None, None, noon());
    assert_eq!(store.put_users(&[muting]).await.unwrap(), [true]);
    until(&mut heard, "dee", true).await;
    let object = Object::bare(ObjectKey::stored("Artwork:1"));
    store.put_objects(&[object]).await.unwrap();
    until(&mut heard, "Artwork:1", false).await;
}

pub async fn who_listens_late_hears_of_what_comes(store: Fresh) {
    let everybody = people(3_000);
    let push = |n: u32| {
        let pushes = push_to_all(&everybody, vec![event("a1", n)]);
        let store = &store;
        async move { store.push(today(), 1_000, &pushes).await.unwrap() }
    };
    push(1).await;
    let mut heard = store.pokes().await.unwrap();
    assert_eq!(next(&mut heard).await, Poke::All);

    push(2).await;

    until(&mut heard, "p02999", true).await;
}
