//! A client for the servers that tests start on loopback.

/// reqwest must be told whose cryptography it has, even where it needs none.
pub fn client() -> reqwest::Client {
    // Another test may have said so before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}
