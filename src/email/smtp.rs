//! Sends emails over SMTP, one at a time, and reuses connections.
//!
//! Until the last line of the content is written, the server cannot have accepted the email, so an
//! error means a retry or a rejection. After it, a lost answer leaves the outcome unknown (P5). So
//! this module sends each command itself: lettre's transport does not report which command failed.
//! [`reply`] interprets the server's replies.

use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
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
use super::http::{has_io_cause, is_connection_refused, ledger_line};
use super::mime::{compose, delivery_tag, mailbox, message_id};
use super::{CheckResult, Mailer, Message, Outcome, SendPermit, SenderAddress};
use crate::domain::Secret;
use crate::domain::name::named_enum;
use crate::mutex::lock;

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
    client_id: ClientId,
    idle: Mutex<Vec<Connection>>,
}

/// An open connection, after the login.
struct Connection {
    smtp: AsyncSmtpConnection,
    /// Whether it has sent an email.
    is_used: bool,
    idle_since: Instant,
}

/// An email, and the addresses that it is sent from and to.
struct WrittenEmail {
    from: MailAddress,
    to: MailAddress,
    content: Vec<u8>,
}

/// The stage of a conversation at which it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Connecting, encrypting, logging in.
    Connecting,
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
    fn is_fatal(&self, stage: Stage) -> bool {
        match self {
            Self::Smtp(error) => error.status().is_none_or(|code| u16::from(code) == 421),
            Self::TimedOut => true,
            Self::Withheld(_) => stage == Stage::Content,
            Self::NotWritable(_) => false,
        }
    }

    /// Returns whether a new connection may help at once, after a failure on a reused one.
    ///
    /// The server has certainly not accepted the message. It closed the connection before the
    /// content, refused a sender that it had accepted before, or named a limit of the session.
    fn is_of_session(&self, stage: Stage) -> bool {
        let reply = match self {
            Self::Smtp(error) => Reply::from_error(error),
            Self::TimedOut => None,
            Self::Withheld(_) | Self::NotWritable(_) => return false,
        };
        reply.is_some_and(|reply| reply.names_session_limit())
            || stage == Stage::Sender
            || (stage == Stage::Recipient && self.is_fatal(stage))
    }

    /// Returns whether the last write failed because the server had closed the connection. A failed
    /// read never reports this error.
    fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Smtp(error) if has_io_cause(error, ErrorKind::BrokenPipe))
    }
}

/// An unused connection is kept for this long. RFC 5321, section 4.5.3.2.7, asks servers to wait
/// for at least five minutes, but many do not.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

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
            client_id: ClientId::Domain(relay.sender.from.domain_in_ascii().into_owned()),
            idle: Mutex::default(),
            tls,
            relay,
        })
    }

    /// Returns an idle connection, or opens one. The server may have closed an idle connection,
    /// which [`SmtpFailure::is_of_session`] detects.
    async fn connection(&self) -> Result<Connection, SmtpFailure> {
        let idle_connection = {
            let mut idle = lock(&self.idle);
            idle.retain(|connection| connection.idle_since.elapsed() <= IDLE_TIMEOUT);
            idle.pop()
        };
        match idle_connection {
            Some(connection) => Ok(connection),
            None => Ok(Connection {
                smtp: self.with_timeout(self.connect()).await?,
                is_used: false,
                idle_since: Instant::now(),
            }),
        }
    }

    /// Keeps the connection for the next email.
    fn keep(&self, smtp: AsyncSmtpConnection) {
        let connection = Connection { smtp, is_used: true, idle_since: Instant::now() };
        lock(&self.idle).push(connection);
    }

    /// Closes a connection and ignores the reply.
    async fn quit(&self, mut smtp: AsyncSmtpConnection) {
        let _ = self.with_timeout(smtp.command(Quit)).await;
    }

    /// Connects, encrypts and logs in.
    async fn connect(&self) -> Result<AsyncSmtpConnection, SmtpError> {
        let relay = &self.relay;
        let immediate_tls = self.tls.clone().filter(|_| relay.security == Security::Tls);
        let mut smtp = AsyncSmtpConnection::connect_tokio1(
            (relay.host.as_str(), relay.port),
            Some(relay.timeout),
            &self.client_id,
            immediate_tls,
            None,
        )
        .await?;
        if let (Security::StartTls, Some(tls)) = (relay.security, &self.tls) {
            smtp.starttls(tls.clone(), &self.client_id).await?;
        }
        if let Some((user, password)) = &relay.login {
            let login = Credentials::new(user.expose().to_owned(), password.expose().to_owned());
            smtp.auth(DEFAULT_MECHANISMS, &login).await?;
        }
        Ok(smtp)
    }

    async fn with_timeout<T>(
        &self,
        step: impl Future<Output = Result<T, SmtpError>>,
    ) -> Result<T, SmtpFailure> {
        match timeout(self.relay.timeout, step).await {
            Ok(result) => result.map_err(SmtpFailure::Smtp),
            Err(_) => Err(SmtpFailure::TimedOut),
        }
    }

    /// Writes the email. Returns the reason if that is not possible.
    fn write(&self, message: &Message) -> Result<WrittenEmail, String> {
        let sender = &self.relay.sender;
        Ok(WrittenEmail {
            content: compose(message, sender)?,
            from: mailbox(&sender.from, None)?.email,
            to: mailbox(&message.to, None)?.email,
        })
    }

    /// Sends an email. Returns its id if the server accepted it, or else the outcome.
    async fn send_one(&self, message: &Message, permit: &SendPermit) -> Result<String, Outcome> {
        let email = self.write(message).map_err(Outcome::Unsendable)?;
        loop {
            if let Some(reason) = permit.cancel_reason() {
                return Err(Outcome::Withheld(reason));
            }
            let connection = self.connection().await;
            let Connection { mut smtp, is_used, .. } =
                connection.map_err(|failure| self.outcome(Stage::Connecting, failure))?;
            let Err((stage, failure)) = self.converse(&mut smtp, &email, permit).await else {
                self.keep(smtp);
                let id = message_id(&delivery_tag(&message.delivery), &self.relay.sender);
                return Ok(id.trim_matches(['<', '>']).to_owned());
            };
            // A process that stops does not wait for replies to QUIT or RSET.
            let is_usable = !failure.is_fatal(stage) && permit.cancel_reason().is_none();
            if !is_used || !failure.is_of_session(stage) {
                if is_usable && self.with_timeout(smtp.command(Rset)).await.is_ok() {
                    self.keep(smtp);
                }
                return Err(self.outcome(stage, failure));
            }
            if is_usable {
                self.quit(smtp).await;
            }
        }
    }

    /// Names sender and recipient, and writes the content. A stop of the process cancels it before
    /// the content, so that it takes at most one more [`Relay::timeout`].
    async fn converse(
        &self,
        smtp: &mut AsyncSmtpConnection,
        email: &WrittenEmail,
        permit: &SendPermit,
    ) -> Result<Response, (Stage, SmtpFailure)> {
        let WrittenEmail { from, to, content } = email;
        let supports = |extension| smtp.server_info().supports_feature(extension);
        let mut parameters = Vec::new();
        // Domains are in Punycode, so only a local part can need SMTPUTF8.
        if !(from.user().is_ascii() && to.user().is_ascii()) {
            if !supports(Extension::SmtpUtfEight) {
                let reason = "the server does not support SMTPUTF8, which the address needs";
                return Err((Stage::Sender, SmtpFailure::NotWritable(reason.to_owned())));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !content.is_ascii() && supports(Extension::EightBitMime) {
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        if let Some(reason) = permit.withheld_reason() {
            return Err((Stage::Sender, SmtpFailure::Withheld(reason)));
        }
        let check_permit = |stage| match permit.cancel_reason() {
            Some(reason) => Err((stage, SmtpFailure::Withheld(reason))),
            None => Ok(()),
        };
        self.with_timeout(smtp.command(Mail::new(Some(from.clone()), parameters)))
            .await
            .map_err(|failure| (Stage::Sender, failure))?;
        check_permit(Stage::Recipient)?;
        self.with_timeout(smtp.command(Rcpt::new(to.clone(), Vec::new())))
            .await
            .map_err(|failure| (Stage::Recipient, failure))?;
        check_permit(Stage::Recipient)?;
        self.with_timeout(smtp.command(Data))
            .await
            .map_err(|failure| (Stage::Recipient, failure))?;
        // DATA cannot be canceled. Closing the connection before the last line keeps the server
        // from accepting the email.
        check_permit(Stage::Content)?;
        // lettre asks for the next part once it has written the content. After that it writes the
        // last line.
        let is_written = AtomicBool::new(false);
        let end = std::iter::from_fn(|| {
            is_written.store(true, Ordering::SeqCst);
            None
        });
        let parts = std::iter::once(content.as_slice()).chain(end);
        self.with_timeout(smtp.message_iter(parts)).await.map_err(|failure| {
            let is_complete = is_written.load(Ordering::SeqCst) && !failure.is_broken_pipe();
            (if is_complete { Stage::End } else { Stage::Content }, failure)
        })
    }

    /// Returns the outcome that a failure means for the email.
    fn outcome(&self, stage: Stage, failure: SmtpFailure) -> Outcome {
        let (reason, error) = match failure {
            SmtpFailure::Withheld(reason) => return Outcome::Withheld(reason),
            SmtpFailure::NotWritable(reason) => return Outcome::Unsendable(reason),
            SmtpFailure::Smtp(error) => {
                (format!("SMTP: {}", ledger_line(&error.to_string())), Some(error))
            }
            SmtpFailure::TimedOut => {
                let limit = self.relay.timeout.as_secs_f32();
                (format!("no answer within {limit} s"), None)
            }
        };
        let Some(reply) = error.as_ref().and_then(Reply::from_error) else {
            return match stage {
                // Client and server have no method of encryption or login in common.
                Stage::Connecting if error.is_some_and(|error| error.is_client()) => {
                    Outcome::Stop(reason)
                }
                Stage::End => Outcome::Unknown(reason),
                _ => Outcome::Unreachable(reason),
            };
        };
        match stage {
            Stage::Connecting | Stage::Sender if reply.names_sending_limit() => {
                Outcome::TryLater(reason, Some(reply.limit_wait()))
            }
            Stage::Connecting | Stage::Sender if reply.is_temporary() => {
                Outcome::TryLater(reason, None)
            }
            // A greeting of 554 means "not now", unlike a rejected login.
            Stage::Connecting if reply.code() == 554 => Outcome::TryLater(reason, None),
            Stage::Connecting | Stage::Sender => Outcome::Stop(reason),
            Stage::Recipient | Stage::Content | Stage::End => reply.outcome(reason),
        }
    }
}

#[async_trait]
impl Mailer for Smtp {
    async fn send(
        &self,
        _reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            let sent = self.send_one(message, permit).await;
            outcomes.push(sent.map_or_else(|outcome| outcome, Outcome::Accepted));
        }
        outcomes
    }

    async fn check(&self) -> CheckResult {
        let Relay { host, port, .. } = &self.relay;
        let smtp = match self.with_timeout(self.connect()).await {
            Ok(smtp) => smtp,
            Err(SmtpFailure::Smtp(error)) => {
                let reason = ledger_line(&error.to_string());
                let is_reached = error.status().is_some()
                    || error.is_client()
                    || error.is_response()
                    || error.is_tls()
                    || is_connection_refused(&error);
                if !is_reached {
                    return CheckResult::Unreached(format!(
                        "{host}:{port} cannot be reached ({reason})"
                    ));
                }
                return CheckResult::wrong(
                    format!("{host}:{port} cannot be used ({reason})"),
                    "see mail.smtp_host, mail.smtp_port, mail.smtp_tls, mail.smtp_user",
                );
            }
            Err(_) => return CheckResult::Unreached(format!("{host}:{port} does not answer")),
        };
        let encryption = if smtp.is_encrypted() { "encrypted" } else { "in plain text" };
        let login = match self.relay.login {
            Some(_) => "accepts the login",
            None => "no login is configured",
        };
        self.quit(smtp).await;
        CheckResult::ready(format!("{host}:{port} answers, {encryption}, and {login}"))
    }

    fn name(&self) -> &str {
        "smtp"
    }
}
