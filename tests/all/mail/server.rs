//! An SMTP server on loopback (RFC 5321) that accepts emails.
//!
//! A test can queue a reply for a command, which is used once, or set a rule for all commands.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;

/// The response to a command.
#[derive(Debug, Clone, Copy)]
pub enum Say {
    Reply(&'static str),
    /// Reply as by default.
    Take,
    /// Accept the email, and reply once the test calls [`Server::release`].
    Hold,
    /// Close the connection without a reply.
    HangUp,
    /// Do not reply until the client gives up.
    Nothing,
}

/// Returns the reply to a command after this number of accepted emails, or `None` for success.
type Rule = dyn Fn(&str, usize) -> Option<&'static str> + Send + Sync;

#[derive(Default)]
struct State {
    /// Applies to commands without an entry in `replies`.
    rule: Mutex<Option<Arc<Rule>>>,
    /// Each entry applies to the next command with this prefix. `.` is the end of an email and
    /// `content` its beginning. The empty string is the connection itself.
    replies: Mutex<VecDeque<(&'static str, Say)>>,
    connections: Mutex<usize>,
    commands: Mutex<Vec<String>>,
    emails: Mutex<Vec<String>>,
    /// Whether the emails that were held are acknowledged.
    released: watch::Sender<bool>,
}

pub struct Server {
    pub port: u16,
    state: Arc<State>,
}

impl Server {
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // With a small buffer, a client soon notices that the connection is closed.
        socket.set_recv_buffer_size(4_096).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(64).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let served = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *served.connections.lock().unwrap() += 1;
                tokio::spawn(converse(stream, served.clone()));
            }
        });
        Self { port, state }
    }

    /// Queues a response to the next command with this prefix.
    pub fn then(&self, command: &'static str, say: Say) {
        self.state.replies.lock().unwrap().push_back((command, say));
    }

    /// Acknowledges the emails that are held.
    pub fn release(&self) {
        self.state.released.send_replace(true);
    }

    /// Answers each command from now on by this rule.
    pub fn follow(
        &self,
        rule: impl Fn(&str, usize) -> Option<&'static str> + Send + Sync + 'static,
    ) {
        *self.state.rule.lock().unwrap() = Some(Arc::new(rule));
    }

    pub fn connections(&self) -> usize {
        *self.state.connections.lock().unwrap()
    }

    /// Returns all commands of all connections.
    pub fn commands(&self) -> Vec<String> {
        self.state.commands.lock().unwrap().clone()
    }

    /// Returns the accepted emails.
    pub fn emails(&self) -> Vec<String> {
        self.state.emails.lock().unwrap().clone()
    }
}

impl State {
    fn reply(&self, command: &str, accepted: usize) -> Option<Say> {
        let once = self.reply_once(command);
        let rule = self.rule.lock().unwrap().clone();
        once.or_else(|| rule.and_then(|rule| rule(command, accepted)).map(Say::Reply))
    }

    fn reply_once(&self, command: &str) -> Option<Say> {
        let mut replies = self.replies.lock().unwrap();
        let fits = |word: &str| match word {
            "" => command.is_empty(),
            word => command.starts_with(word),
        };
        let place = replies.iter().position(|(word, _)| fits(word))?;
        replies.remove(place).map(|(_, say)| say)
    }
}

/// Serves one connection until either side closes it.
async fn converse(stream: TcpStream, state: Arc<State>) -> Option<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut email: Option<String> = None;
    let (mut command, mut accepted) = (String::new(), 0);
    loop {
        let reply = match (&email, state.reply(&command, accepted)) {
            (_, Some(Say::HangUp)) => return None,
            (_, Some(Say::Nothing)) => {
                lines.next_line().await.ok();
                return None;
            }
            (_, Some(Say::Reply(reply))) => {
                email = None;
                reply
            }
            (Some(text), say) => {
                state.emails.lock().unwrap().push(text.clone());
                if let Some(Say::Hold) = say {
                    let mut released = state.released.subscribe();
                    released.wait_for(|released| *released).await.unwrap();
                }
                (email, accepted) = (None, accepted + 1);
                "250 2.0.0 queued"
            }
            (None, _) => match command.split(' ').next().unwrap_or_default() {
                "" => "220 server",
                "EHLO" => "250-server\r\n250-8BITMIME\r\n250 AUTH PLAIN",
                "AUTH" => "235 2.7.0 welcome",
                "DATA" => "354 go on",
                "QUIT" => "221 goodbye",
                _ => "250 2.0.0 fine",
            },
        };
        writer.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
        if reply.starts_with("354") {
            if let Some(Say::HangUp) = state.reply_once("content") {
                // A part of the content has arrived, and the rest is not read.
                lines.next_line().await.ok();
                return None;
            }
            let mut text = String::new();
            loop {
                let line = lines.next_line().await.ok()??;
                if line == "." {
                    break;
                }
                text.push_str(line.strip_prefix('.').unwrap_or(&line));
                text.push('\n');
            }
            email = Some(text);
            command = ".".into();
        } else {
            command = lines.next_line().await.ok()??;
            state.commands.lock().unwrap().push(command.clone());
        }
    }
}
