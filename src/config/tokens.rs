//! The section `[tokens]`: the keys that verify user tokens.
//!
//! Each key fixes its algorithm, so that a token cannot choose one. Short secrets are rejected,
//! because a guessed secret gives access to every user's data (P8).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toml::{Table, Value};

use super::hidden::HIDDEN;
use super::reader::Reader;
use crate::domain::keys::Material;
use crate::domain::{Secret, TokenKey};

/// The section `[tokens]`, validated.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// The required audience of tokens.
    pub audience: String,
    /// The keys that may sign tokens. If there are none, all tokens are rejected.
    pub keys: Vec<TokenKey>,
}

/// The options of a key that name files.
pub(super) const FILES: [&str; 2] = ["secret_file", "public_key_file"];

/// The id of the key in `[tokens]` itself.
const DEFAULT: &str = "default";
/// HS256 needs a key at least as long as its hash, in bytes (RFC 7518, section 3.2).
const MIN_SECRET: usize = 32;
/// The DER prefix of the 32 bytes of an Ed25519 public key (RFC 8410, section 4).
const ED25519: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

pub(super) fn read(r: &mut Reader<'_>) -> Tokens {
    let alone = secret(r, "tokens");
    let alone = alone.map(|material| TokenKey {
        id: DEFAULT.to_owned(),
        material,
    });
    let listed = r.each_of_list("tokens.keys", key);
    let keys: Vec<TokenKey> = alone.into_iter().chain(listed).collect();
    for (index, key) in keys.iter().enumerate() {
        if keys[..index].iter().any(|other| other.id == key.id) {
            let what = format!("has two keys of the id {:?}; give each its own", key.id);
            r.problem("tokens.keys", what);
        }
    }
    Tokens {
        audience: r.string("tokens.audience"),
        keys,
    }
}

fn key(r: &mut Reader<'_>, path: &str) -> Option<TokenKey> {
    let option = |name: &str| format!("{path}.{name}");
    let id = r.string(&option("id"));
    let algorithm = r.string(&option("algorithm"));
    // Read both, so that an option of the other algorithm is reported as such.
    let secret = secret(r, path);
    let public = r.optional(&option("public_key_file"));
    let material = match (algorithm.as_str(), secret, public) {
        ("HS256", secret, None) => {
            let is_told = [option("secret"), option("secret_file")]
                .iter()
                .any(|option| r.is_wrong(option));
            if secret.is_none() && !is_told {
                r.problem(
                    &option("secret"),
                    "is missing: HS256 needs it, or secret_file",
                );
            }
            secret?
        }
        ("EdDSA", None, Some(file)) => {
            Material::EdDsa(public_key(r, &option("public_key_file"), &file)?)
        }
        ("EdDSA", None, None) => {
            r.problem(&option("public_key_file"), "is missing: EdDSA needs it");
            return None;
        }
        ("HS256", ..) => {
            let what = "is of EdDSA, and the algorithm is HS256; leave one of the two out";
            r.problem(&option("public_key_file"), what);
            return None;
        }
        ("EdDSA", ..) => {
            let what = "is of HS256, and the algorithm is EdDSA; leave one of the two out";
            r.problem(&option("secret"), what);
            return None;
        }
        (other, ..) => {
            if !other.is_empty() {
                let what = format!("{other:?} is not HS256 or EdDSA");
                r.problem(&option("algorithm"), what);
            }
            return None;
        }
    };
    Some(TokenKey { id, material })
}

fn secret(r: &mut Reader<'_>, path: &str) -> Option<Material> {
    let option = format!("{path}.secret");
    let secret = r.secret(&option, &format!("{option}_file"))?;
    if secret.len() < MIN_SECRET {
        let what = format!(
            "is shorter than {MIN_SECRET} characters, and could be guessed by anybody who has a token; make one with: openssl rand -hex 32"
        );
        r.problem(&option, what);
    }
    Some(Material::Hs256(Secret::new(secret)))
}

fn public_key(r: &mut Reader<'_>, option: &str, file: &str) -> Option<[u8; 32]> {
    let key = ed25519(&r.key_file(option, file)?);
    if key.is_none() {
        let what = format!("{file} is not the PEM of an Ed25519 public key (BEGIN PUBLIC KEY)");
        r.problem(option, what);
    }
    key
}

/// Returns the key in a PEM (RFC 7468): SubjectPublicKeyInfo in base64, between two lines.
fn ed25519(pem: &str) -> Option<[u8; 32]> {
    let (_, rest) = pem.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (body, _) = rest.split_once("-----END PUBLIC KEY-----")?;
    let body: String = body.split_ascii_whitespace().collect();
    let der = STANDARD.decode(body).ok()?;
    der.strip_prefix(&ED25519)?.try_into().ok()
}

pub(super) fn keys(table: &mut Table) -> impl Iterator<Item = &mut Table> {
    let keys = table
        .get_mut("tokens")
        .and_then(|section| section.get_mut("keys"));
    let keys = keys.and_then(Value::as_array_mut).into_iter().flatten();
    keys.filter_map(Value::as_table_mut)
}

/// Redacts the secrets that are set.
pub(super) fn redact(table: &mut Table) {
    let hide = |holder: &mut Table| match holder.get_mut("secret") {
        Some(secret) if secret.as_str() != Some("") => *secret = HIDDEN.into(),
        _ => {}
    };
    if let Some(section) = table.get_mut("tokens").and_then(Value::as_table_mut) {
        hide(section);
    }
    keys(table).for_each(hide);
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Sources};
    use super::*;

    const SECRET: &str = "a-secret-that-only-these-tests-have";

    /// The example of RFC 8410, section 10.1.
    const PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
        -----END PUBLIC KEY-----\n";

    #[test]
    fn keys_are_read_with_their_algorithms_and_secrets_are_not_printed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidings.toml");
        std::fs::write(folder.path().join("new.pem"), PEM).unwrap();
        std::fs::write(folder.path().join("alone"), format!("{SECRET}-alone\n")).unwrap();
        let text = format!(
            "[tokens]\nsecret_file = \"alone\"\n[[tokens.keys]]\nid = \"old\"\nalgorithm = \"HS256\"\nsecret = \"{SECRET}\"\n\
             [[tokens.keys]]\nid = \"new\"\nalgorithm = \"EdDSA\"\npublic_key_file = \"new.pem\"\n"
        );
        std::fs::write(&file, text).unwrap();

        let config = Config::load(&Sources {
            file: Some(file.clone()),
            ..Sources::default()
        })
        .unwrap();

        let keys = &config.tokens.keys;
        let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        assert_eq!(ids, ["default", "old", "new"]);
        let hs256 = |secret: &str| Material::Hs256(Secret::new(secret));
        assert_eq!(keys[0].material, hs256(&format!("{SECRET}-alone")));
        assert_eq!(keys[1].material, hs256(SECRET));
        assert!(matches!(
            keys[2].material,
            Material::EdDsa([0x19, 0xbf, ..])
        ));
        let printed = format!("{config:?}{}", config.redacted());
        assert!(
            printed.contains("\"old\"") && !printed.contains(SECRET),
            "{printed}"
        );
        assert_eq!(config.secret_files, [folder.path().join("alone"), file]);
    }

    #[test]
    fn a_problem_of_a_key_is_reported_with_its_index() {
        let problems = |keys: &str| Config::parse(keys).unwrap_err().to_string();
        let key = |options: &str| format!("[[tokens.keys]]\nid = \"a\"\n{options}\n");
        let sound = format!("algorithm = \"HS256\"\nsecret = \"{SECRET}\"");

        for (text, expected) in [
            (
                key("secret = \"x\""),
                "tokens.keys.1.algorithm: must not be empty",
            ),
            (
                key("algorithm = \"none\""),
                "tokens.keys.1.algorithm: \"none\" is not HS256 or EdDSA",
            ),
            (
                key("algorithm = \"HS256\""),
                "tokens.keys.1.secret: is missing",
            ),
            (
                key("algorithm = \"HS256\"\nsecret = \"short\""),
                "tokens.keys.1.secret: is shorter than 32",
            ),
            (
                key("algorithm = \"EdDSA\""),
                "tokens.keys.1.public_key_file: is missing",
            ),
            (
                key(&format!("{sound}\npublic_key_file = \"x\"")),
                "tokens.keys.1.public_key_file: is of EdDSA",
            ),
            (
                key("algorithm = \"EdDSA\"\npublic_key_file = \"/none\""),
                "tokens.keys.1.public_key_file: /none cannot be read",
            ),
            (
                key(&format!("{sound}\ncolor = \"red\"")),
                "tokens.keys.1.color: is not an option",
            ),
            (
                key(&sound).repeat(2),
                "tokens.keys: has two keys of the id \"a\"",
            ),
            (
                "[tokens]\nkeys = [1]".into(),
                "tokens.keys: is of type array and no list of tables",
            ),
            (
                "[tokens]\nsecret = \"short\"".into(),
                "tokens.secret: is shorter than 32",
            ),
            (
                "[tokens]\naudience = \"\"".into(),
                "tokens.audience: must not be empty",
            ),
            (
                "[server]\ncors_origins = [\"app.example\"]".into(),
                "server.cors_origins: \"app.example\" is no origin",
            ),
            (
                "[server]\ncors_origins = [\"*\", \"https://a.example\"]".into(),
                "server.cors_origins: holds \"*\" beside others",
            ),
            (
                "[server]\nrate_limit_key = -1".into(),
                "server.rate_limit_key: -1 is not a whole number",
            ),
        ] {
            let reported = problems(&text);
            assert!(reported.contains(expected), "{expected} in {reported}");
        }
    }

    #[test]
    fn a_pem_of_another_key_type_is_rejected() {
        assert!(ed25519(PEM).is_some());
        assert!(ed25519(&PEM.replace("PUBLIC", "PRIVATE")).is_none());
        assert!(ed25519(&PEM.replace("MCow", "MCox")).is_none());
        assert!(ed25519(&PEM.replace("ZuE=", "Zg==")).is_none());
        assert!(ed25519("").is_none());
    }
}
