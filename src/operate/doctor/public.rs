//! Checks the public pages from outside, and one-click unsubscribe (RFC 8058) as a mailbox provider
//! uses it.
//!
//! The test link belongs to a user that cannot exist, so it unsubscribes no one. A forged link is
//! tested too, because a page that accepts every request would otherwise pass.

use futures::TryFutureExt;

use super::{Doctor, Finding, SKIPPED};
use crate::domain::error_chain::error_chain;
use crate::operate::dns_and_web::{WebResponse, WebResult, unreached};

const PAGES: &str = "public pages";
const ONE_CLICK: &str = "one-click";

/// The body that mailbox providers post.
const CLICK: &str = "List-Unsubscribe=One-Click";

impl Doctor {
    pub(super) async fn public_pages(&self) -> Vec<Finding> {
        let unchecked = |why: &str| {
            [PAGES, ONE_CLICK].map(|check| Finding::unchecked(why).for_check(check)).to_vec()
        };
        let (url, web) = match (&self.config.server.public_url, &self.web) {
            (None, _) => return unchecked("server.public_url is empty"),
            _ if self.options.offline => return unchecked(SKIPPED),
            (_, Err(why)) => return unchecked(why),
            (Some(url), Ok(web)) => (url, web),
        };
        let late = |reason: String| Err(unreached(&reason));
        let health = format!("{url}/healthz");
        let page = async {
            let response = self.within(web.get(&health), late).await;
            response.map_or_else(|finding| finding, |response| judge_page(url, response))
        };
        let click = async {
            let Some(links) = &self.links else {
                return Finding::unchecked("links cannot be made without the database");
            };
            let probe = links.probe_links(self.clock.now()).map_err(|error| error_chain(&error));
            let (valid, forged) = match self.within(probe, Err).await {
                Ok(Some(links)) => links,
                Ok(None) => return Finding::unchecked("server.public_url is empty"),
                Err(why) => return Finding::unchecked(why),
            };
            let (genuine, forged) = futures::join!(
                self.within(web.post(&valid, CLICK), late),
                self.within(web.post(&forged, CLICK), late),
            );
            genuine.map_or_else(|finding| finding, |genuine| judge_click(genuine, &forged))
        };
        let (page, click) = futures::join!(page, click);
        vec![page.for_check(PAGES), click.for_check(ONE_CLICK)]
    }
}

fn judge_page(url: &str, response: WebResponse) -> Finding {
    let (status, location) = (response.status, response.location.unwrap_or_default());
    match status {
        200 if response.body.contains("\"status\":\"ok\"") => Finding::ok(format!("{url} answers")),
        300..=399 => {
            let found = format!("{url} sends on to {location}");
            Finding::error(found, "set server.public_url to where it leads")
        }
        _ => Finding::warning(
            format!("{url}/healthz answers {status}, but not as `tidings serve` does"),
            "see where the proxy passes it to; it is enough if it passes on what is below /u/ and /hooks/",
        ),
    }
}

/// Compares the responses to a valid link and to a forged one.
fn judge_click(genuine: WebResponse, forged: &WebResult) -> Finding {
    let (status, location) = (genuine.status, genuine.location.unwrap_or_default());
    let is_accepted = |response: &WebResponse| (200..300).contains(&response.status);
    let is_forged_accepted = forged.as_ref().is_ok_and(is_accepted);
    let see_log = "look at the log of `tidings serve` and of the proxy";
    match status {
        200..=299 if is_forged_accepted => Finding::error(
            "a forged link was accepted too, so it is not tidings that answers",
            "let the proxy pass what is below /u/ on to `tidings serve`",
        ),
        200..=299 => Finding::ok("a click on a test link was accepted, and a forged one was not"),
        300..=399 => Finding::error(
            format!(
                "it sends on to {location}, where no mailbox provider follows (RFC 8058, section 3.1)"
            ),
            "set server.public_url to where it leads, or let the proxy answer at once",
        ),
        401 | 403 | 407 => Finding::error(
            format!(
                "it answers {status}: something in front of tidings wants a login or blocks automated requests"
            ),
            "let what is below /u/ through to `tidings serve` without a login or a check",
        ),
        404 | 410 => Finding::error(
            format!("a valid link is unknown there ({status})"),
            "let `serve` run with the same store and server.link_secret as this command, and the proxy pass on what is below /u/",
        ),
        405 => Finding::error(
            "something in front of tidings rejects POST (405)",
            "let the proxy pass on POST to what is below /u/",
        ),
        503 => {
            Finding::error("`serve` cannot reach its records there, or does not run (503)", see_log)
        }
        other => Finding::error(format!("it answers {other}"), see_log),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::diagnosis::Severity;

    fn response(status: u16, location: Option<&str>) -> WebResponse {
        WebResponse { status, location: location.map(str::to_owned), body: String::new() }
    }

    #[test]
    fn one_click_must_succeed_directly_and_reject_forged_links() {
        for (genuine, forged, expected, part) in [
            (200, 404, Severity::Ok, "accepted"),
            (200, 200, Severity::Error, "not tidings"),
            (302, 302, Severity::Error, "https://www.art.example"),
            (403, 403, Severity::Error, "login"),
            (404, 404, Severity::Error, "is unknown"),
            (405, 405, Severity::Error, "POST"),
            (503, 503, Severity::Error, "503"),
            (418, 418, Severity::Error, "418"),
        ] {
            let to = Some("https://www.art.example");
            let found = judge_click(response(genuine, to), &Ok(response(forged, to)));
            assert_eq!(found.severity, expected, "{found:?}");
            assert!(found.result.contains(part), "{found:?}");
        }
    }

    #[test]
    fn a_foreign_page_causes_a_warning_and_a_redirect_an_error() {
        let ours = WebResponse { status: 200, location: None, body: "{\"status\":\"ok\"}".into() };
        for (page, expected) in [
            (ours, Severity::Ok),
            (response(200, None), Severity::Warning),
            (response(404, None), Severity::Warning),
            (response(301, Some("https://www.art.example")), Severity::Error),
        ] {
            assert_eq!(judge_page("https://art.example", page).severity, expected);
        }
    }
}
