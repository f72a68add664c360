//! Sends emails over SMTP, one at a time, and reuses connections.
//!
//! Until the last line of the content is written, the server cannot have accepted the email, so an
//! error means a retry or a rejection. After it, a lost answer leaves the outcome unknown (P5). So
//! this module sends each command itself: lettre's transport does not report how far a conversation
//! came. [`reply`] interprets the server's replies.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
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

use self::reply::Reply;
use super::http::{is_of, is_refused, words};
use super::mime::{compose, mailbox, message_id, tag};
use super::{Checked, Mailer, Message, Outcome, Permit, SenderAddress};
use crate::domain::Secret;
use crate::domain::name::named_enum;

mod reply;

/// An SMTP server that accepts our emails, and how to reach it.
#[derive(Debug, Clone)]
pub struct Relay {
    /// The host name or IP address. With TLS, the certificate must match it.
    pub host: String,
    /// The port: usually 587 with STARTTLS, and 465 with TLS from the first byte.
    pub port: u16,
    /// The encryption of the connection.
    pub security: Security,
    /// User and password. Users are often email addresses, so they are secret too.
    pub login: Option<(Secret, Secret)>,
    /// The time limit for opening a connection (up to the login), for each command, and for writing
    /// the content and reading its reply.
    pub timeout: Duration,
    /// The sender of all emails.
    pub sender: SenderAddress,
}

named_enum! {
    /// The encryption of an SMTP connection.
    Security("encryption") {
        /// None. Allowed only for a server on the same machine.
        Plain = "none",
        /// STARTTLS before login and emails. A server that does not support it is not used.
        StartTls = "starttls",
        /// TLS from the first byte.
        Tls = "tls",
    }
}

/// A mailer for an SMTP server.
pub struct Smtp {
    relay: Relay,
    tls: Option<TlsParameters>,
    hello: ClientId,
    idle: Mutex<Vec<Connection>>,
}

/// An open connection, after the login.
struct Connection {
    connection: AsyncSmtpConnection,
    /// Whether it has sent an email.
    is_used: bool,
    since: Instant,
}

/// How far a conversation came before it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Connecting, encrypting, logging in.
    Introduction,
    /// Naming the sender, which is the same for all emails.
    Sender,
    Recipient,
    /// The content is being written. Its last line is not written yet, so the server cannot have
    /// accepted the email.
    Content,
    /// The content is complete.
    End,
}

enum SmtpFailure {
    Smtp(SmtpError),
    TimedOut,
    /// The send permit ended.
    Withheld(String),
    /// The server does not support such an address.
    NotWritable(String),
}

impl SmtpFailure {
    /// Returns whether the connection is unusable. It stays usable after a negative reply, except
    /// 421, and after a send permit that ended before the content.
    fn is_over(&self, stage: Stage) -> bool {
        match self {
            Self::Smtp(error) => error.status().is_none_or(|code| u16::from(code) == 421),
            Self::TimedOut => true,
            Self::Withheld(_) => stage == Stage::Content,
            Self::NotWritable(_) => false,
        }
    }

    /// Returns whether to send the message again over a new connection at once, after a failure on
    /// a reused one.
    ///
    /// The server has certainly not accepted it. It closed the connection before the content,
    /// refused a sender that it had accepted before, or named a limit of the session.
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

    /// Returns whether the last write failed because the server had closed the connection. A failed
    /// read never reports this error.
    fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Smtp(error) if is_of(error, ErrorKind::BrokenPipe))
    }
}

/// An unused connection is kept for this long. RFC 5321, section 4.5.3.2.7, asks servers to wait
/// for at least five minutes, but many do not.
const IDLE: Duration = Duration::from_secs(20);

impl Smtp {
    /// Creates a mailer without a connection. Fails if the host name cannot be in a certificate, or
    /// this machine has no root certificates.
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
            idle: Mutex::default(),
            tls,
            relay,
        })
    }

    /// Returns a kept connection, or opens one. [`SmtpFailure::is_of_session`] replaces a kept one that
    /// the server has closed.
    async fn line(&self) -> Result<Connection, SmtpFailure> {
        let kept = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|line| line.since.elapsed() <= IDLE);
            idle.pop()
        };
        match kept {
            Some(kept) => Ok(kept),
            None => Ok(Connection {
                connection: self.within(self.introduce()).await?,
                is_used: false,
                since: Instant::now(),
            }),
        }
    }

    /// Keeps the connection for the next email.
    fn keep(&self, mut line: Connection) {
        (line.is_used, line.since) = (true, Instant::now());
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(line);
    }

    /// Closes a connection and ignores the reply.
    async fn quit(&self, mut line: Connection) {
        let _ = self.within(line.connection.command(Quit)).await;
    }

    async fn introduce(&self) -> Result<AsyncSmtpConnection, SmtpError> {
        let relay = &self.relay;
        let at_once = (relay.security == Security::Tls).then(|| self.tls.clone()).flatten();
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
    ) -> Result<T, SmtpFailure> {
        match timeout(self.relay.timeout, step).await {
            Ok(done) => done.map_err(SmtpFailure::Smtp),
            Err(_) => Err(SmtpFailure::TimedOut),
        }
    }

    async fn one(&self, message: &Message, permit: &Permit) -> Outcome {
        let prepared = compose(message, &self.relay.sender).and_then(|email| {
            let from = mailbox(&self.relay.sender.from, None)?.email;
            let to = mailbox(&message.to, None)?.email;
            Ok((from, to, email))
        });
        let (from, to, email) = match prepared {
            Ok(prepared) => prepared,
            Err(reason) => return Outcome::Unsendable(reason),
        };
        loop {
            if let Some(reason) = permit.canceled() {
                return Outcome::Withheld(reason);
            }
            let mut line = match self.line().await {
                Ok(line) => line,
                Err(failure) => return self.outcome(Stage::Introduction, failure),
            };
            let spoken = self.converse(&mut line.connection, &from, &to, &email, permit);
            let (stage, failure) = match spoken.await {
                Ok(_) => {
                    self.keep(line);
                    let id = message_id(&tag(&message.delivery), &self.relay.sender);
                    return Outcome::Accepted(id.trim_matches(['<', '>']).to_owned());
                }
                Err(failure) => failure,
            };
            // A process that stops does not wait for replies to QUIT or RSET.
            let over = failure.is_over(stage) || permit.canceled().is_some();
            if line.is_used && failure.is_of_session(stage) {
                if !over {
                    self.quit(line).await;
                }
                continue;
            }
            if !over && self.within(line.connection.command(Rset)).await.is_ok() {
                self.keep(line);
            }
            return self.outcome(stage, failure);
        }
    }

    /// Names sender and recipient, and writes the content. A stop of the process cancels it before
    /// the content, so that it takes at most one more [`Relay::timeout`].
    async fn converse(
        &self,
        connection: &mut AsyncSmtpConnection,
        from: &MailAddress,
        to: &MailAddress,
        email: &[u8],
        permit: &Permit,
    ) -> Result<Response, (Stage, SmtpFailure)> {
        let able = |extension| connection.server_info().supports_feature(extension);
        let mut parameters = Vec::new();
        // Domains are in Punycode, so only a local part can need SMTPUTF8.
        if !(from.user().is_ascii() && to.user().is_ascii()) {
            if !able(Extension::SmtpUtfEight) {
                let reason = "the server does not support SMTPUTF8, which the address needs";
                return Err((Stage::Sender, SmtpFailure::NotWritable(reason.to_owned())));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !email.is_ascii() && able(Extension::EightBitMime) {
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        if let Some(reason) = permit.withheld() {
            return Err((Stage::Sender, SmtpFailure::Withheld(reason)));
        }
        let go_on = |stage| match permit.canceled() {
            Some(reason) => Err((stage, SmtpFailure::Withheld(reason))),
            None => Ok(()),
        };
        self.within(connection.command(Mail::new(Some(from.clone()), parameters)))
            .await
            .map_err(|failure| (Stage::Sender, failure))?;
        go_on(Stage::Recipient)?;
        self.within(connection.command(Rcpt::new(to.clone(), Vec::new())))
            .await
            .map_err(|failure| (Stage::Recipient, failure))?;
        go_on(Stage::Recipient)?;
        self.within(connection.command(Data))
            .await
            .map_err(|failure| (Stage::Recipient, failure))?;
        // DATA cannot be canceled. Closing the connection before the last line keeps the server
        // from accepting the email.
        go_on(Stage::Content)?;
        // lettre asks for the next part once it has written the content. After that it writes the
        // last line.
        let written = AtomicBool::new(false);
        let end = std::iter::from_fn(|| {
            written.store(true, Ordering::SeqCst);
            None
        });
        let parts = std::iter::once(email).chain(end);
        let said = self.within(connection.message_iter(parts)).await;
        said.map_err(|failure| {
            let whole = written.load(Ordering::SeqCst) && !failure.is_broken_pipe();
            (if whole { Stage::End } else { Stage::Content }, failure)
        })
    }

    /// Returns the outcome that a failure means for the email.
    fn outcome(&self, stage: Stage, failure: SmtpFailure) -> Outcome {
        let (reason, error) = match failure {
            SmtpFailure::Withheld(reason) => return Outcome::Withheld(reason),
            SmtpFailure::NotWritable(reason) => return Outcome::Unsendable(reason),
            SmtpFailure::Smtp(error) => {
                (format!("SMTP: {}", words(&error.to_string())), Some(error))
            }
            SmtpFailure::TimedOut => {
                let limit = self.relay.timeout.as_secs_f32();
                (format!("no answer within {limit} s"), None)
            }
        };
        let Some(reply) = error.as_ref().and_then(Reply::of) else {
            return match stage {
                // Client and server have no method of encryption or login in common.
                Stage::Introduction if error.is_some_and(|error| error.is_client()) => {
                    Outcome::Stop(reason)
                }
                Stage::End => Outcome::Unknown(reason),
                _ => Outcome::Unreachable(reason),
            };
        };
        match stage {
            Stage::Introduction | Stage::Sender if reply.names_sending_limit() => {
                Outcome::TryLater(reason, Some(reply.limit_wait()))
            }
            Stage::Introduction | Stage::Sender if reply.is_temporary() => {
                Outcome::TryLater(reason, None)
            }
            // A greeting of 554 means "not now", unlike a rejected login.
            Stage::Introduction if reply.code() == 554 => Outcome::TryLater(reason, None),
            Stage::Introduction | Stage::Sender => Outcome::Stop(reason),
            Stage::Recipient | Stage::Content | Stage::End => reply.outcome(reason),
        }
    }
}

#[async_trait]
impl Mailer for Smtp {
    async fn send(&self, _reference: &str, messages: &[Message], permit: &Permit) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            outcomes.push(self.one(message, permit).await);
        }
        outcomes
    }

    async fn check(&self) -> Checked {
        let Relay { host, port, .. } = &self.relay;
        let mut connection = match self.within(self.introduce()).await {
            Ok(connection) => connection,
            Err(SmtpFailure::Smtp(error)) => {
                let why = words(&error.to_string());
                let is_reached = error.status().is_some()
                    || error.is_client()
                    || error.is_response()
                    || error.is_tls()
                    || is_refused(&error);
                return match is_reached {
                    true => Checked::wrong(
                        format!("{host}:{port} cannot be used ({why})"),
                        "see mail.smtp_host, mail.smtp_port, mail.smtp_tls, mail.smtp_user",
                    ),
                    false => Checked::Unreached(format!("{host}:{port} cannot be reached ({why})")),
                };
            }
            Err(_) => {
                let reason = format!("{host}:{port} does not answer");
                return Checked::Unreached(reason);
            }
        };
        let encrypted = match connection.is_encrypted() {
            true => "encrypted",
            false => "in plain text",
        };
        let login = match self.relay.login {
            Some(_) => "accepts the login",
            None => "no login is configured",
        };
        let _ = self.within(connection.command(Quit)).await;
        Checked::ready(format!("{host}:{port} answers, {encrypted}, and {login}"))
    }

    fn name(&self) -> &str {
        "smtp"
    }
}
