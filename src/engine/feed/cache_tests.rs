//! Tests what the feed cache stores, and when its entries become invalid.

use super::*;
use crate::clock::ManualClock;
use crate::domain::{BatchMarker, Route, Stack, StackId, Subject};

const TAG: ResponseHash = [7; 16];

struct Case {
    clock: Arc<ManualClock>,
    cache: Arc<FeedCache>,
    ada: UserId,
}

fn event(o: &str) -> Event {
    Event { kind: EventType::stored("Loan"), object: ObjectId::stored(o), fanout_id: None }
}

fn disconnected() -> Case {
    let clock = Arc::new(ManualClock::at("2014-04-22T12:00:00Z".parse().unwrap()));
    let cache = Arc::new(FeedCache::new(clock.clone(), TimeDelta::seconds(30)));
    let ada = UserId::stored("ada");
    Case { clock, cache, ada }
}

impl Case {
    fn new() -> Self {
        let case = disconnected();
        case.cache.apply_notice(&ChangeNotice::All);
        case
    }

    /// Caches a tag for Ada that depends on this object, the object, and Ada's window.
    fn with(object: &str) -> Self {
        let case = Self::new();
        case.put_tag("limit=20", &[ObjectKey::stored(format!("Artwork:{object}"))]);
        case.put_object(object);
        case.put_window("ada", vec![Entry::Other; 3], Mutes::default());
        case
    }

    fn put_tag(&self, uri: &str, depends_on: &[ObjectKey]) {
        let before = self.cache.version_of_user(&self.ada).unwrap();
        self.cache.put_tag(&self.ada, uri, TAG, before, depends_on, None);
    }

    fn has_tag(&self, uri: &str) -> bool {
        self.cache.tag(&self.ada, uri) == Some(TAG)
    }

    fn put_object(&self, o: &str) {
        let key = ObjectKey::stored(format!("Artwork:{o}"));
        let version = self.cache.version_of_object(&key).unwrap();
        let object = Object::without_data(key);
        let facts = ObjectFacts { object: Some(Arc::new(object)), retracted: None };
        self.cache.put_object(&event(o), facts, version);
    }

    fn window(&self) -> DaySet {
        DaySet::ending(Day::of(self.clock.now()), 7)
    }

    fn put_window(&self, name: &str, entries: Vec<Entry>, mutes: Mutes) {
        self.put_window_with(name, entries, mutes, BTreeMap::new());
    }

    fn put_window_with(
        &self,
        name: &str,
        entries: Vec<Entry>,
        mutes: Mutes,
        types: BTreeMap<EventType, TypePreference>,
    ) {
        let user = UserId::stored(name);
        let version = self.cache.version_of_user(&user).unwrap();
        let stack = Stack::new(StackId::for_day(Day::of(self.clock.now())), entries);
        let window = UserWindow {
            window: self.window(),
            inbox: Inbox::empty(user.clone()),
            mutes,
            types: Some(types),
            user_stacks: UserStacks { user, stacks: vec![stack] },
        };
        self.cache.put_window(Arc::new(window), version);
    }

    fn has_window(&self, name: &str) -> bool {
        let user = UserId::stored(name);
        self.cache.window(&user, &self.window()).is_some()
    }

    /// Returns whether the tag, the object and the window of [`Self::with`] are valid.
    fn is_cached(&self, object: &str) -> [bool; 3] {
        let has_object = self.cache.object(&event(object)).is_some();
        [self.has_tag("limit=20"), has_object, self.has_window("ada")]
    }

    /// Returns the number of cached windows.
    fn windows(&self) -> usize {
        size(&self.cache.windows).0
    }
}

/// Returns the number of entries and the bytes that they use.
fn size<K, V>(entries: &VersionedCache<K, V>) -> (usize, u64)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    entries.0.run_pending_tasks();
    (entries.0.entry_count() as usize, entries.0.weighted_size())
}

fn muted(subjects: usize) -> Mutes {
    let at = "2014-04-22T12:00:00Z".parse().unwrap();
    let mut mutes = Mutes::default();
    for n in 0..subjects {
        mutes.mute(Subject::stored(format!("Thread:{n}")), None, None, at);
    }
    mutes
}

#[test]
fn a_cached_tag_is_valid_for_its_user_and_query_only() {
    let case = Case::with("1");

    assert!(case.has_tag("limit=20"));
    assert!(!case.has_tag("limit=21"));
    assert_eq!(case.cache.tag(&UserId::stored("ben"), "limit=20"), None);
}

#[test]
fn a_cached_window_is_valid_for_its_user_and_day_only() {
    let case = Case::with("1");
    let next = Day::of(case.clock.now() + TimeDelta::days(1));

    assert!(!case.has_window("ben"));
    let window = case.cache.window(&case.ada, &DaySet::ending(next, 7));
    assert!(window.is_none());
    assert!(case.has_window("ada"));
}

#[test]
fn a_change_notice_invalidates_the_entries_of_its_users_and_objects() {
    let notices = [
        (ChangeNotice::users(["ada"]), [false, true, false]),
        (ChangeNotice::users(["ben"]), [true, true, true]),
        (ChangeNotice::objects(["Artwork:1"]), [false, false, true]),
        (ChangeNotice::objects(["Artwork:2"]), [true, true, true]),
        (ChangeNotice::All, [false, false, false]),
    ];
    for (notice, expected) in notices {
        let case = Case::with("1");

        case.cache.apply_notice(&notice);

        assert_eq!(case.is_cached("1"), expected, "{notice:?}");
    }
}

#[test]
fn a_notice_that_arrives_during_the_read_prevents_caching() {
    for notice in
        [ChangeNotice::users(["ada"]), ChangeNotice::objects(["Artwork:1"]), ChangeNotice::All]
    {
        let case = Case::new();
        let objects = [ObjectKey::stored("Artwork:1")];
        let before = case.cache.version_of_user(&case.ada).unwrap();
        let object_version = case.cache.version_of_object(&objects[0]).unwrap();
        case.cache.apply_notice(&notice);

        case.cache.put_tag(&case.ada, "days=1", TAG, before, &objects, None);
        let facts = ObjectFacts { object: None, retracted: None };
        case.cache.put_object(&event("1"), facts, object_version);

        assert!(!case.has_tag("days=1"), "{notice:?}");
        let has_object = case.cache.object(&event("1")).is_some();
        assert_eq!(has_object, notice == ChangeNotice::users(["ada"]), "{notice:?}");
    }
}

#[test]
fn entries_expire_after_feed_fresh_and_if_the_clock_goes_back() {
    for (passes, valid) in [(0, true), (29, true), (30, false), (-1, false)] {
        let case = Case::with("1");

        case.clock.advance(TimeDelta::seconds(passes));

        assert_eq!(case.is_cached("1"), [valid; 3], "{passes}");
    }
}

#[test]
fn a_cached_tag_expires_at_the_end_of_its_day_and_with_the_oldest_data_in_its_response() {
    let case = Case::new();
    case.clock.advance(TimeDelta::hours(12) - TimeDelta::seconds(10));
    case.put_tag("late", &[]);
    assert!(case.has_tag("late"));
    case.clock.advance(TimeDelta::seconds(10));
    assert!(!case.has_tag("late"));

    let before = case.cache.version_of_user(&case.ada).unwrap();
    let as_of = Some(case.clock.now() - TimeDelta::seconds(20));
    case.cache.put_tag(&case.ada, "old", TAG, before, &[], as_of);
    case.clock.advance(TimeDelta::seconds(9));
    assert!(case.has_tag("old"));
    case.clock.advance(TimeDelta::seconds(1));
    assert!(!case.has_tag("old"));
}

#[test]
fn nothing_is_cached_before_change_notices_arrive() {
    let case = disconnected();
    assert!(case.cache.version_of_user(&case.ada).is_none());
}

#[test]
fn details_are_valid_until_everything_is_invalidated() {
    let case = Case::new();
    let id = Id::at(case.clock.now(), [0; 8]);
    let before = case.cache.version_of_details().unwrap();
    case.cache.put_details(id, None, before);
    case.clock.advance(TimeDelta::days(1));
    case.cache.apply_notice(&ChangeNotice::users(["ada"]));
    assert!(case.cache.details(id).is_some());

    case.cache.invalidate_all();

    assert!(case.cache.details(id).is_none());
}

#[test]
fn a_tag_that_depends_on_many_objects_is_invalidated_by_each() {
    let case = Case::new();
    let many: Vec<ObjectKey> = (0..4_000).map(|n| ObjectKey::stored(format!("o{n}"))).collect();
    case.put_tag("many", &many);
    assert!(case.has_tag("many"));

    case.cache.apply_notice(&ChangeNotice::objects(["o3999"]));

    assert!(!case.has_tag("many"));
}

#[test]
fn notices_of_many_users_invalidate_no_object_and_no_tag_about_objects() {
    let case = Case::new();
    let objects: Vec<ObjectKey> =
        (0..20).map(|n| ObjectKey::stored(format!("Artwork:{n}"))).collect();
    case.put_tag("few", &objects);
    (0..20).for_each(|n| case.put_object(&n.to_string()));
    // A user who shares Ada's counter invalidates her tag.
    let counter = |name: &str| user_counter(NoticeKey::from_name(name));
    let users = (0..).map(|n| format!("p{n}"));
    let users: Vec<String> =
        users.filter(|name| counter(name) != counter("ada")).take(10_000).collect();

    case.cache.apply_notice(&ChangeNotice::users(users.iter().map(String::as_str)));

    assert!(case.has_tag("few"));
    let has = |n: u32| case.cache.object(&event(&n.to_string())).is_some();
    assert!((0..20).all(has));
    case.cache.apply_notice(&ChangeNotice::objects(["Artwork:19"]));
    assert!(!case.has_tag("few"));
    assert!(!has(19));
}

#[test]
fn all_kinds_of_entries_stay_within_their_byte_limits() {
    let case = Case::new();
    for n in 0..60_000 {
        case.put_tag(&n.to_string(), &[]);
        case.put_object(&n.to_string());
    }
    for n in 0..1_000 {
        case.put_window(&format!("p{n}"), vec![Entry::Other; 500], Mutes::default());
    }

    let (tags, bytes) = size(&case.cache.tags);
    assert!(tags > 0 && bytes <= TAG_BYTES, "{tags} in {bytes}");
    let (objects, bytes) = size(&case.cache.objects);
    assert!(objects > 0 && bytes <= OBJECT_BYTES, "{objects} in {bytes}");
    let (windows, bytes) = size(&case.cache.windows);
    assert!(bytes <= WINDOW_BYTES, "{windows} in {bytes}");
    let entries = (windows * 500 * size_of::<Entry>()) as u64;
    assert!((1..=WINDOW_BYTES).contains(&entries), "{windows}");
}

#[test]
fn ids_of_emailed_entries_muted_subjects_and_choices_count_toward_the_limit() {
    let case = Case::new();
    let id = Id::at(case.clock.now(), [0; 8]);
    for n in 0..2_000 {
        let fanouts = vec![id; 1_000];
        let entries = vec![Entry::BatchMarker(BatchMarker { id, fanouts })];
        case.put_window(&format!("p{n}"), entries, Mutes::default());
    }
    let max_windows = WINDOW_BYTES as usize / (1_000 * size_of::<Id>());
    assert!((1..=max_windows).contains(&case.windows()));

    let case = Case::new();
    for n in 0..2_000 {
        case.put_window(&format!("p{n}"), Vec::new(), muted(100));
    }
    let max_windows = WINDOW_BYTES as usize / (100 * MUTE_BYTES);
    assert!((1..=max_windows).contains(&case.windows()));

    let case = Case::new();
    let name = "N".repeat(72);
    let choice = TypePreference::new(Route::Never, case.clock.now());
    let types = (0..400).map(|n| (EventType::stored(format!("{name}{n}")), choice));
    let types: BTreeMap<_, _> = types.collect();
    for n in 0..2_000 {
        case.put_window_with(&format!("p{n}"), Vec::new(), Mutes::default(), types.clone());
    }
    let max_windows = WINDOW_BYTES as usize / (400 * (CHOICE_BYTES + name.len()));
    assert!((1..=max_windows).contains(&case.windows()));
}

#[test]
fn a_user_with_a_large_entry_evicts_no_other_user() {
    let case = Case::new();
    let few = 256;
    for n in 0..few {
        case.put_window(&format!("p{n}"), vec![Entry::Other; 5], Mutes::default());
        case.put_window(&format!("much{n}"), Vec::new(), muted(Mutes::MAX));
    }

    assert_eq!(case.windows(), few);
}

#[tokio::test]
async fn a_subscriber_is_notified_of_changes_and_then_removed() {
    let case = Case::new();
    let mut by_ada = case.cache.subscribe(&case.ada);
    let mut by_ben = case.cache.subscribe(&UserId::stored("ben"));

    case.cache.apply_notice(&ChangeNotice::users(["ada"]));
    by_ada.changes.changed().await.unwrap();

    assert!(!by_ben.changes.has_changed().unwrap());
    case.cache.apply_notice(&ChangeNotice::All);
    by_ben.changes.changed().await.unwrap();
    let reopened = case.cache.subscribe(&case.ada);
    drop((by_ada, by_ben));
    assert_eq!(lock(&case.cache.subscribers).len(), 1);
    drop(reopened);
    assert!(lock(&case.cache.subscribers).is_empty());
}
