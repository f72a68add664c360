//! Contract tests of `Directory` for digest preferences, by which due users are found.

use chrono::Weekday;
use chrono_tz::Tz;
use tidings::domain::user::DigestPreference;
use tidings::domain::{Cadence, DueUserFilter, User, UserId};
use tidings::store::{UserField, UserFilter};

use crate::support::*;

/// Users with all combinations of these choices, twice each.
fn users_with_choices() -> Vec<User> {
    let zones = [None, Some(Tz::UTC), Some(Tz::Europe__Berlin)];
    let cadences = [None, Some(Cadence::Never), Some(Cadence::Weekly)];
    let weekdays = [None, Some(Weekday::Mon), Some(Weekday::Sun)];
    let hours = [None, Some(0), Some(8)];
    let mut people = Vec::new();
    for n in 0..162_usize {
        people.push(User {
            tz: zones[n % 3],
            digest: DigestPreference {
                cadence: cadences[n / 3 % 3],
                weekday: weekdays[n / 9 % 3],
                hour: hours[n / 27 % 3],
                since: None,
            },
            // The ids are not in the order of the choices.
            ..User::new(user(&format!("u{:03}", n * 61 % 162)))
        });
    }
    people
}

pub async fn users_are_found_by_their_choices_in_ascending_order(store: Fresh) {
    let users = users_with_choices();
    store.put_users(&users).await.unwrap();
    let requests = [
        (None, vec![None], vec![None], None),
        (
            Some(Tz::Europe__Berlin),
            vec![Some(Cadence::Weekly), None],
            vec![Some(Weekday::Sun), None],
            Some(8),
        ),
        (
            None,
            vec![Some(Cadence::Never)],
            vec![Some(Weekday::Mon), Some(Weekday::Sun), None],
            Some(0),
        ),
        (Some(Tz::Asia__Tokyo), vec![None], vec![None], None),
    ];
    for (tz, cadences, weekdays, hour) in requests {
        let choices = DueUserFilter { tz, cadences, weekdays, hour };
        let chose = |person: &&User| {
            let digest = &person.digest;
            person.tz == choices.tz
                && choices.cadences.contains(&digest.cadence)
                && choices.weekdays.contains(&digest.weekday)
                && choices.hour == digest.hour
        };
        let mut wanted: Vec<UserId> = users.iter().filter(chose).map(id_of).collect();
        wanted.sort_unstable();

        let (mut found, mut after) = (Vec::new(), None);
        while found.len() <= users.len() {
            let chose = UserFilter::Choices(&choices);
            let page = store.find_users(&chose, after.as_ref(), 3).await.unwrap();
            assert!(page.len() <= 3);
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            found.extend(page);
        }

        assert_eq!(found, wanted, "{choices:?}");
    }
}

fn id_of(person: &User) -> UserId {
    person.id.clone()
}

pub async fn a_user_is_found_by_their_current_choices(store: Fresh) {
    let chose = |hour| DueUserFilter { tz: None, cadences: vec![None], weekdays: vec![None], hour };
    let ada = User::new(user("ada"));
    store.put_users(&[ada]).await.unwrap();
    let stored = store.users(&[user("ada")]).await.unwrap();
    let mut ada = stored.into_iter().flatten().next().unwrap();
    ada.digest.hour = Some(7);
    store.put_users(&[ada]).await.unwrap();

    for (hour, found) in [(None, vec![]), (Some(7), vec![user("ada")])] {
        let (choices, all) = (chose(hour), 10);
        let of = UserFilter::Choices(&choices);
        assert_eq!(store.find_users(&of, None, all).await.unwrap(), found);
    }
}

pub async fn the_time_zones_of_users_are_returned_once(store: Fresh) {
    assert_eq!(store.values(UserField::Zone).await.unwrap(), [""; 0]);
    let zones = [None, Some(Tz::UTC), Some(Tz::Europe__Berlin), Some(Tz::UTC)];
    let people = (0..).zip(zones).map(|(n, tz)| User { tz, ..User::new(user(&format!("u{n}"))) });
    store.put_users(&people.collect::<Vec<_>>()).await.unwrap();

    let mut found = store.values(UserField::Zone).await.unwrap();

    found.sort_unstable();
    assert_eq!(found, ["Europe/Berlin", "UTC"]);
}

pub async fn the_locales_of_users_are_returned_once(store: Fresh) {
    assert_eq!(store.values(UserField::Locale).await.unwrap(), Vec::<String>::new());
    let locales = [None, Some("de"), Some("pt-BR"), Some("de")];
    let users = (0..).zip(locales).map(|(n, locale)| User {
        locale: locale.map(str::to_owned),
        ..User::new(UserId::stored(format!("u{n}")))
    });
    let users: Vec<User> = users.collect();
    store.put_users(&users).await.unwrap();

    let mut found = store.second().values(UserField::Locale).await.unwrap();

    found.sort();
    assert_eq!(found, ["de", "pt-BR"]);
}
