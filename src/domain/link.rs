//! Web addresses that an application gives for objects and actors.
//!
//! They are used in `href` and `src` of emails and feeds, so the URL parser of browsers checks
//! them. They are stored unchanged.

use url::Url;

use super::address::is_unseen;

/// Checks that a text is a web address that an email can contain.
///
/// # Errors
///
/// Says what is wrong with it, as the end of a sentence.
pub fn check(text: &str) -> Result<(), String> {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    let is_web = scheme.is_some_and(|scheme| {
        scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http")
    });
    if !is_web {
        return Err("does not begin with https:// or http://".into());
    }
    if text.chars().any(|c| c.is_control() || is_unseen(c)) || text.trim() != text {
        return Err("holds a character that cannot be seen".into());
    }
    let url = Url::parse(text).map_err(|error| format!("is not a web address: {error}"))?;
    let after = &text[url.scheme().len() + "://".len()..];
    let authority = after.split(['/', '?', '#', '\\']).next();
    if authority.is_none_or(|authority| authority.contains('@')) {
        return Err("holds a user or a password".into());
    }
    match url.port() {
        Some(0) => Err("has port 0".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_address_has_a_host_and_no_hidden_parts() {
        for text in [
            "https://example.org",
            "HTTPS://Example.ORG/Works?id=1#top",
            "http://127.0.0.1:8080/a b",
            "https://[::1]:8443/",
            "https://b\u{fc}cher.example/\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
            "https://example.org/@ada",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for (text, why) in [
            ("javascript:alert(1)", "does not begin"),
            ("ftp://example.org", "does not begin"),
            ("//example.org", "does not begin"),
            ("https:example.org", "does not begin"),
            (" https://example.org", "does not begin"),
            ("https://", "not a web address"),
            ("https://example.org:99999/", "not a web address"),
            ("https://example.org:x/", "not a web address"),
            ("https://exa<mple.org/", "not a web address"),
            ("https://example.org:0/", "port 0"),
            ("https://u:pw@example.org/", "user or a password"),
            ("https://@example.org/", "user or a password"),
            ("https://example.org\\@evil.example/ ", "cannot be seen"),
            ("https://example.org/a\nb", "cannot be seen"),
            ("https://example.org/\u{202e}gpj", "cannot be seen"),
            ("https://example.org/\u{200b}", "cannot be seen"),
        ] {
            let refused = check(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
