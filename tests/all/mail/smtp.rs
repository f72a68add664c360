//! SMTP, command by command. A failure before the whole content is written means that the email
//! was not accepted. After that, a missing reply is an unknown outcome.

use std::sync::Arc;
use std::time::Duration;

use mail_parser::MessageParser;
use tidings::config::Config;
use tidings::domain::{Address, Secret};
use tidings::email::{
    CheckResult, Mailer, Message, Outcome, Relay, Resolution, Security, SendPermit,
    SendPermitState, SenderAddress, Smtp,
};
use tidings::engine::delivery::brand_identities::new_mailer;

use super::server::{Say, Server};
use super::{PATIENT, email, emails, kinds, sender};
use crate::support::{assert_contains, assert_starts_with};

fn relay(server: &Server) -> Relay {
    Relay {
        host: "127.0.0.1".into(),
        port: server.port,
        security: Security::Plain,
        login: None,
        timeout: PATIENT,
        sender: sender(),
    }
}

pub(super) fn smtp(server: &Server) -> Smtp {
    Smtp::new(relay(server)).unwrap()
}

/// Sends one email to a server that answers this command in this way. Returns the kinds of
/// outcomes, and the number of accepted emails.
async fn after(command: &'static str, say: Say) -> (Vec<&'static str>, usize) {
    let server = Server::start().await;
    server.then(command, say);
    let outcomes = smtp(&server).send("ref", &[email("ada")], &SendPermit::always()).await;
    (kinds(&outcomes), server.emails().len())
}

#[tokio::test]
async fn emails_arrive_complete_over_one_connection() {
    let server = Server::start().await;
    let smtp = smtp(&server);

    let outcomes = smtp.send("ref", &emails(3), &SendPermit::always()).await;

    assert_eq!(kinds(&outcomes), ["accepted"]);
    assert_eq!((server.connections(), server.emails().len()), (1, 3));
    let text = server.emails().remove(0);
    let parsed = MessageParser::new().parse(text.as_bytes()).unwrap();
    assert_eq!(parsed.subject(), Some("Fourteen works"));
    assert_eq!(parsed.body_text(0).unwrap().trim(), "Fourteen works — https://x.example/u/p0000");
    assert_contains!(text, "List-Unsubscribe-Post: List-Unsubscribe=One-Click");
    let Outcome::Accepted(provider_id) = &outcomes[0] else { panic!() };
    assert_eq!(parsed.message_id(), Some(provider_id.as_str()));
    assert!(server.commands().contains(&"MAIL FROM:<digest@art.example>".to_owned()));
    assert_eq!(smtp.resolution(), Resolution::Impossible);
}

#[tokio::test]
async fn temporary_replies_about_the_session_or_sender_concern_all_emails() {
    for (command, reply, expected) in [
        ("", "451 4.3.0 not now", "later"),
        ("EHLO", "451 4.3.0 not now", "later"),
        ("MAIL", "451 4.3.0 not now", "later"),
        ("RCPT", "421 4.3.2 closing", "later"),
        (".", "421 4.3.2 closing", "later"),
        ("RCPT", "451 4.7.1 greylisted", "deferred"),
        ("RCPT", "452 4.2.2 mailbox full", "deferred"),
        ("DATA", "451 4.3.0 not now", "deferred"),
        (".", "450 4.7.1 sending rate exceeded", "deferred"),
    ] {
        let outcome = after(command, Say::Reply(reply)).await;
        assert_eq!(outcome, (vec![expected], 0), "{command} {reply}");
    }
}

#[tokio::test]
async fn an_exhausted_sending_quota_is_retried_later() {
    for command in ["MAIL", "RCPT", "DATA", "."] {
        for reply in [
            "550 5.4.5 Daily sending quota exceeded",
            "454 Throttling failure: Daily message quota exceeded",
        ] {
            let outcome = after(command, Say::Reply(reply)).await;
            assert_eq!(outcome, (vec!["later"], 0), "{command} {reply}");
        }
    }
}

#[tokio::test]
async fn a_status_inside_the_text_of_a_reply_is_ignored() {
    for (reply, expected) in [
        ("554 5.7.1 Message rejected by FilterGate 5.2.1 (policy)", "refused"),
        ("550 rejected by 5.1.1.3", "refused"),
        ("550-5.1.1 no such\r\n550 5.1.1 user", "undeliverable"),
    ] {
        let outcome = after("RCPT", Say::Reply(reply)).await;
        assert_eq!(outcome, (vec![expected], 0), "{reply}");
    }
}

#[tokio::test]
async fn a_session_that_accepts_no_more_emails_is_replaced_at_once() {
    const FULL: &str = "452 4.5.3 Too many messages in this session";
    for (command, reply) in [
        ("MAIL", FULL),
        ("MAIL", "550 5.7.0 too many messages"),
        ("RCPT", FULL),
        ("RCPT", "421 4.7.0 too many messages"),
        (".", FULL),
    ] {
        let server = Server::start().await;
        server.follow(move |line, accepted| {
            (accepted == 2 && line.starts_with(command)).then_some(reply)
        });

        let outcomes = smtp(&server).send("ref", &emails(5), &SendPermit::always()).await;

        assert_eq!(kinds(&outcomes), ["accepted"], "{command} {reply}");
        assert_eq!((server.connections(), server.emails().len()), (3, 5));
    }
}

#[tokio::test]
async fn a_reply_on_a_new_connection_is_final() {
    let server = Server::start().await;
    server.follow(|line, _| line.starts_with("MAIL").then_some("452 4.5.3 too many messages"));

    let outcomes = smtp(&server).send("ref", &emails(2), &SendPermit::always()).await;

    assert_eq!(kinds(&outcomes), ["later"]);
    assert!(server.connections() <= 3, "{}", server.connections());
}

/// A message to this address.
fn email_to(address: &str) -> Message {
    Message { to: Address::new(address).unwrap(), ..email("ada") }
}

#[tokio::test]
async fn a_non_ascii_domain_is_sent_in_punycode() {
    let server = Server::start().await;
    let relay = Relay {
        sender: SenderAddress { from: Address::new("news@bücher.example").unwrap(), ..sender() },
        ..relay(&server)
    };

    let outcomes = Smtp::new(relay)
        .unwrap()
        .send("ref", &[email_to("mara@bücher.example")], &SendPermit::always())
        .await;

    assert_eq!(kinds(&outcomes), ["accepted"], "{outcomes:?}");
    assert_eq!(
        server.commands()[..3],
        [
            "EHLO xn--bcher-kva.example",
            "MAIL FROM:<news@xn--bcher-kva.example>",
            "RCPT TO:<mara@xn--bcher-kva.example>"
        ]
    );
    let text = server.emails().remove(0);
    let head = text.split("\n\n").next().unwrap();
    assert!(head.is_ascii(), "{head}");
}

#[tokio::test]
async fn a_non_ascii_local_part_needs_a_server_with_smtputf8() {
    let able = "250-server\r\n250-8BITMIME\r\n250 SMTPUTF8";
    for (extensions, expected) in [(None, "unsendable"), (Some(able), "accepted")] {
        let server = Server::start().await;
        if let Some(extensions) = extensions {
            server.then("EHLO", Say::Reply(extensions));
        }
        let smtp = smtp(&server);

        let special = [email_to("jürgen@bücher.example")];
        let special = smtp.send("ref", &special, &SendPermit::always()).await;
        let plain = smtp.send("ref", &[email("ben")], &SendPermit::always()).await;

        assert_eq!((kinds(&special), kinds(&plain)), (vec![expected], vec!["accepted"]));
        let commands = server.commands();
        let named = commands.contains(&"RCPT TO:<jürgen@xn--bcher-kva.example>".to_owned());
        assert_eq!(named, expected == "accepted", "{commands:?}");
        if let Outcome::Unsendable(reason) = &special[0] {
            assert!(reason.contains("SMTPUTF8"), "{reason}");
        }
    }
}

#[tokio::test]
async fn permanent_rejections_are_refused() {
    for command in ["RCPT", "DATA", "."] {
        let outcome = after(command, Say::Reply("550 5.7.1 not wanted")).await;
        assert_eq!(outcome, (vec!["refused"], 0), "{command}");
    }
}

#[tokio::test]
async fn an_address_that_accepts_no_email_is_undeliverable() {
    for reply in
        ["550 5.1.1 no such user", "553-5.1.10\r\n553 5.1.10 takes none", "550 5.2.1 closed"]
    {
        let outcome = after("RCPT", Say::Reply(reply)).await;
        assert_eq!(outcome, (vec!["undeliverable"], 0), "{reply}");
    }
}

#[tokio::test]
async fn a_rejection_that_concerns_every_email_stops_the_sender() {
    for (command, reply) in [
        ("MAIL", "550 5.1.8 sender refused"),
        ("MAIL", "530 5.7.0 log in first"),
        ("RCPT", "530 5.7.0 log in first"),
        ("EHLO", "550 go away"),
    ] {
        let outcome = after(command, Say::Reply(reply)).await;
        assert_eq!(outcome, (vec!["stop"], 0), "{command} {reply}");
    }
}

#[tokio::test]
async fn a_connection_lost_before_the_content_is_unreachable() {
    for command in ["", "EHLO", "MAIL", "RCPT", "DATA"] {
        let outcome = after(command, Say::HangUp).await;
        assert_eq!(outcome, (vec!["unreachable"], 0), "{command}");
    }
}

#[tokio::test]
async fn a_connection_lost_after_the_content_is_unknown() {
    assert_eq!(after(".", Say::HangUp).await.0, ["unknown"]);
}

#[tokio::test]
async fn a_connection_lost_within_the_content_is_unreachable() {
    let server = Server::start().await;
    server.then("content", Say::HangUp);
    // More than the buffers of the operating system hold.
    let mut long = email("ada");
    Arc::make_mut(&mut long.content).text = "A line of many.\n".repeat(3 << 17).into();

    let outcomes = smtp(&server).send("ref", &[long], &SendPermit::always()).await;

    assert_eq!(kinds(&outcomes), ["unreachable"]);
}

#[tokio::test]
async fn a_timeout_means_the_same_as_a_lost_connection() {
    for (command, expected) in [("", "unreachable"), ("RCPT", "unreachable"), (".", "unknown")] {
        let server = Server::start().await;
        server.then(command, Say::Nothing);
        let hasty = Smtp::new(Relay { timeout: Duration::from_millis(300), ..relay(&server) });

        let outcomes = hasty.unwrap().send("ref", &[email("ada")], &SendPermit::always()).await;

        assert_eq!(kinds(&outcomes), [expected], "{command}");
    }
}

/// Returns the outcomes of two emails if the process stops while the server gets this command.
async fn stopped_at(server: &Arc<Server>, command: &'static str) -> Vec<&'static str> {
    let stopping = server.clone();
    let permit = SendPermit::new(move || {
        let commands = stopping.commands();
        match commands.iter().any(|line| line.starts_with(command)) {
            true => SendPermitState::ShuttingDown,
            false => SendPermitState::Valid,
        }
    });
    kinds(&smtp(server).send("ref", &emails(2), &permit).await)
}

#[tokio::test]
async fn a_stop_cancels_a_conversation_before_its_content() {
    for command in ["EHLO", "MAIL", "RCPT", "DATA"] {
        let server = Arc::new(Server::start().await);

        assert_eq!(stopped_at(&server, command).await, ["withheld"]);

        assert_starts_with!(server.commands().last().unwrap(), command);
        assert_eq!((server.connections(), server.emails().len()), (1, 0));
    }
}

#[tokio::test]
async fn a_stop_replaces_no_closed_connection() {
    let server = Arc::new(Server::start().await);
    server.then("RCPT TO:<p0001", Say::HangUp);

    let outcomes = stopped_at(&server, "RCPT TO:<p0001").await;

    assert_eq!(outcomes, ["accepted", "withheld"]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn after_a_rejection_the_connection_is_reused() {
    let server = Server::start().await;
    server.then("RCPT", Say::Reply("550 5.1.1 no such user"));

    let outcomes = smtp(&server).send("ref", &emails(2), &SendPermit::always()).await;

    assert_eq!(kinds(&outcomes), ["undeliverable", "accepted"]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_reused_connection_that_the_server_closed_loses_no_email() {
    for goodbye in [Say::HangUp, Say::Reply("421 4.4.2 timed out")] {
        let server = Server::start().await;
        let smtp = smtp(&server);
        smtp.send("ref", &[email("ada")], &SendPermit::always()).await;
        server.then("MAIL", goodbye);

        let outcomes = smtp.send("ref", &[email("ben")], &SendPermit::always()).await;

        assert_eq!(kinds(&outcomes), ["accepted"], "{goodbye:?}");
        assert_eq!((server.connections(), server.emails().len()), (2, 2));
    }
}

#[tokio::test]
async fn the_login_is_sent_and_a_rejected_one_stops_the_sender() {
    let server = Server::start().await;
    let authorized = Smtp::new(Relay {
        login: Some((Secret::new("me"), Secret::new("pass"))),
        ..relay(&server)
    })
    .unwrap();

    let first = authorized.send("ref", &[email("ada")], &SendPermit::always()).await;
    server.then("AUTH", Say::Reply("535 5.7.8 who are you"));
    let check = format!("{:?}", authorized.check().await);
    let again = Server::start().await;
    again.then("AUTH", Say::Reply("535 5.7.8 who are you"));
    let rejected = Smtp::new(Relay {
        login: Some((Secret::new("me"), Secret::new("wrong"))),
        ..relay(&again)
    });
    let second = rejected.unwrap().send("ref", &[email("ada")], &SendPermit::always()).await;

    assert_eq!((kinds(&first), kinds(&second)), (vec!["accepted"], vec!["stop"]));
    // The login is "\0me\0pass" in base64.
    assert!(
        server.commands().contains(&"AUTH PLAIN AG1lAHBhc3M=".to_owned()),
        "{:?}",
        server.commands()
    );
    assert_starts_with!(check, "Wrong");
    assert_contains!(check, "535");
    assert_contains!(check, "mail.smtp_user");
}

#[tokio::test]
async fn a_server_without_tls_receives_no_password() {
    let server = Server::start().await;
    let careful = Smtp::new(Relay {
        security: Security::StartTls,
        login: Some((Secret::new("me"), Secret::new("pass"))),
        ..relay(&server)
    })
    .unwrap();

    let outcomes = careful.send("ref", &[email("ada")], &SendPermit::always()).await;

    assert_eq!(kinds(&outcomes), ["stop"], "{outcomes:?}");
    assert!(!server.commands().iter().any(|command| command.starts_with("AUTH")));
}

#[tokio::test]
async fn the_configured_server_receives_the_emails() {
    let server = Server::start().await;
    let config = Config::parse(&format!(
        "[mail]\nprovider = \"smtp\"\nfrom = \"digest@art.example\"\nsmtp_host = \"127.0.0.1\"\nsmtp_port = {}\nsmtp_tls = \"none\"",
        server.port
    ));
    let mailer = new_mailer(&config.unwrap()).unwrap();
    let two = emails(2);

    assert_eq!(mailer.split_into_calls(&two), [[0], [1]]);
    assert_eq!(kinds(&mailer.send("ref", &two[..1], &SendPermit::always()).await), ["accepted"]);
    let check = mailer.check().await;
    assert!(
        matches!(&check, CheckResult::Ready(found, _) if found.contains("in plain text")),
        "{check:?}"
    );
    assert_eq!(server.emails().len(), 1);
}

#[tokio::test]
async fn a_check_logs_in_and_quits_without_a_recipient() {
    let server = Server::start().await;
    let authorized = Smtp::new(Relay {
        login: Some((Secret::new("me"), Secret::new("pass"))),
        ..relay(&server)
    });

    let checked = authorized.unwrap().check().await;

    assert!(matches!(checked, CheckResult::Ready(..)), "{checked:?}");
    let commands: Vec<String> = server.commands();
    let words: Vec<_> = commands.iter().filter_map(|line| line.get(..4)).collect();
    assert_eq!(words, ["EHLO", "AUTH", "QUIT"]);
}

#[tokio::test]
async fn a_silent_server_is_unreached_and_an_absent_one_is_wrong() {
    let server = Server::start().await;
    server.then("", Say::Nothing);
    let hasty =
        |port| Smtp::new(Relay { port, timeout: Duration::from_millis(300), ..relay(&server) });
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let unused = free.local_addr().unwrap().port();
    drop(free);

    let silent = hasty(server.port).unwrap().check().await;
    let absent = hasty(unused).unwrap().check().await;

    assert!(matches!(silent, CheckResult::Unreached(..)), "{silent:?}");
    assert!(matches!(absent, CheckResult::Wrong(..)), "{absent:?}");
}
