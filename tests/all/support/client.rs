//! A client for the servers that tests start on loopback.

/// Installs a crypto provider first, because reqwest requires one even for plain HTTP.
pub fn client() -> reqwest::Client {
    // It fails if another test has installed it before, which does no harm.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}
