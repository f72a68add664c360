//! Redacts secrets in values that are shown: in problems, `tidings config` and `tidings doctor`.
//!
//! Secret options are never shown (P8). URLs are shown without user, password and parameters. A
//! malformed URL is treated like the one it was meant to be. Start with [`redact_url`] and
//! [`is_secret`].

/// The text that replaces a secret.
pub(super) const HIDDEN: &str = "(hidden)";

/// Returns an option's value as a problem may show it.
pub(super) fn format_value(option: &str, text: &str) -> String {
    let name = option.rsplit('.').next().unwrap_or(option);
    if option == "store" || name.ends_with("url") || name == "logo" {
        return format!("{:?}", redact_url(text));
    }
    if is_secret(option) { HIDDEN.to_owned() } else { format!("{text:?}") }
}

/// Returns whether an option is secret. Batch keys are in other sections; they are names, not
/// secrets.
pub(super) fn is_secret(option: &str) -> bool {
    let brand_option = option.strip_prefix("brands.").and_then(|rest| rest.split_once('.'));
    let option = brand_option.map_or(option, |(_, option)| option);
    let Some((section, name)) = option.split_once('.') else {
        return false;
    };
    let endings = ["key", "secret", "password", "user"];
    // The rate limit is a number.
    option != "server.rate_limit_key"
        && ["server", "mail", "hooks", "tokens"].contains(&section)
        && endings.iter().any(|ending| name.ends_with(ending))
}

/// Returns whether a URL of a store may contain a password or a token.
pub(super) fn has_secret(url: &str) -> bool {
    let url = url.to_ascii_lowercase();
    ["@", "password", "token"].iter().any(|part| url.contains(part))
}

/// Returns a URL without its secrets: `mongodb://(hidden)@db.example/tidings?(hidden)`. Other text
/// may be a malformed URL with a password. It is hidden from its first colon on, or whole if it
/// contains an @.
pub(super) fn redact_url(text: &str) -> String {
    if text.starts_with("sqlite:") && !text.contains('@') {
        return text.to_owned();
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text.split_once(':') {
            Some((scheme, _)) => format!("{scheme}:{HIDDEN}"),
            None if text.contains('@') => HIDDEN.to_owned(),
            None => text.to_owned(),
        };
    };
    // A password may contain an unencoded @, slash or question mark.
    let (user, location) = match rest.rsplit_once('@') {
        // The last @ may be in a parameter, so that no host follows it.
        Some((before, _)) if before.contains('?') => return format!("{scheme}://{HIDDEN}"),
        Some((_, location)) => ("(hidden)@", location),
        None => ("", rest),
    };
    let (authority_and_path, parameters) = match location.split_once('?') {
        Some((authority_and_path, _)) => (authority_and_path, "?(hidden)"),
        None => (location, ""),
    };
    let (hosts, path) = match authority_and_path.split_once('/') {
        Some((hosts, path)) => (hosts, format!("/{path}")),
        None => (authority_and_path, String::new()),
    };
    let hosts: Vec<String> = hosts.split(',').map(redact_host).collect();
    format!("{scheme}://{user}{}{path}{parameters}", hosts.join(","))
}

/// Returns a host with its port. Text that is not a port number may be a password, and is hidden.
fn redact_host(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') && port.parse::<u16>().is_err() => {
            format!("{host}:{HIDDEN}")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_printed_without_secrets() {
        for (text, expected) in [
            ("sqlite:tidings.db", "sqlite:tidings.db"),
            ("mongodb://localhost:27017/t", "mongodb://localhost:27017/t"),
            (
                "mongodb://a:b@h1:1,h2:2/t?replicaSet=rs0&w=2",
                "mongodb://(hidden)@h1:1,h2:2/t?(hidden)",
            ),
            ("mongodb://a:p@ss/w@h/t", "mongodb://(hidden)@h/t"),
            ("mongodb://a:b/t", "mongodb://a:(hidden)/t"),
            ("mongodb://h/t?tlsCertificateKeyFilePassword=x&tls=true", "mongodb://h/t?(hidden)"),
            ("mongodb://h/t?authMechanismProperties=A:b@c", "mongodb://(hidden)"),
            ("mongdb://a:b@h/t", "mongdb://(hidden)@h/t"),
            ("mongodb://a:b?c@h/t", "mongodb://(hidden)"),
            ("mongodb://a:b/c?d@h/t?w=2", "mongodb://(hidden)"),
            ("mongodb://a:b?c=d@h/t", "mongodb://(hidden)"),
            ("mongodb://h/t?other=b@c", "mongodb://(hidden)"),
            ("mongodb://a:b?c", "mongodb://a:(hidden)?(hidden)"),
            ("mongodb:/a:b@h/t", "mongodb:(hidden)"),
            ("a:b@h", "a:(hidden)"),
            ("b@h", "(hidden)"),
            ("https://a:b@[::1]:8443/v3", "https://(hidden)@[::1]:8443/v3"),
            ("https://[::1]/v3", "https://[::1]/v3"),
            ("tidings.db", "tidings.db"),
        ] {
            assert_eq!(redact_url(text), expected);
        }
    }

    #[test]
    fn a_secret_option_is_not_printed() {
        for option in [
            "mail.key",
            "server.link_secret",
            "mail.smtp_user",
            "hooks.sendgrid_public_key",
            "tokens.keys.a.secret",
            "brands.acme.mail.key",
        ] {
            assert_eq!(format_value(option, "hunter2"), "(hidden)", "{option}");
        }
        assert_eq!(format_value("mail.url", "ftp://a:b@h"), "\"ftp://(hidden)@h\"");
        assert_eq!(format_value("server.rate_limit_key", "0"), "\"0\"");
        assert_eq!(format_value("digest.weekday", "funday"), "\"funday\"");
    }
}
