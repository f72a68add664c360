//! A substitute for Amazon SNS: it serves the test certificate and records confirmations.
//!
//! All test processes use this server, so no test accesses the internet. Its thread runs until the
//! tests end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex};

use tidings::email::PinnedClient;

/// The test certificate. Its key is in `sns-key.txt` beside it (PKCS #8, Base64).
const CERTIFICATE: &str = include_str!("../api/hooks/sns.pem");
/// A path without a certificate (403). [`AWAY`] is a path for which the server is unavailable
/// (503).
pub const ABSENT: &str = "SimpleNotificationService-0bad.pem";
pub const AWAY: &str = "SimpleNotificationService-0aaa.pem";

static URL: LazyLock<String> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that disconnected needs no response.
            drop(serve(stream));
        }
    });
    url
});

static REQUESTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A client of certificates that accepts only this server.
pub fn pinned() -> PinnedClient {
    PinnedClient::on_this_machine(&URL).unwrap()
}

/// Returns the requested paths that contain this word, in order.
pub fn requests(word: &str) -> Vec<String> {
    let requests = REQUESTS.lock().unwrap();
    requests.iter().filter(|path| path.contains(word)).cloned().collect()
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            read => head.extend_from_slice(&bytes[..read]),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, body) = match path.as_str() {
        path if path.ends_with(ABSENT) => (403, ""),
        path if path.ends_with(AWAY) => (503, ""),
        path if path.ends_with(".pem") => (200, CERTIFICATE),
        _ => (200, "<ConfirmSubscriptionResponse/>"),
    };
    REQUESTS.lock().unwrap().push(path);
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}
