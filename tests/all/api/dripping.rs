//! A client that sends slowly, or never finishes, does not block other clients.
//!
//! A rejected request ends with its response, even if its body is incomplete. The server keeps
//! fewer connections than it has file descriptors. The tests use real sockets, a real process and
//! no clock: they only wait for connections to end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than any step of these tests takes.
const PATIENT: Duration = Duration::from_secs(120);

/// A server process with a limit on open files.
struct Served {
    child: Child,
    addr: String,
    _folder: tempfile::TempDir,
}

impl Served {
    fn start(descriptors: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_tidings");
        let line = format!("ulimit -n {descriptors}; exec {program} serve --listen 127.0.0.1:0");
        let mut child = Command::new("sh")
            .args(["-c", &line])
            .current_dir(folder.path())
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut first).unwrap();
        let addr = first.trim().rsplit_once("http://").unwrap().1.to_owned();
        std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        Self { child, addr, _folder: folder }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.addr).unwrap();
        stream.set_read_timeout(Some(PATIENT)).unwrap();
        stream
    }

    fn send(&self, text: &str) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The beginning of a request whose body never ends.
fn unfinished(line: &str) -> String {
    format!(
        "{line} HTTP/1.1\r\nHost: tidings\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n"
    )
}

/// Reads until the server closes the connection.
fn read_to_close(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        // The server closed the connection with unread data, which resets it.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection is kept: {error}"),
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_response_before_the_end_of_the_body_closes_the_connection() {
    let served = Served::start(1_024);
    for (line, status) in [
        ("POST /v1/events", "401"),
        ("PUT /v1/users/ada", "401"),
        ("GET /v1/users/ada/feed", "401"),
        ("POST /hooks/mailgun", "404"),
        ("POST /nowhere", "404"),
        ("PATCH /v1/events", "401"),
        ("GET /healthz", "200"),
        ("POST /u/token", ""),
    ] {
        let answer = read_to_close(served.send(&unfinished(line)));

        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{line}: {answer}");
    }
}

#[test]
fn health_is_served_during_four_hundred_unfinished_requests() {
    let served = Served::start(256);
    let mut dripping = Vec::new();
    for n in 0..400 {
        let line =
            ["POST /v1/events", "GET /healthz", "POST /hooks/mailgun", "POST /u/token"][n % 4];
        dripping.push(served.send(&unfinished(line)));
    }

    let mut health =
        served.send("GET /healthz HTTP/1.1\r\nHost: tidings\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    health.read_to_string(&mut answer).unwrap();

    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(dripping);
}

#[test]
fn malformed_requests_are_not_logged_as_errors() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidings"))
        .args(["serve", "--listen", "127.0.0.1:0", "--no-worker"])
        .current_dir(folder.path())
        .env_clear()
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    out.read_line(&mut first).unwrap();
    let addr = first.trim().rsplit_once("http://").unwrap().1.to_owned();
    for text in [
        "\x16\x03\x01\x02\n\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "NONSENSE\r\n\r\n",
        "GET /%zz%\u{1} HTTP/1.1\r\n\r\n",
        "POST /v1/events HTTP/1.1\r\nContent-Length: abc\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(PATIENT)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        read_to_close(stream);
    }
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    child.wait().unwrap();
    assert!(!log.contains("ERROR"), "{log}");
}
