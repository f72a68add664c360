//! Shutdown: the server finishes the requests that it is handling, and accepts no new ones.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Api, KEY};
use crate::support::town::on_both_stores;
use crate::support::{Fresh, Shorthand, user};

on_both_stores! {
    a_running_request_is_finished_when_the_server_stops
    the_store_still_works_after_the_servers_threads_end
}

on_sqlite! {
    an_idle_connection_does_not_delay_the_shutdown
}

/// Reads until the received text ends with `end`.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut buffer = [0; 1_024];
        let n = stream.read(&mut buffer).await.unwrap();
        assert!(n > 0, "the connection ended after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    text
}

async fn a_running_request_is_finished_when_the_server_stops(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let body = json!({"type": "Loan", "objects": ["o1"], "to": ["ada"]}).to_string();
    let mut stream = TcpStream::connect(api.addr).await.unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: tidings\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The server sends this when the handler starts to read the body.
    read_until(&mut stream, "HTTP/1.1 100 Continue\r\n\r\n").await;

    api.stop.send(true).unwrap();
    let (addr, running) = (api.addr, api.running);
    stream.write_all(body.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "}").await;

    assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    running.await.unwrap().unwrap();
    assert_eq!(fresh.backlog().await.pending, 1);
    assert!(TcpStream::connect(addr).await.is_err(), "it still listens");
}

/// Database connections must not depend on the thread that opened them.
async fn the_store_still_works_after_the_servers_threads_end(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let polls = (0..100).map(|_| api.get("/v1/users/ada/feed"));
    let polls = futures::future::join_all(polls).await;
    assert!(polls.iter().all(|page| page.status == 200));

    api.stop().await;

    let ids = [user("ada")];
    let reads = (0..100).map(|_| fresh.users(&ids));
    for read in futures::future::join_all(reads).await {
        assert!(read.unwrap()[0].is_some());
    }
}

async fn an_idle_connection_does_not_delay_the_shutdown(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let mut stream = TcpStream::connect(api.addr).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: tidings\r\n\r\n").await.unwrap();
    read_until(&mut stream, "}").await;

    let stopping = tokio::time::timeout(std::time::Duration::from_secs(10), api.stop());

    stopping.await.expect("an idle connection held it up");
}
