//! SMTP: one mail at a time, over connections that are kept.
//!
//! The rule (P5): until the last line of the content is written, nothing can have been taken, so
//! whatever goes wrong is tried later or refused. From then on silence is unknown, and SMTP has no
//! way to ask. That is why the conversation is led here, command by command, instead of by lettre's
//! transport, whose errors do not say how far it came. [`reply`] reads the codes of RFC 5321 and
//! RFC 3463.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lettre::address::Address as MailAddress;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, DEFAULT_MECHANISMS};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Quit, Rcpt, Rset};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use tokio::time::{Instant, timeout};

use self::reply::{Reply, ReplyMeaning};
use super::http::{is_of, is_refused, words};
use super::mime::{compose, mailbox, message_id, tag};
use super::{Certainty, Checked, Dkim, Leave, Mailer, Message, Outcome, Sender};
use crate::domain::Secret;

mod reply;

/// An SMTP server that takes our mails.
#[derive(Debug, Clone)]
pub struct Relay {
    /// Its name or address; with TLS its certificate must be for this name.
    pub host: String,
    /// Usually 587 with STARTTLS, 465 with TLS from the first byte.
    pub port: u16,
    /// How the connection is encrypted.
    pub security: Security,
    /// User and password.
    pub login: Option<(Secret, Secret)>,
    /// How long connecting may take, each command, and the answer to a mail.
    pub timeout: Duration,
    /// Whom mails come from.
    pub sender: Sender,
}

/// How the conversation is kept from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// Not at all: for servers on this machine.
    Plain,
    /// Encrypted before anything is said of mails; a server that cannot is not used.
    StartTls,
    /// Encrypted from the first byte.
    Tls,
}

/// A mailer that speaks SMTP.
pub struct Smtp {
    relay: Relay,
    dkim: Option<Arc<Dkim>>,
    tls: Option<TlsParameters>,
    hello: ClientId,
    idle: Mutex<Vec<Line>>,
}

/// A connection that has been introduced and logged in.
struct Line {
    connection: AsyncSmtpConnection,
    mails: u32,
    since: Instant,
}

/// How far a conversation came before it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Connecting, encrypting, logging in.
    Introduction,
    /// Naming the sender, who is the same for all mails.
    Sender,
    Recipient,
    /// The content has begun to be written, and its last line has not: nothing can have been taken.
    Content,
    /// All of it was written.
    End,
}

enum Trouble {
    Smtp(SmtpError),
    TimedOut,
    /// There is no leave to go on.
    Withheld(String),
    /// The server does not take such an address.
    NotWritable(String),
}

impl Trouble {
    /// Whether the connection can be used no more: anything but a server that said no, and not
    /// goodbye (421), and not a mail that was broken off.
    fn is_over(&self, stage: Stage) -> bool {
        match self {
            Self::Smtp(error) => error.status().is_none_or(|code| u16::from(code) == 421),
            Self::TimedOut => true,
            Self::Withheld(_) => stage == Stage::Content,
            Self::NotWritable(_) => false,
        }
    }

    /// Whether a new connection may take the message that a used one did not. The server has
    /// certainly not taken it: it closed the connection before the content, or refuses a sender
    /// that it accepted before, or names the end of the session.
    fn is_of_session(&self, stage: Stage) -> bool {
        let reply = match self {
            Self::Smtp(error) => Reply::of(error),
            Self::TimedOut => None,
            Self::Withheld(_) | Self::NotWritable(_) => return false,
        };
        match (stage, reply) {
            (_, Some(reply)) if reply.names_session_limit() => true,
            (Stage::Sender, _) => true,
            (Stage::Recipient, _) => self.is_over(stage),
            _ => false,
        }
    }

    /// Whether what was to be written last was not, as the other end had gone: reading never ends
    /// so.
    fn is_broken_pipe(&self) -> bool {
        match self {
            Self::Smtp(error) => is_of(error, ErrorKind::BrokenPipe),
            Self::TimedOut | Self::Withheld(_) | Self::NotWritable(_) => false,
        }
    }
}

/// An unused connection is trusted so long, and then asked whether it is there.
const TRUSTED: Duration = Duration::from_secs(1);
/// And kept so long: RFC 5321, 4.5.3.2.7, has servers wait for five minutes, but many do for less.
const IDLE: Duration = Duration::from_secs(20);
/// Servers commonly take a hundred mails over a connection.
const MAILS: u32 = 100;

impl Smtp {
    /// Fails where the host's name cannot be in a certificate, or this machine has no certificates
    /// to compare with.
    pub fn new(relay: Relay) -> Result<Self, String> {
        let tls = match relay.security {
            Security::Plain => None,
            Security::StartTls | Security::Tls => Some(
                TlsParameters::new(relay.host.clone())
                    .map_err(|error| format!("TLS with {} cannot be: {error}", relay.host))?,
            ),
        };
        Ok(Self {
            hello: ClientId::Domain(relay.sender.from.domain_in_ascii().into_owned()),
            dkim: None,
            idle: Mutex::default(),
            tls,
            relay,
        })
    }

    /// The same, which signs each mail, if it has what to sign with.
    pub fn with_dkim(self, dkim: Option<Arc<Dkim>>) -> Self {
        Self { dkim, ..self }
    }

    /// The mail's bytes, signed where mails are.
    fn mail(&self, message: &Message) -> Result<Vec<u8>, String> {
        let mail = compose(message, &self.relay.sender)?;
        match &self.dkim {
            Some(dkim) => dkim.signed(&mail, message.at),
            None => Ok(mail),
        }
    }

    /// A connection that can take a mail: a kept one, or a new one.
    async fn line(&self) -> Result<Line, Trouble> {
        while let Some(mut line) = self.kept() {
            let unused = line.since.elapsed();
            if unused <= TRUSTED
                || (unused <= IDLE
                    && timeout(self.relay.timeout, line.connection.test_connected())
                        .await
                        .unwrap_or(false))
            {
                return Ok(line);
            }
        }
        let connection = self.within(self.introduce()).await?;
        Ok(Line {
            connection,
            mails: 0,
            since: Instant::now(),
        })
    }

    fn kept(&self) -> Option<Line> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }

    /// Keeps a connection for the next mail, or takes leave.
    async fn keep(&self, mut line: Line) {
        line.mails += 1;
        line.since = Instant::now();
        if line.mails < MAILS {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(line);
        } else {
            self.quit(line).await;
        }
    }

    /// Closes a connection. Nothing depends on the reply.
    async fn quit(&self, mut line: Line) {
        let _ = self.within(line.connection.command(Quit)).await;
    }

    async fn introduce(&self) -> Result<AsyncSmtpConnection, SmtpError> {
        let relay = &self.relay;
        let at_once = (relay.security == Security::Tls)
            .then(|| self.tls.clone())
            .flatten();
        let mut connection = AsyncSmtpConnection::connect_tokio1(
            (relay.host.as_str(), relay.port),
            Some(relay.timeout),
            &self.hello,
            at_once,
            None,
        )
        .await?;
        if let (Security::StartTls, Some(tls)) = (relay.security, &self.tls) {
            connection.starttls(tls.clone(), &self.hello).await?;
        }
        if let Some((user, password)) = &relay.login {
            let login = Credentials::new(user.expose().to_owned(), password.expose().to_owned());
            connection.auth(DEFAULT_MECHANISMS, &login).await?;
        }
        Ok(connection)
    }

    async fn within<T>(
        &self,
        step: impl Future<Output = Result<T, SmtpError>>,
    ) -> Result<T, Trouble> {
        match timeout(self.relay.timeout, step).await {
            Ok(done) => done.map_err(Trouble::Smtp),
            Err(_) => Err(Trouble::TimedOut),
        }
    }

    async fn one(&self, message: &Message, leave: &Leave) -> Outcome {
        let prepared = self.mail(message).and_then(|mail| {
            let from = mailbox(&self.relay.sender.from, None)?.email;
            let to = mailbox(&message.to, None)?.email;
            Ok((from, to, mail))
        });
        let (from, to, mail) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return Outcome::Unsendable { reason },
        };
        loop {
            let mut line = match self.line().await {
                Ok(line) => line,
                Err(trouble) => return self.outcome(Stage::Introduction, &trouble),
            };
            let spoken = self.converse(&mut line.connection, &from, &to, &mail, leave);
            let (stage, trouble) = match spoken.await {
                Ok(_) => {
                    self.keep(line).await;
                    let id = message_id(&tag(&message.delivery), &self.relay.sender);
                    return Outcome::Accepted {
                        provider_id: id.trim_matches(['<', '>']).to_owned(),
                    };
                }
                Err(trouble) => trouble,
            };
            let over = trouble.is_over(stage);
            if line.mails > 0 && trouble.is_of_session(stage) {
                if !over {
                    self.quit(line).await;
                }
                continue;
            }
            if !over && self.within(line.connection.command(Rset)).await.is_ok() {
                self.keep(line).await;
            }
            return self.outcome(stage, &trouble);
        }
    }

    /// Names sender and recipient, and writes the mail.
    async fn converse(
        &self,
        connection: &mut AsyncSmtpConnection,
        from: &MailAddress,
        to: &MailAddress,
        mail: &[u8],
        leave: &Leave,
    ) -> Result<Response, (Stage, Trouble)> {
        let able = |extension| connection.server_info().supports_feature(extension);
        let mut parameters = Vec::new();
        // Domains are in Punycode: only what precedes the @ can be beyond ASCII.
        if !(from.user().is_ascii() && to.user().is_ascii()) {
            if !able(Extension::SmtpUtfEight) {
                let reason = "the server does not support SMTPUTF8, which the address needs";
                return Err((Stage::Sender, Trouble::NotWritable(reason.to_owned())));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !mail.is_ascii() && able(Extension::EightBitMime) {
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        if let Some(reason) = leave.withheld() {
            return Err((Stage::Sender, Trouble::Withheld(reason)));
        }
        self.within(connection.command(Mail::new(Some(from.clone()), parameters)))
            .await
            .map_err(|trouble| (Stage::Sender, trouble))?;
        self.within(connection.command(Rcpt::new(to.clone(), Vec::new())))
            .await
            .map_err(|trouble| (Stage::Recipient, trouble))?;
        self.within(connection.command(Data))
            .await
            .map_err(|trouble| (Stage::Recipient, trouble))?;
        if let Some(reason) = leave.over() {
            // No way back from DATA but to leave: without its last line the mail is not taken.
            return Err((Stage::Content, Trouble::Withheld(reason)));
        }
        // Asked for more once the content has been handed to the system: what follows is the last
        // line.
        let written = AtomicBool::new(false);
        let end = std::iter::from_fn(|| {
            written.store(true, Ordering::SeqCst);
            None
        });
        let parts = std::iter::once(mail).chain(end);
        let said = self.within(connection.message_iter(parts)).await;
        said.map_err(|trouble| {
            let whole = written.load(Ordering::SeqCst) && !trouble.is_broken_pipe();
            (if whole { Stage::End } else { Stage::Content }, trouble)
        })
    }

    fn outcome(&self, stage: Stage, trouble: &Trouble) -> Outcome {
        match trouble {
            Trouble::TimedOut => silence(
                stage,
                format!("no answer within {} s", self.relay.timeout.as_secs_f32()),
            ),
            Trouble::Smtp(error) => meaning(stage, error),
            Trouble::Withheld(reason) => Outcome::Withheld {
                reason: reason.clone(),
            },
            Trouble::NotWritable(reason) => Outcome::Unsendable {
                reason: reason.clone(),
            },
        }
    }
}

fn silence(stage: Stage, reason: String) -> Outcome {
    match stage {
        Stage::End => Outcome::Unknown { reason },
        Stage::Introduction | Stage::Sender | Stage::Recipient | Stage::Content => {
            Outcome::Unreachable { reason }
        }
    }
}

/// What an error means for the mail.
fn meaning(stage: Stage, error: &SmtpError) -> Outcome {
    let reason = format!("SMTP: {}", words(&error.to_string()));
    let later = |reason, after| Outcome::TryLater { reason, after };
    let Some(reply) = Reply::of(error) else {
        return match stage {
            // No way to encrypt, or to log in, that both know.
            Stage::Introduction if error.is_client() => Outcome::Stop { reason },
            _ => silence(stage, reason),
        };
    };
    match stage {
        Stage::Introduction | Stage::Sender if reply.names_sending_limit() => {
            later(reason, Some(reply.limit_wait()))
        }
        Stage::Introduction | Stage::Sender if reply.is_temporary() => later(reason, None),
        // Not now (554 to a connection), unlike a login that was refused.
        Stage::Introduction if reply.code() == 554 => later(reason, None),
        Stage::Introduction | Stage::Sender => Outcome::Stop { reason },
        Stage::Recipient | Stage::Content | Stage::End => match reply.meaning() {
            ReplyMeaning::SessionEnds => later(reason, None),
            ReplyMeaning::LimitReached => later(reason, Some(reply.limit_wait())),
            ReplyMeaning::SenderRefused => Outcome::Stop { reason },
            ReplyMeaning::Deferred => Outcome::Deferred { reason },
            ReplyMeaning::Undeliverable => Outcome::Undeliverable { reason },
            ReplyMeaning::Refused => Outcome::Refused { reason },
        },
    }
}

#[async_trait]
impl Mailer for Smtp {
    /// One mail a call: each has its own answer, and none waits for another's.
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        (0..messages.len()).map(|place| vec![place]).collect()
    }

    async fn send(&self, _reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            outcomes.push(self.one(message, leave).await);
        }
        outcomes
    }

    fn certainty(&self) -> Certainty {
        Certainty::Never
    }

    async fn check(&self) -> Checked {
        let Relay { host, port, .. } = &self.relay;
        let mut connection = match self.within(self.introduce()).await {
            Ok(connection) => connection,
            Err(Trouble::TimedOut) => {
                return Checked::Unreached {
                    reason: format!("{host}:{port} does not answer"),
                };
            }
            Err(Trouble::Withheld(reason) | Trouble::NotWritable(reason)) => {
                return Checked::Unreached { reason };
            }
            Err(Trouble::Smtp(error)) => {
                let why = words(&error.to_string());
                let is_reached = error.status().is_some()
                    || error.is_client()
                    || error.is_response()
                    || error.is_tls()
                    || is_refused(&error);
                if !is_reached {
                    return Checked::Unreached {
                        reason: format!("{host}:{port} cannot be reached ({why})"),
                    };
                }
                return Checked::wrong(
                    format!("{host}:{port} cannot be used ({why})"),
                    "see mail.smtp_host, mail.smtp_port, mail.smtp_tls, mail.smtp_user",
                );
            }
        };
        let encrypted = match connection.is_encrypted() {
            true => "encrypted",
            false => "in plain text",
        };
        let login = match self.relay.login {
            Some(_) => "takes the login",
            None => "asks for no login yet",
        };
        // It has said what was asked; how it says goodbye does not matter.
        let _ = self.within(connection.command(Quit)).await;
        Checked::ready(format!("{host}:{port} answers, {encrypted}, and {login}"))
    }

    fn name(&self) -> &str {
        "smtp"
    }
}
