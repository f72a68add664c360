//! The public pages use the language of the user's record, or else the browser's.

use chrono::TimeDelta;

use super::Api;
use super::pages::{CLICK, Shown, api, path, shown};
use crate::support::town::saturday;
use crate::support::{Fresh, assert_contains};

on_sqlite! {
    a_page_uses_the_language_of_the_users_record
    without_a_known_language_a_page_uses_the_browsers
    an_error_page_uses_the_language_of_the_browser
}

async fn browse_in(api: &Api, path: &str, accepted: &str) -> Shown {
    let request = api.anonymous("GET", path);
    shown(request.header("Accept-Language", accepted)).await
}

async fn a_page_uses_the_language_of_the_users_record(fresh: Fresh) {
    let api = api(&fresh).await;
    let link = path(&api, "ada", saturday()).await;
    for (locale, tag, prompt, choices, done) in [
        ("de-CH", r#"<html lang="de" dir="ltr">"#, "Abmelden?", "Wie oft", "Sie sind abgemeldet"),
        (
            "ar",
            r#"<html lang="ar" dir="rtl">"#,
            "هل تريد إلغاء الاشتراك؟",
            "عدد المرات",
            "تم إلغاء اشتراكك",
        ),
        (
            "ja",
            r#"<html lang="ja" dir="ltr">"#,
            "配信を停止しますか？",
            "頻度",
            "配信を停止しました",
        ),
    ] {
        let reset = |user: &mut tidings::domain::User| {
            (user.locale, user.unsubscribed) = (Some(locale.into()), None);
        };
        api.town.change("ada", reset).await;

        let ask = browse_in(&api, &link, "fr").await.html;
        let choose = browse_in(&api, &format!("{link}/preferences"), "fr").await.html;
        let ended = api.submit(&link, CLICK).await.html;

        for (page, words) in [(ask, prompt), (choose, choices), (ended, done)] {
            assert!(page.contains(tag) && page.contains(words), "{locale}: {page}");
        }
    }
    api.stop().await;
}

async fn without_a_known_language_a_page_uses_the_browsers(fresh: Fresh) {
    let api = api(&fresh).await;
    let link = path(&api, "ada", saturday()).await;

    let german = browse_in(&api, &link, "nl, de-DE;q=0.8, en;q=0.5").await.html;
    let english = browse_in(&api, &link, "nl").await.html;

    assert!(german.contains("Abmelden?"), "{german}");
    assert!(english.contains("Unsubscribe?"), "{english}");
    // A locale that is not supported counts as none.
    for locale in ["nl", "C", ""] {
        let unsupported = |user: &mut tidings::domain::User| user.locale = Some(locale.into());
        api.town.change("ada", unsupported).await;
        for path in [link.clone(), format!("{link}/preferences")] {
            let page = browse_in(&api, &path, "de").await.html;
            assert!(page.contains(r#"<html lang="de""#), "{locale:?}: {page}");
        }
    }
    api.stop().await;
}

async fn an_error_page_uses_the_language_of_the_browser(fresh: Fresh) {
    let api = api(&fresh).await;
    let old = path(&api, "ada", saturday() - TimeDelta::days(400)).await;

    let forged = browse_in(&api, "/u/nonsense", "fr-FR").await;
    let expired = browse_in(&api, &old, "es").await;

    assert_eq!((forged.status, expired.status), (404, 410));
    assert_contains!(forged.html, "Ce lien ne fonctionne pas");
    assert_contains!(expired.html, "Este enlace es demasiado antiguo");
    api.stop().await;
}
