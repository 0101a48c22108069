//! TLS to a server, whose certificate is checked.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::{NoAnswer, shown};
use crate::domain::webhook::{WebhookHost, WebhookUrl};

/// Makes TLS connections.
pub(super) struct Tls {
    /// None: those of the system.
    authorities: Option<RootCertStore>,
    /// Made at the first call: an installation that makes none reads no certificates.
    connector: OnceCell<TlsConnector>,
}

impl Tls {
    /// Trusts the system's certificate authorities.
    pub(super) fn of_system() -> Self {
        Self { authorities: None, connector: OnceCell::new() }
    }

    /// Trusts these alone.
    pub(super) fn of(authorities: RootCertStore) -> Self {
        Self { authorities: Some(authorities), connector: OnceCell::new() }
    }

    /// Makes the connection secure, if the server proves that it is the one that the address names.
    pub(super) async fn connect(
        &self,
        url: &WebhookUrl,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, NoAnswer> {
        let name = match url.host() {
            WebhookHost::Address(address) => ServerName::from(address),
            WebhookHost::Name(name) => ServerName::try_from(name.to_owned())
                .map_err(|_| NoAnswer::Unmade("the name can have no certificate".to_owned()))?,
        };
        let connector = self.connector.get_or_try_init(|| self.make()).await?;
        connector.connect(name, stream).await.map_err(|error| NoAnswer::Disconnected(shown(&error)))
    }

    async fn make(&self) -> Result<TlsConnector, NoAnswer> {
        let authorities = match &self.authorities {
            Some(given) => given.clone(),
            None => tokio::task::spawn_blocking(of_system)
                .await
                .map_err(|error| NoAnswer::Unmade(shown(&error)))?,
        };
        if authorities.is_empty() {
            return Err(NoAnswer::Unmade("this machine has no certificate authorities".to_owned()));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| NoAnswer::Unmade(shown(&error)))?
            .with_root_certificates(authorities)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// What of the system's store can be read.
fn of_system() -> RootCertStore {
    let mut authorities = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        tracing::warn!(%error, "a certificate authority of this machine cannot be read");
    }
    authorities.add_parsable_certificates(found.certs);
    authorities
}
