//! Serving of the widget's module to browsers. Its behavior is tested in `tests/web`.

use std::io::Read;

use flate2::read::GzDecoder;
use reqwest::Response;

use super::{Api, answer};
use crate::support::Fresh;

on_sqlite! {
    any_page_may_load_the_widget
    the_widget_is_compressed_if_the_client_accepts_gzip
    an_unchanged_widget_is_a_304
    the_texts_of_the_widget_come_in_the_requested_language
}

/// Removes whitespace and comment lines from a module.
fn strip(module: &str) -> String {
    let lines = module.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.starts_with("//"));
    lines.flat_map(str::split_whitespace).collect()
}

const MODULE: &str = include_str!("../../../widget/widget.js");

async fn widget(api: &Api, name: &str, value: &str) -> Response {
    let request = api.anonymous("GET", "/widget.js").header(name, value);
    request.send().await.unwrap()
}

fn header<'r>(answer: &'r Response, name: &str) -> &'r str {
    let value = answer.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap())
}

async fn any_page_may_load_the_widget(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let answer = widget(&api, "Accept-Encoding", "identity").await;

    assert_eq!(answer.status(), 200);
    for (name, value) in [
        ("Content-Type", "text/javascript; charset=utf-8"),
        ("Cache-Control", "no-cache"),
        ("Access-Control-Allow-Origin", "*"),
        ("Content-Encoding", ""),
    ] {
        assert_eq!(header(&answer, name), value, "{name}");
    }
    assert_eq!(strip(&answer.text().await.unwrap()), strip(MODULE));
    api.stop().await;
}

async fn the_widget_is_compressed_if_the_client_accepts_gzip(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let answer = widget(&api, "Accept-Encoding", "br, gzip;q=0.8").await;

    assert_eq!(header(&answer, "Content-Encoding"), "gzip");
    assert_eq!(header(&answer, "Vary"), "Accept-Encoding");
    let sent = answer.bytes().await.unwrap();
    assert!(sent.len() <= 8 << 10, "{} bytes", sent.len());
    let mut read = String::new();
    GzDecoder::new(&sent[..]).read_to_string(&mut read).unwrap();
    assert_eq!(strip(&read), strip(MODULE));
    api.stop().await;
}

async fn an_unchanged_widget_is_a_304(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let first = widget(&api, "Accept-Encoding", "gzip").await;

    let again = widget(&api, "If-None-Match", header(&first, "ETag")).await;

    assert_eq!(again.status(), 304);
    assert_eq!(again.bytes().await.unwrap().len(), 0);
    api.stop().await;
}

async fn the_texts_of_the_widget_come_in_the_requested_language(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let mut names = Vec::new();
    for (query, bell, new) in [
        ("", "Notifications", "{n} new"),
        ("?lang=de-AT", "Benachrichtigungen", "{n} neu"),
        ("?lang=ja", "お知らせ", "新着{n}件"),
        ("?lang=ar", "الإشعارات", "الجديد: {n}"),
        ("?lang=tlh", "Notifications", "{n} new"),
        ("?lang=", "Notifications", "{n} new"),
    ] {
        let path = format!("/widget.json{query}");
        let answer = answer(api.anonymous("GET", &path)).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("Access-Control-Allow-Origin"), "*");
        let texts = answer.body.as_object().unwrap();
        let found = ["bell", "new"].map(|name| texts[name].as_str().unwrap());
        assert_eq!(found, [bell, new], "{path}");
        names.push(texts.keys().cloned().collect::<Vec<_>>());
    }
    assert!(names.iter().all(|one| *one == names[0]), "{names:?}");
    // The widget asks for no other text.
    for used in texts_in(MODULE) {
        assert!(names[0].contains(&used), "{used}");
    }
    api.stop().await;
}

/// Returns the names of texts that the module mentions.
fn texts_in(module: &str) -> Vec<String> {
    let starts = ["#text('", "act('", "button('", "'data-text': '"];
    let after = |start: &'static str| module.split(start).skip(1);
    let rests = starts.into_iter().flat_map(after);
    let names = rests.filter_map(|rest| rest.split('\'').next());
    names.map(str::to_owned).collect()
}
