//! The widget's module, as a browser fetches it; `tests/web` tries what it does.

use std::io::Read;

use flate2::read::GzDecoder;
use reqwest::Response;

use super::Api;
use crate::support::Fresh;

on_sqlite! {
    any_page_may_load_the_widget
    the_widget_is_sent_small_to_those_who_take_it
    a_browser_that_has_the_widget_is_not_sent_it_again
}

/// All that counts of a module: no space, and no lines that are comments.
fn signs(module: &str) -> String {
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
    assert_eq!(signs(&answer.text().await.unwrap()), signs(MODULE));
    api.stop().await;
}

async fn the_widget_is_sent_small_to_those_who_take_it(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let answer = widget(&api, "Accept-Encoding", "br, gzip;q=0.8").await;

    assert_eq!(header(&answer, "Content-Encoding"), "gzip");
    assert_eq!(header(&answer, "Vary"), "Accept-Encoding");
    let sent = answer.bytes().await.unwrap();
    assert!(sent.len() <= 8 << 10, "{} bytes", sent.len());
    let mut read = String::new();
    GzDecoder::new(&sent[..]).read_to_string(&mut read).unwrap();
    assert_eq!(signs(&read), signs(MODULE));
    api.stop().await;
}

async fn a_browser_that_has_the_widget_is_not_sent_it_again(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let first = widget(&api, "Accept-Encoding", "gzip").await;

    let again = widget(&api, "If-None-Match", header(&first, "ETag")).await;

    assert_eq!(again.status(), 304);
    assert_eq!(again.bytes().await.unwrap().len(), 0);
    api.stop().await;
}
