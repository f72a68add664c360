//! The pages people reach from their mails speak their language: by their record, or by what their
//! browser asks for.

use chrono::TimeDelta;

use super::Api;
use super::pages::{CLICK, Shown, api, path, shown};
use crate::support::Fresh;
use crate::support::town::saturday;

on_sqlite! {
    a_page_speaks_the_language_of_the_persons_record
    where_no_language_is_known_the_browser_is_asked
    a_link_that_does_not_work_says_so_in_the_language_of_the_browser
}

async fn speaking(api: &Api, path: &str, accepted: &str) -> Shown {
    let request = api.anonymous("GET", path);
    shown(request.header("Accept-Language", accepted)).await
}

async fn a_page_speaks_the_language_of_the_persons_record(fresh: Fresh) {
    let api = api(&fresh).await;
    let link = path(&api, "ada", saturday()).await;
    for (locale, tag, asked, choices, done) in [
        (
            "de-CH",
            r#"<html lang="de" dir="ltr">"#,
            "Abmelden?",
            "Wie oft",
            "Sie sind abgemeldet",
        ),
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
        let come_back = |user: &mut tidings::domain::User| {
            (user.locale, user.unsubscribed) = (Some(locale.into()), None);
        };
        api.town.change("ada", come_back).await;

        let ask = speaking(&api, &link, "fr").await.html;
        let choose = speaking(&api, &format!("{link}/preferences"), "fr")
            .await
            .html;
        let ended = api.submit(&link, CLICK).await.html;

        for (page, words) in [(ask, asked), (choose, choices), (ended, done)] {
            assert!(
                page.contains(tag) && page.contains(words),
                "{locale}: {page}"
            );
        }
    }
    api.stop().await;
}

async fn where_no_language_is_known_the_browser_is_asked(fresh: Fresh) {
    let api = api(&fresh).await;
    let link = path(&api, "ada", saturday()).await;

    let german = speaking(&api, &link, "nl, de-DE;q=0.8, en;q=0.5")
        .await
        .html;
    let english = speaking(&api, &link, "nl").await.html;

    assert!(german.contains("Abmelden?"), "{german}");
    assert!(english.contains("Unsubscribe?"), "{english}");
    // A record that names what we do not speak says nothing.
    for locale in ["nl", "C", ""] {
        let asks = |user: &mut tidings::domain::User| user.locale = Some(locale.into());
        api.town.change("ada", asks).await;
        for path in [link.clone(), format!("{link}/preferences")] {
            let page = speaking(&api, &path, "de").await.html;
            assert!(page.contains(r#"<html lang="de""#), "{locale:?}: {page}");
        }
    }
    api.stop().await;
}

async fn a_link_that_does_not_work_says_so_in_the_language_of_the_browser(fresh: Fresh) {
    let api = api(&fresh).await;
    let old = path(&api, "ada", saturday() - TimeDelta::days(400)).await;

    let forged = speaking(&api, "/u/nonsense", "fr-FR").await;
    let expired = speaking(&api, &old, "es").await;

    assert_eq!((forged.status, expired.status), (404, 410));
    assert!(
        forged.html.contains("Ce lien ne fonctionne pas"),
        "{}",
        forged.html
    );
    assert!(
        expired.html.contains("Este enlace es demasiado antiguo"),
        "{}",
        expired.html
    );
    api.stop().await;
}
