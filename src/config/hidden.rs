//! Redacts secrets in values that are shown: in problems, `tidings config` and `tidings doctor`.
//!
//! Secret options are never shown (P8). URLs are shown without user and password, and only harmless
//! parameters keep their values. A malformed URL is treated like the one it was meant to be. Start
//! with [`address`] and [`is_secret`].

/// The text that replaces a secret.
pub(super) const HIDDEN: &str = "(hidden)";

/// MongoDB parameters with values that may be shown, in lower case.
const HARMLESS: &str = "appname authmechanism authsource compressors connecttimeoutms \
    directconnection heartbeatfrequencyms loadbalanced maxpoolsize minpoolsize readconcernlevel \
    readpreference replicaset retryreads retrywrites serverselectiontimeoutms ssl tls tlsinsecure w";

/// MongoDB parameters with values that may contain any character, in lower case.
const ANYTHING: &str = "authmechanismproperties proxypassword proxyusername tlscafile \
    tlscertificatekeyfile tlscertificatekeyfilepassword";

fn is_in(list: &str, name: &str) -> bool {
    list.split(' ')
        .any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns an option's value as a problem may show it.
pub(super) fn shown(option: &str, text: &str) -> String {
    let name = option.rsplit('.').next().unwrap_or(option);
    if option == "store" || name.ends_with("url") || name == "logo" {
        return format!("{:?}", address(text));
    }
    match is_secret(option) {
        true => HIDDEN.to_owned(),
        false => format!("{text:?}"),
    }
}

/// Returns whether an option is secret. Batch keys are in other sections; they are names, not
/// secrets.
pub(super) fn is_secret(option: &str) -> bool {
    let of_brand = option
        .strip_prefix("brands.")
        .and_then(|rest| rest.split_once('.'));
    let option = of_brand.map_or(option, |(_, option)| option);
    let Some((section, name)) = option.split_once('.') else {
        return false;
    };
    // A number.
    if option == "server.rate_limit_key" {
        return false;
    }
    let names = ["key", "secret", "password", "user", "session_token"];
    ["server", "mail", "hooks", "tokens"].contains(&section)
        && names.iter().any(|end| name.ends_with(end))
}

/// Returns a URL without its secrets: `mongodb://(hidden)@db.example/tidings?replicaSet=rs0`. Other
/// text may be a malformed URL with a password. It is hidden from its first colon on, or whole if
/// it contains an @.
pub(super) fn address(text: &str) -> String {
    if text
        .strip_prefix("sqlite:")
        .is_some_and(|path| !path.contains('@'))
    {
        return text.to_owned();
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text.split_once(':') {
            Some((scheme, _)) => format!("{scheme}:{HIDDEN}"),
            None if text.contains('@') => HIDDEN.to_owned(),
            None => text.to_owned(),
        };
    };
    let (place, parameters) = match parameters_begin(rest) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        // The rest may be part of a password, or the value of an unknown parameter.
        None if is_doubtful(rest) => return format!("{scheme}://{HIDDEN}"),
        None => (rest, None),
    };
    // A password may contain an unencoded @ or slash.
    let (user, place) = match place.rsplit_once('@') {
        Some((_, place)) => ("(hidden)@", place),
        None => ("", place),
    };
    let (hosts, path) = match place.split_once('/') {
        Some((hosts, path)) => (hosts, format!("/{path}")),
        None => (place, String::new()),
    };
    let hosts: Vec<String> = hosts.split(',').map(host).collect();
    let parameters = parameters.map(|all| {
        let all: Vec<String> = all.split('&').map(parameter).collect();
        format!("?{}", all.join("&"))
    });
    let hosts = hosts.join(",");
    format!(
        "{scheme}://{user}{hosts}{path}{}",
        parameters.unwrap_or_default()
    )
}

/// Returns the position of the question mark that starts the parameters. It is the first without an
/// @ after it, except in values that may contain one. Earlier ones belong to an unencoded password.
fn parameters_begin(rest: &str) -> Option<usize> {
    let ends = |parameters: &str| {
        parameters.split('&').all(|one| {
            let name = one.split('=').next().unwrap_or_default();
            !one.contains('@') || is_in(ANYTHING, name)
        })
    };
    let marks = rest.match_indices('?').map(|(at, _)| at);
    marks.into_iter().find(|at| ends(&rest[at + 1..]))
}

/// Returns whether the last @ may be in a parameter's value, so that no host follows it.
fn is_doubtful(rest: &str) -> bool {
    let before = rest.rsplit_once('@').map_or("", |(before, _)| before);
    before
        .split_once('?')
        .is_some_and(|(_, behind)| behind.contains('='))
}

/// Returns a host with its port. Text that is not a port number may be a password, and is hidden.
fn host(text: &str) -> String {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') && port.parse::<u16>().is_err() => {
            format!("{host}:{HIDDEN}")
        }
        _ => text.to_owned(),
    }
}

fn parameter(text: &str) -> String {
    match text.split_once('=') {
        Some((name, _)) if !is_in(HARMLESS, name) => {
            format!("{name}={HIDDEN}")
        }
        None if !text.is_empty() => HIDDEN.to_owned(),
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
                "mongodb://(hidden)@h1:1,h2:2/t?replicaSet=rs0&w=2",
            ),
            ("mongodb://a:p@ss/w@h/t", "mongodb://(hidden)@h/t"),
            ("mongodb://a:b/t", "mongodb://a:(hidden)/t"),
            (
                "mongodb://h/t?tlsCertificateKeyFilePassword=x&tls=true",
                "mongodb://h/t?tlsCertificateKeyFilePassword=(hidden)&tls=true",
            ),
            (
                "mongodb://h/t?authMechanismProperties=A:b@c",
                "mongodb://h/t?authMechanismProperties=(hidden)",
            ),
            ("mongdb://a:b@h/t", "mongdb://(hidden)@h/t"),
            ("mongodb://a:b?c@h/t", "mongodb://(hidden)@h/t"),
            ("mongodb://a:b/c?d@h/t?w=2", "mongodb://(hidden)@h/t?w=2"),
            (
                "mongodb://a:b?c@h/t?authMechanismProperties=A:b@c",
                "mongodb://(hidden)@h/t?authMechanismProperties=(hidden)",
            ),
            ("mongodb://a:b?c=d@h/t", "mongodb://(hidden)"),
            ("mongodb://h/t?other=b@c", "mongodb://(hidden)"),
            ("mongodb://a:b?c", "mongodb://a:(hidden)?(hidden)"),
            ("mongodb:/a:b@h/t", "mongodb:(hidden)"),
            ("a:b@h", "a:(hidden)"),
            ("b@h", "(hidden)"),
            (
                "https://a:b@[::1]:8443/v3",
                "https://(hidden)@[::1]:8443/v3",
            ),
            ("https://[::1]/v3", "https://[::1]/v3"),
            ("tidings.db", "tidings.db"),
        ] {
            assert_eq!(address(text), expected);
        }
    }

    #[test]
    fn a_secret_option_is_not_printed() {
        for option in [
            "mail.key",
            "server.link_secret",
            "mail.smtp_user",
            "hooks.sendgrid_public_key",
            "tokens.keys.1.secret",
            "brands.acme.mail.key",
        ] {
            assert_eq!(shown(option, "hunter2"), "(hidden)", "{option}");
        }
        assert_eq!(shown("mail.url", "ftp://a:b@h"), "\"ftp://(hidden)@h\"");
        assert_eq!(shown("server.rate_limit_key", "0"), "\"0\"");
        assert_eq!(shown("digest.weekday", "funday"), "\"funday\"");
    }
}
