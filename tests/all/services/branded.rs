//! Tests of brands in input validation, dry runs and links.

use tidings::clock::Clock as _;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest as Run;
use tidings::render::WebPage;
use tidings::render::pages::Notice;

use super::brands::{WORDS, brand, by_postbox, comment, happens, three};
use crate::support::town::{Town, monday, mostly_on_sqlite, request, to};
use crate::support::{Fresh, assert_contains};

mostly_on_sqlite! {
    a_dry_run_counts_the_emails_of_each_brand
    an_unconfigured_brand_is_rejected_with_the_configured_names
    a_link_opens_its_brands_pages_and_applies_to_all_brands
}

async fn a_dry_run_counts_the_emails_of_each_brand(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    town.change("ada", |user| user.brand = brand("acme")).await;
    town.change("cem", |user| user.brand = brand("gone")).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.clock.set(monday(0));
    let app = by_postbox(
        &town,
        "brands.acme.site.name = \"Acmeish\"\nbrands.acme.mail.from_name = \"Acme\"\n",
    );
    let request = Run { dry_run: true, ..Run::default() };

    let (report, found) = app.dry_run().run(&request, &NoProgress).await.unwrap();

    assert_eq!(
        report.dry_run.warnings(),
        [
            "emails of the brand acme: 1",
            "emails of the brand gone, which wait until it is configured: 1"
        ]
    );
    let shown: Vec<String> = found.emails.into_iter().filter_map(|of| of.html).collect();
    let acmes = shown.iter().filter(|html| html.contains("Acmeish"));
    assert_eq!((acmes.count(), shown.len()), (1, 2));
}

async fn an_unconfigured_brand_is_rejected_with_the_configured_names(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    let app = by_postbox(&town, &three("http://127.0.0.1:9", "http://127.0.0.1:9"));
    let user = |json: &str| serde_json::from_str(json).unwrap();
    let put = |json: &str| {
        let input = user(json);
        let people = app.users();
        async move { people.put_users(vec![input]).await.map_err(|error| error.to_string()) }
    };
    let accept = |request| {
        let notify = app.notify();
        async move { notify.accept(vec![request]).await.map_err(|error| error.to_string()) }
    };
    let mut digest = request(&["a1"], to(&["ada"]), None);
    digest.details.brand = brand(WORDS[1]);
    let named = "brand \"gone\" is not configured; the brands are acmeish, umbrage";

    let unknown = put(r#"{"id": "new", "brand": "gone"}"#).await.unwrap_err();
    let in_digests = put(r#"{"id": "new", "types": {"Comment": {"route": "digest"}}}"#).await;
    put(r#"{"id": "eve", "brand": "acmeish"}"#).await.unwrap();
    let event = accept(comment("remark-1", &["ada"], brand("gone"))).await.unwrap_err();
    let digest = accept(digest).await.unwrap_err();
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = "{\"id\":\"x\",\"brand\":\"gone\"}\n{\"id\":\"y\",\"brand\":\"umbrage\"}\n";
    std::fs::write(file.path(), lines).unwrap();
    let users = tidings::engine::import::ImportKind::Users;
    let imported = app.import().import_file(&users, file.path(), &NoProgress).await.unwrap();

    assert_eq!(unknown, named);
    assert!(in_digests.unwrap_err().contains("has events of several brands"));
    assert_eq!(event, named);
    assert_contains!(digest, "set types.ArtworkPublished.branded = true");
    assert_eq!((imported.accepted, imported.bad), (1, 1));
    assert!(imported.bad_lines[0].why.contains(named));
    let ids = ["new", "eve", "x", "y"].map(crate::support::user);
    let kept = town.store.users(&ids).await.unwrap();
    let brands: Vec<_> = kept.into_iter().map(|user| user.map(|user| user.brand)).collect();
    assert_eq!(brands, [None, Some(brand("acmeish")), None, Some(brand("umbrage"))]);
}

async fn a_link_opens_its_brands_pages_and_applies_to_all_brands(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    let app = by_postbox(&town, &three("http://127.0.0.1:9", "http://127.0.0.1:9"));
    happens(&app, vec![comment("remark-1", &["ada"], brand(WORDS[1]))]).await;
    app.sender().drain().await.unwrap();
    let email = town.emails().remove(0);
    let link = email.links.unwrap().unsubscribe.unwrap();
    let token = link.strip_prefix("https://mail.acmeish.example/u/").unwrap();

    let opened = app.identities.default.links.open(token, town.clock.now()).await.unwrap().unwrap();
    app.users().stop_emails(&opened.user, &opened.stop).await.unwrap();
    happens(
        &app,
        vec![
            comment("remark-2", &["ada"], brand(WORDS[1])),
            comment("remark-3", &["ada"], brand(WORDS[2])),
            comment("remark-4", &["ada"], None),
        ],
    )
    .await;
    app.sender().drain().await.unwrap();

    assert_eq!(opened.brand, brand(WORDS[1]));
    let notice = WebPage::Notice(Notice::ExpiredLink);
    let page = app.identities.pages_of(opened.brand.as_ref()).render(&notice, None).unwrap();
    assert!(page.contains("acmeish Gallery") && !page.contains("origina"), "{page}");
    assert!(
        app.identities
            .pages_of(brand("gone").as_ref())
            .render(&notice, None)
            .unwrap()
            .contains("origina")
    );
    assert_eq!(town.emails().len(), 1, "the type is ended, whatever the brand");
}
