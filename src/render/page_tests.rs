//! Tests of pages: snapshots, and properties of all pages.

use super::super::tests::{at, site};
use super::*;
use crate::domain::user::TypePreference;
use crate::domain::{Address, User, UserId};

const TOKEN: &str = "1token";

fn pages() -> Pages {
    Pages::new(&site(), None).unwrap()
}

fn mara() -> User {
    User {
        email: Address::new("mara@example.org").ok(),
        confirmed: true,
        tz: Some(chrono_tz::Europe::Paris),
        ..User::new(UserId::stored("mara"))
    }
}

fn default() -> Schedule {
    Schedule { cadence: Cadence::Weekly, weekday: Weekday::Mon, hour: 9, tz: chrono_tz::UTC }
}

fn policies() -> Policies {
    let policy =
        |route, heading: &str| Policy { route, heading: Some(heading.into()), ..Policy::default() };
    Policies::new([
        (EventType::stored("ArtworkPublished"), policy(Route::Digest, "New works")),
        (EventType::stored("Reply"), policy(Route::Batch, "Replies to you")),
    ])
}

fn preferences(user: &User, saved: bool) -> String {
    let (default, policies) = (default(), policies());
    let page = WebPage::Preferences(PreferencesPage {
        page_user: PageUser::new(user, &default, &policies),
        token: TOKEN,
        is_saved: saved,
        next_digest: None,
    });
    pages().render(&page, user.locale.as_deref()).unwrap()
}

/// Returns the body without the list of time zones, which is long like the style sheet.
fn without_zones(html: &str) -> String {
    let (_, body) = html.split_once("<body>").unwrap();
    match body.split_once("<optgroup") {
        Some((before, rest)) => {
            let (_, after) = rest.rsplit_once("</optgroup>").unwrap();
            format!("{before}…{after}")
        }
        None => body.to_owned(),
    }
}

fn tokens() -> EmailTokens {
    let [own, digest, all] = ["2own", "2digest", TOKEN].map(str::to_owned);
    EmailTokens { own, digest, all }
}

fn stop_page(
    user: &User,
    stop: &StopAction,
    policies: &Policies,
    before: Option<Option<&User>>,
) -> String {
    let default = default();
    let page = WebPage::Stop(StopPage {
        page_user: PageUser::new(user, &default, policies),
        stop,
        is_stopped: before.is_some(),
        previous_user: before.flatten(),
        tokens: &tokens(),
        follow_name: matches!(stop, StopAction::Follow(_)).then_some("Ines Tavoro"),
    });
    pages().render(&page, user.locale.as_deref()).unwrap()
}

/// Returns the user's record after the stop.
fn after(before: &User, stop: &StopAction) -> User {
    let mut user = before.clone();
    user.apply_stop(stop, &policies(), at());
    user
}

fn replies() -> StopAction {
    StopAction::for_types([&EventType::stored("Reply")])
}

#[test]
fn built_in_pages_render_the_samples() {
    pages().render_samples().unwrap();
}

#[test]
fn the_confirmation_page_masks_the_address() {
    let html = stop_page(&mara(), &StopAction::All, &policies(), None);

    insta::assert_snapshot!("page_unsubscribe", html);
}

#[test]
fn the_unsubscribed_page_offers_an_undo() {
    let gone = after(&mara(), &StopAction::All);

    let html = stop_page(&gone, &StopAction::All, &policies(), Some(Some(&mara())));

    insta::assert_snapshot!("page_unsubscribed", without_zones(&html));
}

#[test]
fn the_page_of_a_type_lists_stopped_and_remaining_emails() {
    let (before, stop) = (mara(), replies());

    let asks = stop_page(&before, &stop, &policies(), None);
    let stopped = after(&before, &stop);
    let done = stop_page(&stopped, &stop, &policies(), Some(Some(&before)));

    insta::assert_snapshot!("page_stop_type", without_zones(&asks));
    insta::assert_snapshot!("page_stopped_type", without_zones(&done));
}

#[test]
fn the_page_of_a_follow_names_it_and_its_own_link_restores_it() {
    let stop = StopAction::Follow(FollowKey::stored("artist:7"));

    let asks = stop_page(&mara(), &stop, &policies(), None);
    let done = stop_page(&mara(), &stop, &policies(), Some(Some(&mara())));

    insta::assert_snapshot!("page_stop_follow", without_zones(&asks));
    insta::assert_snapshot!("page_stopped_follow", without_zones(&done));
}

#[test]
fn the_page_of_a_digest_lists_stopped_and_remaining_emails() {
    let (before, stop) = (mara(), StopAction::Digest);

    let asks = stop_page(&before, &stop, &policies(), None);
    let stopped = after(&before, &stop);
    let done = stop_page(&stopped, &stop, &policies(), Some(Some(&before)));

    insta::assert_snapshot!("page_stop_digest", without_zones(&asks));
    insta::assert_snapshot!("page_stopped_digest", without_zones(&done));
}

#[test]
fn the_preferences_list_the_types_that_were_turned_off() {
    let user = after(&mara(), &replies());

    let html = preferences(&user, false);

    assert!(html.contains("You turned off: <bdi>Replies to you</bdi>."), "{html}");
}

#[test]
fn the_preferences_page_shows_all_choices() {
    let mut user = mara();
    let (route, since) = (Route::Never, at());
    let old = EventType::stored("old_type");
    user.types.insert(old, TypePreference::new(route, since));

    insta::assert_snapshot!("page_preferences", without_zones(&preferences(&user, true)));
}

#[test]
fn an_unsubscribed_user_sees_no_unsubscribe_button() {
    let user = User { unsubscribed: Some(at()), ..mara() };

    let html = preferences(&user, false);

    let since = r#"since <time datetime="2014-04-22T08:00:00Z">22 April 2014</time> and"#;
    assert!(html.contains(since), "{html}");
    assert!(!html.contains("Unsubscribe from everything"));
}

#[test]
fn every_selected_zone_is_in_the_list() {
    for zone in chrono_tz::TZ_VARIANTS {
        let regions = Value::from(view::zones(zone));
        let env = minijinja::Environment::new();
        let template = "{% for region in regions %}{% for option in region.options \
                        if option.value == zone %}{{ option.value }};{% endfor %}{% endfor %}";
        let variables = context! { regions, zone => zone.name() };
        let chosen = env.render_str(template, variables).unwrap();
        assert_eq!(chosen, format!("{};", zone.name()));
    }
}

#[test]
fn markup_in_names_is_escaped() {
    let mut user = mara();
    let odd = EventType::stored("\"><script>alert(1)</script>");
    let (route, since) = (Route::Digest, at());
    user.types.insert(odd, TypePreference::new(route, since));
    let notice = WebPage::Notice(Notice::InvalidChoice("<b>, <i>&\"".to_owned()));

    for html in [preferences(&user, true), pages().render(&notice, None).unwrap()] {
        for bad in ["<script", "<b>", "<i>"] {
            assert!(!html.contains(bad), "{bad} in {html}");
        }
    }
}

#[test]
fn an_operators_page_replaces_the_built_in_one_and_errors_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("pages")).unwrap();
    let file = folder.path().join("pages/notice.html");
    let own_pages = || Pages::new(&site(), Some(folder.path().to_owned()));
    let notice = WebPage::Notice(Notice::ExpiredLink);

    std::fs::write(&file, "<h1>{{ heading }} at {{ site.name }}</h1>").unwrap();
    let html = own_pages().unwrap().render(&notice, None).unwrap();
    std::fs::write(&file, "fine\n{{ haeding }}").unwrap();
    let error = own_pages().err().unwrap().to_string();

    assert_eq!(html, "<h1>This link is too old at Tate</h1>");
    assert!(error.contains("notice.html, line 2"), "{error}");
}

#[test]
fn the_preferences_show_the_next_digest_in_local_time() {
    let (default, policies) = (&default(), &policies());
    let shown = |user: &User| {
        let page = WebPage::Preferences(PreferencesPage {
            page_user: PageUser::new(user, default, policies),
            token: TOKEN,
            is_saved: true,
            next_digest: "2014-04-28T07:00:00Z".parse().ok(),
        });
        pages().render(&page, None).unwrap()
    };
    let gone = User { unsubscribed: Some(at()), ..mara() };

    let (subscribed, unsubscribed) = (shown(&mara()), shown(&gone));

    let expected = "Your next digest comes on <time datetime=\"2014-04-28T07:00:00Z\">Monday 28 April 2014, 09:00</time>";
    assert!(subscribed.contains(expected), "{subscribed}");
    assert!(!unsubscribed.contains("next digest"));
}

/// Returns policies with all cases: a category, a mandatory type, and a type with neither.
fn sorted() -> Policies {
    let typed = |name: &str, policy: Policy| (EventType::stored(name), policy);
    let category = |name: &str| name.parse().ok();
    Policies::new([
        typed(
            "Reply",
            Policy {
                heading: Some("Replies to you".into()),
                category: category("Community"),
                ..Policy::default()
            },
        ),
        typed("Plain", Policy::default()),
        typed(
            "Notice",
            Policy {
                route: Route::Immediate,
                heading: Some("Security notices".into()),
                category: category("Account & <safety>"),
                mandatory: "We have to tell you <this>".parse().ok(),
                ..Policy::default()
            },
        ),
    ])
}

#[test]
fn types_are_grouped_by_category_and_mandatory_ones_are_locked() {
    let mut user = mara();
    let notice = EventType::stored("Notice");
    let (route, since) = (Route::Never, at());
    user.types.insert(notice, TypePreference::new(route, since));
    let (default, policies) = (default(), sorted());
    let page = WebPage::Preferences(PreferencesPage {
        page_user: PageUser::new(&user, &default, &policies),
        token: TOKEN,
        is_saved: false,
        next_digest: None,
    });

    let html = pages().render(&page, None).unwrap();

    let (_, types) = html.split_once("</optgroup>\n</select></div>").unwrap();
    insta::assert_snapshot!("page_preferences_locked", types);
}

#[test]
fn the_unsubscribe_pages_list_the_mandatory_emails() {
    for before in [None, Some(None)] {
        let html = stop_page(&mara(), &StopAction::All, &sorted(), before);
        let but = "no more emails from Tate but those that cannot be turned off: Security notices.";
        assert!(html.contains(but), "{html}");
    }
    let html = stop_page(&mara(), &StopAction::Digest, &sorted(), Some(None));
    assert!(html.contains("<bdi>Security notices</bdi> <span class=\"soft\">(cannot"), "{html}");
}

#[test]
fn pages_are_in_the_language_of_their_user() {
    for tag in ["de", "ja", "ar"] {
        let user = User { locale: Some(tag.into()), ..mara() };
        let stop = replies();
        let follow = StopAction::Follow(FollowKey::stored("artist:7"));

        let asks = stop_page(&user, &stop, &policies(), None);
        let unfollowed = stop_page(&user, &follow, &policies(), Some(None));
        let choices = preferences(&user, true);

        assert!(asks.contains(&format!(r#"<html lang="{tag}" dir=""#)), "{asks}");
        insta::assert_snapshot!(format!("page_stop_type_{tag}"), without_zones(&asks));
        insta::assert_snapshot!(format!("page_stopped_follow_{tag}"), without_zones(&unfollowed));
        insta::assert_snapshot!(format!("page_preferences_{tag}"), without_zones(&choices));
    }
}
