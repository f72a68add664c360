//! Serving of the widget's module to browsers. Its behavior is tested in `tests/web`.

use std::io::Read;

use flate2::read::GzDecoder;
use reqwest::Response;

use super::Api;
use crate::support::Fresh;

on_sqlite! {
    any_page_may_load_the_widget
    the_widget_is_compressed_if_the_client_accepts_gzip
    an_unchanged_widget_is_a_304
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
    assert!(sent.len() <= 9 << 10, "{} bytes", sent.len());
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
