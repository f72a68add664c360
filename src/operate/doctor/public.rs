//! Checks the public pages from outside, and one-click unsubscribe (RFC 8058) as a mailbox provider
//! uses it.
//!
//! The test link belongs to a user that cannot exist, so it unsubscribes no one. A forged link is
//! tested too, because a page that accepts every request would otherwise pass.

use super::{Doctor, Finding, LEFT, Outside, chain};
use crate::operate::probe::Heard;

const PAGES: &str = "public pages";
const ONE_CLICK: &str = "one-click";

/// The body that mailbox providers post.
const CLICK: &str = "List-Unsubscribe=One-Click";

impl Doctor {
    pub(super) async fn public_face(&self) -> Vec<Finding> {
        let unchecked = |why: &str| [PAGES, ONE_CLICK].map(|check| Finding::unchecked(check, why));
        let Some(url) = &self.config.server.public_url else {
            return unchecked("server.public_url is empty").to_vec();
        };
        if self.look.outside == Outside::Leave {
            return unchecked(LEFT).to_vec();
        }
        let web = match &self.web {
            Ok(web) => web,
            Err(why) => return unchecked(why).to_vec(),
        };
        let silent = |reason| Heard::Silent { reason };
        let health = format!("{url}/healthz");
        let page = async { judge_page(url, self.within(web.get(&health), silent).await) };
        let click = async {
            let Some(links) = &self.links else {
                return Finding::unchecked(ONE_CLICK, "links cannot be made without the database");
            };
            let made = async {
                let made = links.probe(self.clock.now()).await;
                made.map_err(|error| chain(&error))
            };
            let probe = match self.within(made, Err).await {
                Ok(Some(probe)) => probe,
                Ok(None) => return Finding::unchecked(ONE_CLICK, "server.public_url is empty"),
                Err(why) => return Finding::unchecked(ONE_CLICK, why),
            };
            let (genuine, forged) = futures::join!(
                self.within(web.post(&probe.genuine, CLICK), silent),
                self.within(web.post(&probe.forged, CLICK), silent),
            );
            judge_click(genuine, &forged)
        };
        let (page, click) = futures::join!(page, click);
        vec![page, click]
    }
}

/// The finding for a request without a response.
fn unanswered(check: &'static str, heard: Heard) -> Finding {
    match heard {
        Heard::Refused { reason } => Finding::error(
            check,
            format!("nothing listens at server.public_url ({reason})"),
            "start `tidings serve`, and the proxy in front of it",
        ),
        Heard::Untrusted { reason } => Finding::error(
            check,
            format!("the connection to server.public_url cannot be trusted ({reason})"),
            "give the proxy a valid certificate for that name",
        ),
        Heard::Silent { reason } => Finding::unchecked(
            check,
            format!("server.public_url was not reached from here ({reason})"),
        ),
        Heard::Answered { status, .. } => Finding::unchecked(check, format!("answered {status}")),
    }
}

fn judge_page(url: &str, heard: Heard) -> Finding {
    let Heard::Answered {
        status,
        location,
        body,
    } = heard
    else {
        return unanswered(PAGES, heard);
    };
    match status {
        200 if body.contains("\"status\":\"ok\"") => Finding::ok(PAGES, format!("{url} answers")),
        300..=399 => Finding::error(
            PAGES,
            format!("{url} sends on to {}", location.unwrap_or_default()),
            "set server.public_url to where it leads",
        ),
        _ => Finding::warning(
            PAGES,
            format!("{url}/healthz answers {status}, but not as `tidings serve` does"),
            "see where the proxy passes it to; it is enough if it passes on what is below /u/ and /hooks/",
        ),
    }
}

/// Compares the responses to a valid link and to a forged one.
fn judge_click(genuine: Heard, forged: &Heard) -> Finding {
    let Heard::Answered {
        status, location, ..
    } = genuine
    else {
        return unanswered(ONE_CLICK, genuine);
    };
    let error = |found: String, advice: &str| Finding::error(ONE_CLICK, found, advice);
    let says_yes = |heard: &Heard| {
        matches!(
            heard,
            Heard::Answered {
                status: 200..=299,
                ..
            }
        )
    };
    match status {
        200..=299 if says_yes(forged) => error(
            "a link that is not ours was taken as well, so it is not tidings that answers".into(),
            "let the proxy pass what is below /u/ on to `tidings serve`",
        ),
        200..=299 => Finding::ok(
            ONE_CLICK,
            "a click with nobody's link was taken, and a forged one was not",
        ),
        300..=399 => error(
            format!(
                "it sends on to {}, where no mailbox provider follows (RFC 8058, section 3.1)",
                location.unwrap_or_default()
            ),
            "set server.public_url to where it leads, or let the proxy answer at once",
        ),
        401 | 403 | 407 => error(
            format!(
                "it answers {status}: something in front of tidings wants a login or takes us for a robot"
            ),
            "let what is below /u/ through to `tidings serve` without a login or a check",
        ),
        404 | 410 => error(
            format!("our link is not known there ({status})"),
            "let `serve` run with the same store and server.link_secret as this command, and the proxy pass on what is below /u/",
        ),
        405 => error(
            "something in front of tidings lets no POST through (405)".into(),
            "let the proxy pass on POST to what is below /u/",
        ),
        503 => error(
            "`serve` cannot reach its records there, or does not run (503)".into(),
            "look at the log of `tidings serve` and of the proxy",
        ),
        other => error(
            format!("it answers {other}"),
            "look at the log of `tidings serve` and of the proxy",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    fn answered(status: u16, location: Option<&str>) -> Heard {
        Heard::Answered {
            status,
            location: location.map(str::to_owned),
            body: String::new(),
        }
    }

    #[test]
    fn one_click_must_succeed_directly_and_reject_forged_links() {
        for (genuine, forged, expected, says) in [
            (200, 404, Verdict::Ok, "taken"),
            (200, 200, Verdict::Error, "not tidings"),
            (302, 302, Verdict::Error, "https://www.art.example"),
            (403, 403, Verdict::Error, "login"),
            (404, 404, Verdict::Error, "not known"),
            (405, 405, Verdict::Error, "POST"),
            (503, 503, Verdict::Error, "503"),
            (418, 418, Verdict::Error, "418"),
        ] {
            let to = Some("https://www.art.example");
            let found = judge_click(answered(genuine, to), &answered(forged, to));
            assert_eq!(found.verdict, expected, "{found:?}");
            assert!(found.found.contains(says), "{found:?}");
        }
    }

    #[test]
    fn an_unreachable_server_is_reported_with_the_reason() {
        let reason = || "why".to_owned();
        for (response, expected) in [
            (Heard::Refused { reason: reason() }, Verdict::Error),
            (Heard::Untrusted { reason: reason() }, Verdict::Error),
            (Heard::Silent { reason: reason() }, Verdict::Unchecked),
        ] {
            let forged = answered(404, None);
            assert_eq!(judge_click(response.clone(), &forged).verdict, expected);
            assert_eq!(
                judge_page("https://art.example", response).verdict,
                expected
            );
        }
    }

    #[test]
    fn a_foreign_page_causes_a_warning_and_a_redirect_an_error() {
        let ours = Heard::Answered {
            status: 200,
            location: None,
            body: "{\"status\":\"ok\"}".into(),
        };
        for (response, expected) in [
            (ours, Verdict::Ok),
            (answered(200, None), Verdict::Warning),
            (answered(404, None), Verdict::Warning),
            (
                answered(301, Some("https://www.art.example")),
                Verdict::Error,
            ),
        ] {
            assert_eq!(
                judge_page("https://art.example", response).verdict,
                expected
            );
        }
    }
}
