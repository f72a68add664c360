//! Hostile content cannot reveal a recipient's links to others (P7, P8).
//!
//! Every field that an email can show contains hostile placeholders. The program builds digests and
//! batches from them and sends these through every provider. Each email is then read as the
//! provider would fill it in.

use std::collections::BTreeSet;

use serde_json::json;
use tidings::domain::Object;
use tidings::email::{LinkPlaceholder, Mailer, Message, Relay, Security, SendPermit, Smtp};

use crate::mail::provider::Provider;
use crate::mail::received::{Received, STOLEN, by_smtp, received};
use crate::mail::server::Server;
use crate::mail::{ALL, PATIENT, mailer, sender};
use crate::support::Fresh;
use crate::support::town::{Town, followers_of, monday, mostly_on_sqlite};

mostly_on_sqlite! {
    hostile_content_never_reveals_the_links_of_a_recipient
}

/// Placeholders that tidings uses or used, and those that providers fill in.
const HOSTILE: [&str; 12] = [
    "https://tidings.invalid/unsubscribe",
    "https://tidings.invalid/preferences",
    "https://tidings.invalid/unsubscribe-0/",
    "https://tidings.invalid/unsubscribe-1/",
    "%recipient.unsubscribe%",
    "%Recipient.Preferences%",
    "%unsubscribe_url%",
    "%tag_unsubscribe_url%",
    "<%asm_global_unsubscribe_raw_url%>",
    "{{{pm:unsubscribe_url}}}",
    "{{{RESEND_UNSUBSCRIBE_URL}}}",
    "{{amazonSESUnsubscribeUrl}}",
];

const BODY: &str = r#"{% for section in sections %}{% for item in section.items or [] %}
<a href="{{ item.url }}"><img src="{{ item.image }}">{{ item.label }} {{ item.by }} {% if item.data.words %}{{ item.data.words }} {{ item.data.words|safe }}{% endif %}</a>
{% endfor %}{% for group in section.groups or [] %}{% for item in group.items %}
<a href="{{ item.url }}"><img src="{{ item.image }}">{{ item.label }} {{ item.by }} {% if item.data.words %}{{ item.data.words }} {{ item.data.words|safe }}{% endif %}</a>
{% endfor %}{% endfor %}{% endfor %}
<p>{{ user.name }}</p><a href="{{ links.preferences }}">choose</a> <a href="{{ links.unsubscribe }}">stop</a>
"#;
const TEXT: &str = r#"{% for section in sections %}{% for item in section.items or [] %}
{{ item.url }} {{ item.image }} {{ item.label }} {{ item.by }} {% if item.data.words %}{{ item.data.words }}{% endif %}
{% endfor %}{% for group in section.groups or [] %}{% for item in group.items %}
{{ item.url }} {{ item.image }} {{ item.label }} {{ item.by }} {% if item.data.words %}{{ item.data.words }}{% endif %}
{% endfor %}{% endfor %}{% endfor %}
{{ user.name }}
{{ links.preferences }}
{{ links.unsubscribe }}
"#;

/// Returns an object with the nth hostile placeholder in every field.
fn hostile(n: usize) -> Object {
    let word = HOSTILE[n];
    Object {
        title: Some(format!("Title {word}")),
        url: Some(format!("https://evil.example/{n}?u={word}")),
        image: Some(format!("https://evil.example/{n}.gif?u={word}")),
        by: Some(format!("By {word}")),
        data: json!({ "words": format!("Data {word}") }).into(),
        ..Object::without_data(format!("w{n}").parse().unwrap())
    }
}

async fn hostile_content_never_reveals_the_links_of_a_recipient(fresh: Fresh) {
    let own = tempfile::tempdir().unwrap();
    for folder in ["digest", "batch"] {
        std::fs::create_dir(own.path().join(folder)).unwrap();
        std::fs::write(own.path().join(folder).join("body.html"), BODY).unwrap();
        std::fs::write(own.path().join(folder).join("body.txt"), TEXT).unwrap();
    }
    for templates in [String::new(), format!("mail.templates = {:?}\n", own.path())] {
        for route in ["digest", "batch"] {
            fresh.clear().await;
            let config = format!(
                "{templates}server.public_url = \"https://news.example.org\"\ntypes.ArtworkPublished.route = {route:?}\ndigest.section_items = 40\ntypes.ArtworkPublished.keep = \"last 40\"\n"
            );
            let emails = emails(&Town::found(&fresh, true, &config).await).await;
            assert_eq!(emails.len(), 2, "{route}");

            for dialect in ALL {
                let provider = Provider::start(dialect).await;
                let mailer = mailer(dialect, &provider.url, PATIENT);
                for call in mailer.split_into_calls(&emails) {
                    let call: Vec<Message> = call.iter().map(|n| emails[*n].clone()).collect();
                    mailer.send("ref-1", &call, &SendPermit::always()).await;
                }

                let requests = provider.requests();
                let all = requests.iter().flat_map(|request| received(dialect, request));
                check_links(&format!("{dialect:?} {route}"), all.collect(), &emails);
            }
            let server = Server::start().await;
            smtp(&server).send("ref-1", &emails, &SendPermit::always()).await;
            let all = server.emails();
            check_links(
                &format!("SMTP {route}"),
                all.iter().map(|email| by_smtp(email)).collect(),
                &emails,
            );
        }
    }
}

/// Returns the emails to two users about all hostile objects.
async fn emails(town: &Town) -> Vec<Message> {
    let objects: Vec<Object> = (0..HOSTILE.len()).map(hostile).collect();
    town.store.put_objects(&objects).await.unwrap();
    for person in ["ada", "ben"] {
        town.change(person, |user| user.name = Some(HOSTILE.join(" "))).await;
    }
    let ids: Vec<String> = (0..HOSTILE.len()).map(|n| format!("w{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    town.happens(&ids, followers_of("artist:1")).await;
    town.digests_at(monday(0)).await;
    town.send_due().await;
    town.emails()
}

fn smtp(server: &Server) -> Smtp {
    let relay = Relay {
        host: "127.0.0.1".into(),
        port: server.port,
        security: Security::Plain,
        login: None,
        timeout: PATIENT,
        sender: sender(),
    };
    Smtp::new(relay).unwrap()
}

/// Checks that a token appears only in the recipient's own links, and that the content arrives.
fn check_links(label: &str, all: Vec<Received>, emails: &[Message]) {
    let tokens = |email: &Message| {
        // An email about several objects has no mute link.
        [LinkPlaceholder::Unsubscribe, LinkPlaceholder::Preferences].map(|place| {
            let link = email.links.as_ref().unwrap().link(place);
            let token = link.strip_prefix("https://news.example.org/u/").unwrap();
            token.trim_end_matches("/preferences").to_owned()
        })
    };
    let tokens: Vec<[String; 2]> = emails.iter().map(tokens).collect();
    let recipients: BTreeSet<_> = all.iter().map(|email| email.to.clone()).collect();
    assert_eq!((all.len(), recipients.len()), (2, 2), "{label}");
    for email in &all {
        for part in [&email.subject, &email.html, &email.text, &email.to] {
            assert!(!part.contains(STOLEN), "{label}: {part}");
        }
        let (own, others) = match email.to.contains("ada@") {
            true => (&tokens[0], &tokens[1]),
            false => (&tokens[1], &tokens[0]),
        };
        let [stop, choose] = own;
        let link = format!("https://news.example.org/u/{stop}");
        let preferences = format!("https://news.example.org/u/{choose}/preferences");
        let headers = format!("{:?}", email.headers);
        assert_eq!(headers.matches(stop).count(), 1, "{label}: {headers}");
        assert!(headers.contains(&format!("<{link}>")), "{label}: {headers}");
        for part in [&email.subject, &email.html, &email.text, &email.to, &headers] {
            let stolen = others.iter().any(|other| part.contains(other));
            assert!(!stolen, "{label}: {part}");
        }
        for own in own {
            assert!(!email.subject.contains(own) && !email.to.contains(own), "{label}");
            assert_eq!(email.html.matches(own).count(), 1, "{label}: {}", email.html);
        }
        assert!(!headers.contains(choose), "{label}: {headers}");
        let wanted = [&link, &preferences].map(|link| format!("href=\"{link}\""));
        let found = wanted.map(|link| email.html.matches(&link).count());
        assert_eq!(found, [1, 1], "{label}: {}", email.html);
        let is_own = |line: &&str| own.iter().any(|own| line.contains(own));
        let lines: Vec<&str> = email.text.lines().filter(is_own).collect();
        assert_eq!(lines, [preferences.as_str(), &link], "{label}: {}", email.text);
        check_content(label, email);
    }
}

/// Checks that readers see the hostile content as it was written, although it was escaped.
fn check_content(label: &str, email: &Received) {
    let html = email.html.replace('\u{2060}', "");
    let html = [("&#37;", "%"), ("&#123;", "{"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")]
        .iter()
        .fold(html, |html, (coded, plain)| html.replace(coded, plain));
    let text = email.text.replace('\u{2060}', "");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (n, word) in HOSTILE.iter().enumerate() {
        for written in [
            format!("https://evil.example/{n}?u={word}"),
            format!("Title {word}"),
            format!("By {word}"),
        ] {
            assert!(html.contains(&written), "{label}: {written} in {html}");
            assert!(text.contains(&written), "{label}: {written} in {text}");
        }
    }
}
