//! Tests that each email uses one brand throughout, and that deliveries for an unconfigured brand
//! stay pending.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::app::{App, Mailers};
use tidings::config::Config;
use tidings::domain::{BrandName, DeliveryState, EventType, ObjectId};
use tidings::email::Resolution;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest as Run;
use tidings::engine::ingest::NewEvent;
use tidings::ids::Ids;
use tokio::time::timeout;

use crate::mail::provider::{Dialect, Provider};
use crate::support::town::{
    Call, Town, lost, monday, mostly_on_sqlite, request, saturday, themes, to,
};
use crate::support::{Fresh, assert_contains};

mostly_on_sqlite! {
    emails_of_different_brands_in_one_run_share_no_content
    a_branded_event_is_emailed_as_its_brand_and_not_in_a_digest
    deliveries_for_an_unconfigured_brand_stay_pending
    a_delivery_for_a_missing_brand_fails_and_its_events_are_sent_later
    a_repeated_call_uses_the_brand_of_the_first_call
    a_rate_limited_account_does_not_delay_other_brands
    successes_of_one_account_do_not_hide_lost_calls_of_another
    a_lost_call_is_not_repeated_while_its_account_is_in_use
    all_links_of_an_email_use_its_brand
}

/// Words for the default and for each brand. No other identity's settings contain the word.
pub(super) const WORDS: [&str; 3] = ["origina", "acmeish", "umbrage"];

/// Returns the settings of the default or of a brand. The prefix of their keys selects the brand.
fn settings(word: &str, prefix: &str) -> String {
    format!(
        r##"
        {prefix}site.name = "{word} Gallery"
        {prefix}site.url = "https://www.{word}.example"
        {prefix}site.logo = "https://www.{word}.example/logo.png"
        {prefix}site.postal_address = "1 {word} Road"
        {prefix}site.feedback_id = "{word}"
        {prefix}server.public_url = "https://mail.{word}.example"
        {prefix}mail.from = "news@{word}.example"
        {prefix}mail.from_name = "{word} News"
        {prefix}mail.reply_to = "desk@{word}.example"
        "##
    )
}

/// Returns a configuration of the default and two brands. The default and `umbrage` share a
/// provider account; `acmeish` has its own.
pub(super) fn three(shared: &str, own_provider: &str) -> String {
    let [origina, acmeish, umbrage] = WORDS;
    format!(
        r#"
        delivery.chunk = 100
        fanout.page = 100
        types.Comment.route = "immediate"
        types.Comment.unknown_objects = "mail"
        types.Comment.branded = true
        {}
        mail.provider = "sendgrid"
        mail.key = "key-{origina}"
        mail.url = "{shared}"
        {}
        brands.{acmeish}.mail.provider = "postmark"
        brands.{acmeish}.mail.key = "key-{acmeish}"
        brands.{acmeish}.mail.url = "{own_provider}"
        {}
        "#,
        settings(origina, ""),
        settings(acmeish, &format!("brands.{acmeish}.")),
        settings(umbrage, &format!("brands.{umbrage}.")),
    )
}

pub(super) fn brand(name: &str) -> Option<BrandName> {
    Some(BrandName::new(name).unwrap())
}

/// Creates a process of the town with another configuration, including its providers.
fn process(town: &Town, config: &str) -> App {
    let mailers = Mailers::from_config(&Config::parse(config).unwrap()).unwrap();
    assembled(town, config, mailers)
}

/// Like [`process`], but all brands send to the town's postbox.
pub(super) fn by_postbox(town: &Town, config: &str) -> App {
    let mailers = Mailers::shared(town.postbox.clone(), &Config::parse(config).unwrap());
    assembled(town, config, mailers)
}

fn assembled(town: &Town, config: &str, mailers: Mailers) -> App {
    let (store, clock) = (town.store.clone(), town.clock.clone());
    let (themes, config) = (themes(config), Config::parse(config).unwrap());
    App::from_parts(config, store, mailers, themes, clock, Arc::new(Ids::random()))
}

pub(super) fn comment(object: &str, people: &[&str], of: Option<BrandName>) -> NewEvent {
    let mut comment = request(&[], to(people), None);
    comment.kind = EventType::stored("Comment");
    comment.objects = vec![ObjectId::stored(object)];
    comment.details.brand = of;
    comment
}

pub(super) async fn happens(app: &App, requests: Vec<NewEvent>) {
    app.notify().accept(requests).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
    app.batches().drain(&NoProgress).await.unwrap();
}

/// Returns the brand words in the headers and the body of a request.
fn words_in(request: &crate::mail::provider::Request) -> Vec<&'static str> {
    let all = format!("{:?} {}", request.headers, request.body).to_lowercase();
    let words = WORDS.into_iter();
    words.filter(|word| all.contains(word)).collect()
}

async fn emails_of_different_brands_in_one_run_share_no_content(fresh: Fresh) {
    let shared = Provider::start(Dialect::SendGrid).await;
    let acmes = Provider::start(Dialect::Postmark).await;
    let config = three(&shared.url, &acmes.url);
    let town = Town::found(&fresh, true, "").await;
    let crowd = town.crowd(30).await;
    for (n, person) in crowd.iter().enumerate() {
        let of = [None, brand(WORDS[1]), brand(WORDS[2])][n % 3].clone();
        town.change(person, |user| user.brand = of).await;
    }
    let people: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1", "a2"], to(&people)).await;
    let app = process(&town, &config);
    happens(&app, vec![comment("remark-1", &people, None)]).await;

    town.clock.set(monday(0));
    let report = app.digests().run(&Run::default(), &NoProgress).await.unwrap();

    assert_eq!((report.emails.sent, report.emails.failed), (60, 0), "{report:?}");
    let (mut emails, mut of) = (0, BTreeMap::<&str, usize>::new());
    for (provider, only) in [(&shared, None), (&acmes, Some(WORDS[1]))] {
        for request in provider.requests() {
            // `umbrage` uses the default's key, so the header contains the default's word.
            let mut found = words_in(&request);
            if found.contains(&WORDS[2]) {
                let key = format!("key-{}", WORDS[0]);
                assert!(request.header("authorization").ends_with(&key));
                let body = request.body.to_lowercase();
                assert!(!body.contains(WORDS[0]), "{body}");
                found.retain(|word| *word != WORDS[0]);
            }
            let [word] = found[..] else {
                panic!("{found:?} in {}", request.body);
            };
            assert!(only.is_none_or(|only| only == word));
            for part in ["news@", "desk@", "mail.", "www."] {
                assert!(request.body.contains(&format!("{part}{word}.example")), "{part}");
            }
            assert!(request.body.contains(&format!("www.{word}.example/logo.png")));
            assert!(request.body.contains(&format!("1 {word} Road")));
            *of.entry(word).or_default() += 1;
        }
        emails += provider.emails().iter().map(|email| email.to.len()).sum::<usize>();
    }
    assert_eq!(emails, 60);
    assert_eq!(of.len(), 3, "{of:?}");
    assert_eq!(acmes.emails().iter().map(|email| email.to.len()).sum::<usize>(), 20);
}

async fn a_branded_event_is_emailed_as_its_brand_and_not_in_a_digest(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    let config = three("http://127.0.0.1:9", "http://127.0.0.1:9").replace("immediate", "batch");
    let app = by_postbox(&town, &config);
    // Chosen before the type was branded.
    town.change("ada", |user| {
        let digest = tidings::domain::user::TypePreference::new(
            tidings::domain::Route::Digest,
            saturday() - TimeDelta::days(1),
        );
        user.types.insert(EventType::stored("Comment"), digest);
    })
    .await;
    town.change("ben", |user| user.brand = brand(WORDS[2])).await;
    let both = ["ada", "ben"];
    happens(
        &app,
        vec![
            comment("remark-1", &both, brand(WORDS[1])),
            comment("remark-2", &both, brand(WORDS[1])),
            comment("remark-3", &both, brand(WORDS[2])),
            comment("remark-4", &both, None),
        ],
    )
    .await;

    town.clock.advance(TimeDelta::minutes(10));
    app.batches().drain(&NoProgress).await.unwrap();
    town.clock.set(monday(0));
    app.digests().run(&Run::default(), &NoProgress).await.unwrap();

    let mut shown: Vec<(String, Vec<&str>, Vec<&str>)> = town
        .emails()
        .iter()
        .map(|email| {
            let filled = email.fill_links();
            let all = format!("{} {} {:?}", filled.html, filled.text, email.headers());
            let all = all.to_lowercase();
            let events = ["remark-1", "remark-2", "remark-3", "remark-4"].into_iter();
            (
                email.to.reveal().to_owned(),
                WORDS.into_iter().filter(|word| all.contains(word)).collect(),
                events.filter(|event| filled.text.contains(event)).collect(),
            )
        })
        .collect();
    shown.sort();
    let of = |person: &str, word, events: &[&'static str]| {
        (format!("{person}@example.org"), vec![word], events.to_vec())
    };
    let mut expected = [
        of("ada", WORDS[1], &["remark-1", "remark-2"]),
        of("ada", WORDS[2], &["remark-3"]),
        of("ada", WORDS[0], &["remark-4"]),
        of("ben", WORDS[1], &["remark-1", "remark-2"]),
        of("ben", WORDS[2], &["remark-3"]),
        of("ben", WORDS[2], &["remark-4"]),
    ];
    expected.sort();
    assert_eq!(shown, expected);
}

async fn deliveries_for_an_unconfigured_brand_stay_pending(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.change("ada", |user| user.brand = brand("gone")).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.clock.set(monday(0));

    let app = by_postbox(&town, "brands.other.site.name = \"Other\"");
    let request = Run { patience: Some(TimeDelta::zero()), ..Run::default() };
    app.digests().run(&request, &NoProgress).await.unwrap();

    assert_eq!(town.emailed_to("ada"), [] as [&str; 0]);
    assert_eq!(town.emailed_to("ben"), ["a1"]);
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Pending);
    let reason = row.outcome.reason.as_deref();
    assert_eq!(reason, Some("the brand gone is not configured"));
    let story = app.compose().describe_delivery(row).await.unwrap();
    assert_eq!(story.send_obstacle.as_deref(), Some("the brand gone is not configured"));
    let explained = app.explain().user(&crate::support::user("ada"), None).await.unwrap();
    assert!(explained.brand.is_some_and(|brand| !brand.configured));

    let app = by_postbox(&town, "brands.gone.site.name = \"Gone\"");
    town.clock.advance(TimeDelta::hours(1));
    app.digests().run(&request, &NoProgress).await.unwrap();
    app.digests().run(&request, &NoProgress).await.unwrap();

    assert_eq!(town.emailed_to("ada"), ["a1"]);
    let emails = town.emails();
    let adas: Vec<_> = emails.iter().filter(|email| email.to.reveal().starts_with("ada")).collect();
    assert_eq!(adas.len(), 1);
    assert!(adas[0].fill_links().html.contains("Gone"));
}

async fn a_delivery_for_a_missing_brand_fails_and_its_events_are_sent_later(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.change("ada", |user| user.brand = brand("gone")).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.clock.set(monday(0));
    let app = town.process();
    let request = Run { patience: Some(TimeDelta::zero()), ..Run::default() };
    app.digests().run(&request, &NoProgress).await.unwrap();

    town.clock.advance(TimeDelta::days(3));
    app.digests().run(&request, &NoProgress).await.unwrap();
    let row = town.deliveries_of("ada").await.remove(0);
    town.change("ada", |user| user.brand = None).await;
    town.digests_at(monday(1)).await;

    assert_eq!(row.state, DeliveryState::Failed);
    let why = "given up: the brand gone is not configured";
    assert_eq!(row.outcome.reason.as_deref(), Some(why));
    assert_eq!(town.emailed_to("ada"), ["a1"]);
    assert_eq!(town.emails().len(), 1);
}

async fn a_repeated_call_uses_the_brand_of_the_first_call(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Repeat { within: None }, "").await;
    let app = by_postbox(&town, "brands.acme.site.name = \"Acmeish\"");
    town.change("ada", |user| user.brand = brand("acme")).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([lost()]);
    town.clock.set(monday(0));
    let request = Run { patience: Some(TimeDelta::zero()), ..Run::default() };
    app.digests().run(&request, &NoProgress).await.unwrap();
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Sending);

    town.change("ada", |user| user.brand = None).await;
    town.clock.advance(TimeDelta::minutes(1));
    app.digests().run(&request, &NoProgress).await.unwrap();

    let calls = town.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert_eq!(calls[0].reference, calls[1].reference);
    let acme = brand("acme");
    assert_eq!(app.identities.brand_of_call(&calls[0].reference), acme.as_ref());
    assert_eq!(town.emails().len(), 1);
    assert!(town.emails()[0].fill_links().html.contains("Acmeish"));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Sent);
}

async fn a_rate_limited_account_does_not_delay_other_brands(fresh: Fresh) {
    let shared = Provider::start(Dialect::SendGrid).await;
    let acmes = Provider::start(Dialect::Postmark).await;
    let town = Town::found(&fresh, true, "").await;
    town.change("ada", |user| user.brand = brand(WORDS[1])).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    let app = process(&town, &three(&shared.url, &acmes.url));
    let wait = vec![("Retry-After", "600".to_owned())];
    shared.then([crate::mail::provider::Next::Answer(429, wait, "{}".into())]);
    town.clock.set(monday(0));
    let request = Run { patience: Some(TimeDelta::zero()), ..Run::default() };

    app.digests().run(&request, &NoProgress).await.unwrap();
    // Other processes observe the wait too. It applies to this account only.
    let other = process(&town, &three(&shared.url, &acmes.url));
    town.happens(&["a2"], to(&["ada", "ben"])).await;
    town.clock.advance(TimeDelta::minutes(1));
    happens(&other, vec![comment("remark-1", &["ada", "ben"], None)]).await;
    other.sender().drain().await.unwrap();

    let to = |provider: &Provider| provider.emails().len();
    assert_eq!((to(&shared), to(&acmes)), (0, 2));
    assert_eq!(shared.requests().len(), 1);
    // The rejected email waits for a minute more than the provider requested.
    town.clock.advance(TimeDelta::minutes(12));
    other.sender().drain().await.unwrap();
    assert_eq!((to(&shared), to(&acmes)), (2, 2));
}

async fn successes_of_one_account_do_not_hide_lost_calls_of_another(fresh: Fresh) {
    let shared = Provider::start(Dialect::SendGrid).await;
    let acmes = Provider::start(Dialect::SendGrid).await;
    let config = three(&shared.url, &acmes.url).replace("postmark", "sendgrid");
    let town = Town::found(&fresh, true, "").await;
    town.change("ada", |user| user.brand = brand(WORDS[1])).await;
    let app = process(&town, &config);
    acmes.then((0..6).map(|_| crate::mail::provider::Next::Lose));

    for n in 0..6 {
        let remark = comment(&format!("remark-{n}"), &["ada", "ben"], None);
        happens(&app, vec![remark]).await;
        town.clock.advance(TimeDelta::minutes(1));
        app.sender().drain().await.unwrap();
    }

    let pause = app.deliveries().current_pause().await.unwrap();
    let reason = pause.map(|pause| pause.reason).unwrap_or_default();
    assert!(reason.contains("the last 3 calls"), "{reason}");
    assert_eq!(acmes.requests().len(), 3);
    assert!(shared.emails().len() >= 2, "the default was used meanwhile");
}

/// A brand's call has an unknown outcome. It is not repeated while a digest's call is in progress
/// at the same account.
async fn a_lost_call_is_not_repeated_while_its_account_is_in_use(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Repeat { within: None }, "").await;
    let nowhere = "http://127.0.0.1:9";
    let text = three(nowhere, nowhere);
    let config = Config::parse(&text).unwrap();
    // The default has another account.
    let mailers = Mailers {
        default: Mailers::from_config(&config).unwrap().default,
        ..Mailers::shared(town.postbox.clone(), &config)
    };
    let app = Arc::new(assembled(&town, &text, mailers));
    for person in ["ada", "ben"] {
        town.change(person, |user| user.brand = brand(WORDS[1])).await;
    }
    town.happens(&["a1"], to(&["ben"])).await;
    town.clock.set(monday(0));
    town.answer([lost()]);
    happens(&app, vec![comment("remark-1", &["ada"], None)]).await;
    app.sender().drain().await.unwrap();
    let again = Arc::new(Mutex::new(None));
    let (other, made, clock) = (app.clone(), again.clone(), town.clock.clone());
    town.meanwhile(move || {
        async move {
            clock.advance(TimeDelta::minutes(1));
            let mut step = tokio::spawn(async move { other.sender().drain().await });
            let waits = timeout(Duration::from_millis(500), &mut step).await.is_err();
            *made.lock().unwrap() = Some((waits, step));
        }
        .boxed()
    });

    app.digests().run(&Run::default(), &NoProgress).await.unwrap();

    let (waited, step) = again.lock().unwrap().take().expect("no call was made");
    assert!(waited, "the call was made again beside the digest's");
    step.await.unwrap().unwrap();
    let is_for_ben = |call: &Call| call.deliveries[0].as_str().contains("ben");
    let of_ben: Vec<bool> = town.calls().iter().map(is_for_ben).collect();
    assert_eq!(of_ben, [false, true, false]);
    assert_eq!(town.emails().len(), 2);
}

async fn all_links_of_an_email_use_its_brand(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    let config = three("http://127.0.0.1:9", "http://127.0.0.1:9");
    let app = by_postbox(&town, &config);
    happens(&app, vec![comment("remark-1", &["ada"], brand(WORDS[1]))]).await;
    app.sender().drain().await.unwrap();

    let email = town.emails().remove(0);
    let text = email.fill_links().text;
    let links = text.lines().filter(|line| line.contains("/u/"));
    let links: Vec<&str> = links.collect();
    assert_eq!(links.len(), 3, "{text}");
    for link in links {
        // Tokens of version 3 name the brand. Unsubscribe tokens (version 4) also name the address.
        let version = if link.ends_with("/preferences") { 3 } else { 4 };
        let start = format!("https://mail.acmeish.example/u/{version}");
        assert!(link.starts_with(&start), "{link}");
    }
    let headers = format!("{:?}", email.headers());
    assert_contains!(headers, "<Comment.acmeish.acmeish.example>");
}
