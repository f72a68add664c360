//! The section `[tokens]`: the keys that verify the tokens of users.

use x509_parser::pem::parse_x509_pem;

use super::reader::TableReader;
use crate::domain::secrets::KeyMaterial;
use crate::domain::{Secret, TokenKey};

/// The section `[tokens]`, validated.
#[derive(Debug, Clone)]
pub struct TokenSettings {
    /// The required audience of tokens.
    pub audience: String,
    /// The keys that may sign tokens. If there are none, all tokens are rejected.
    pub keys: Vec<TokenKey>,
}

/// The shortest secret that signs user tokens, in bytes: the length of a hash (RFC 7518, section
/// 3.2).
const MIN_TOKEN_SECRET_BYTES: usize = 32;
/// The DER prefix of the 32 bytes of an Ed25519 public key (RFC 8410, section 4).
const ED25519_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

impl TokenSettings {
    /// Reads the section `[tokens]`. Adds a problem for each invalid value.
    pub(super) fn read(r: &mut TableReader<'_>) -> Self {
        let default_key = read_token_secret(r, "tokens")
            .map(|material| TokenKey { id: "default".to_owned(), material });
        let materials = r.each("tokens.keys", |r, _: &String, path| read_token_key(r, path));
        let named_keys: Vec<TokenKey> = materials
            .into_iter()
            .filter_map(|(id, material)| Some(TokenKey { id, material: material? }))
            .collect();
        if default_key.is_some() && named_keys.iter().any(|key| key.id == "default") {
            let problem = "has the id of the key tokens.secret; give it another";
            r.add_problem("tokens.keys.default", problem);
        }
        let keys = default_key.into_iter().chain(named_keys).collect();
        Self { audience: r.string("tokens.audience"), keys }
    }
}

/// Reads a key: either a secret (HS256), or the file of a public key (EdDSA).
fn read_token_key(r: &mut TableReader<'_>, path: &str) -> Option<KeyMaterial> {
    let option = |name: &str| format!("{path}.{name}");
    let (secret_option, public_option) = (option("secret"), option("public_key_file"));
    let secret = read_token_secret(r, path);
    match (secret, r.non_empty(&public_option)) {
        (Some(secret), None) => return Some(secret),
        (None, Some(file)) => {
            return read_public_key(r, &public_option, &file).map(KeyMaterial::EdDsa);
        }
        (Some(_), Some(_)) => {
            let problem = format!("cannot be set together with {secret_option}");
            r.add_problem(&public_option, problem);
        }
        // A secret that was rejected is not missing.
        (None, None) if r.has_problem(&secret_option) || r.has_problem(&option("secret_file")) => {}
        (None, None) => {
            let problem = "is missing; set it, secret_file or public_key_file";
            r.add_problem(&secret_option, problem);
        }
    }
    None
}

fn read_token_secret(r: &mut TableReader<'_>, path: &str) -> Option<KeyMaterial> {
    let option = format!("{path}.secret");
    let secret = r.secret(&option)?;
    if secret.len() < MIN_TOKEN_SECRET_BYTES {
        let problem = format!(
            "is shorter than {MIN_TOKEN_SECRET_BYTES} characters, and could be guessed by every owner of a token; make one with: openssl rand -hex 32"
        );
        r.add_problem(&option, problem);
    }
    Some(KeyMaterial::Hs256(Secret::new(secret)))
}

fn read_public_key(r: &mut TableReader<'_>, option: &str, file: &str) -> Option<[u8; 32]> {
    let key = parse_ed25519_key(&r.key_file(option, file)?);
    if key.is_none() {
        let problem = format!("{file} is not the PEM of an Ed25519 public key (BEGIN PUBLIC KEY)");
        r.add_problem(option, problem);
    }
    key
}

/// Returns the key in a PEM (RFC 7468): SubjectPublicKeyInfo in base64, between two lines.
fn parse_ed25519_key(text: &str) -> Option<[u8; 32]> {
    let (_, pem) = parse_x509_pem(text.as_bytes()).ok()?;
    let key = pem.contents.strip_prefix(&ED25519_PREFIX)?;
    key.try_into().ok().filter(|_| pem.label == "PUBLIC KEY")
}

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tests;
