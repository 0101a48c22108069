//! Finds the service and the key: from the arguments, then the configuration, then the embedded service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::arguments::Connect;
use super::failure::{Exit, Failure};
use crate::app::{SERVICE_FILE, Target, say_installation};
use crate::embedded::Embedded;
use crate::settings::{Named, key_from_environment};

/// Which key of the environment is taken first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefer {
    /// `TOLLGATE_KEY`: for calls that any service makes.
    Service,
    /// `TOLLGATE_ADMIN_KEY`: for what only an admin may.
    Admin,
}

/// Where a service is and the key it is called with.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Without a slash at its end.
    pub(super) url: String,
    /// The whole text after `Bearer `.
    pub(super) key: SecretString,
}

impl Connection {
    /// Works out address and key; says what to pass when one is missing, and which service it is.
    pub(super) fn find(connect: &Connect, config: Option<&Path>, prefer: Prefer) -> Result<Self, Failure> {
        let Service { url, data_dir } = Service::find(connect, config)?;
        let url = checked_url(&url)?;
        match data_dir {
            Some(data_dir) => {
                say_installation(format!("the service at {url} (embedded in {})", data_dir.display()));
            }
            None => say_installation(format!("the service at {url}")),
        }
        let key = connect.key.clone().or_else(|| key_of_environment(prefer)).ok_or_else(|| {
            Failure::new("no API key was given")
                .exit(Exit::Usage)
                .remedy("pass --key, or set TOLLGATE_KEY or TOLLGATE_ADMIN_KEY; `tollgate up` prints the first admin key once")
        })?;
        Ok(Self { url, key: SecretString::from(key.trim().to_owned()) })
    }
}

fn key_of_environment(prefer: Prefer) -> Option<String> {
    let names = match prefer {
        Prefer::Service => ["TOLLGATE_KEY", "TOLLGATE_ADMIN_KEY"],
        Prefer::Admin => ["TOLLGATE_ADMIN_KEY", "TOLLGATE_KEY"],
    };
    key_from_environment(&names).map(|key| key.expose_secret().to_owned())
}

/// Where a service is.
struct Service {
    url: String,
    /// The directory it runs in, if it is embedded.
    data_dir: Option<PathBuf>,
}

impl Service {
    fn find(connect: &Connect, config: Option<&Path>) -> Result<Self, Failure> {
        if let Some(url) = &connect.url {
            return Ok(Self { url: url.clone(), data_dir: None });
        }
        match Target::choose(connect.data_dir.clone(), config.map(Path::to_owned))? {
            Target::Embedded { data_dir, config: None } => Self::embedded(&data_dir),
            // Otherwise the file would be read for nothing.
            Target::Embedded { data_dir, config: Some(_) } => {
                let shown = data_dir.display();
                Err(Failure::new(format!(
                    "the service in `{shown}` says where it is, and a configuration file is named too"
                ))
                .exit(Exit::Usage)
                .remedy("leave out --config or --data-dir"))
            }
            Target::Config(config) => {
                let listen = Named::of_process(config.as_deref()).map_err(anyhow::Error::new)?.listen;
                Ok(Self { url: url_of(listen)?, data_dir: None })
            }
        }
    }

    /// The service that runs under `data_dir`.
    fn embedded(data_dir: &Path) -> Result<Self, Failure> {
        let shown = data_dir.display();
        let running = Embedded::running(data_dir).map_err(anyhow::Error::new)?;
        if running.is_none() {
            return Err(Failure::new(format!("no service runs in `{shown}`"))
                .exit(Exit::Unreachable)
                .remedy(format!(
                    "start it with `tollgate up --data-dir {shown}`, or name another with --url"
                )));
        }
        let url = announced_url(data_dir)?.ok_or_else(|| {
            Failure::new(format!("the service in `{shown}` is still starting"))
                .exit(Exit::Unreachable)
                .remedy("try again when it has said that it is ready")
        })?;
        let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.to_owned());
        Ok(Self { url, data_dir: Some(data_dir) })
    }
}

/// Where a service that listens there is called from the same machine.
fn url_of(listen: SocketAddr) -> Result<String, Failure> {
    if listen.port() == 0 {
        return Err(Failure::new("the configuration lets the service listen on any free port")
            .exit(Exit::Usage)
            .remedy("name it with --url"));
    }
    let host = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    Ok(format!("http://{}", SocketAddr::new(host, listen.port())))
}

#[derive(Deserialize)]
struct ServiceFile {
    url: String,
}

/// The address that a running embedded service has left in its directory.
fn announced_url(data_dir: &Path) -> Result<Option<String>, Failure> {
    let path = data_dir.join(SERVICE_FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::new(format!("{} cannot be read: {error}", path.display()))),
    };
    let file: ServiceFile = serde_json::from_str(&text).map_err(|error| {
        Failure::new(format!("{} does not name a service: {error}", path.display())).remedy("pass --url")
    })?;
    Ok(Some(file.url))
}

fn checked_url(text: &str) -> Result<String, Failure> {
    let wrong = |why: &str| {
        Failure::new(format!("--url `{text}` {why}"))
            .exit(Exit::Usage)
            .remedy("pass an address like http://127.0.0.1:8080")
    };
    let url = reqwest::Url::parse(text).map_err(|error| wrong(&format!("is not an address: {error}")))?;
    if url.scheme() != "http" {
        return Err(wrong("must start with http://; put a proxy in front for anything else"));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(wrong("must be an address alone, without credentials, query or fragment"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_addresses_are_taken() {
        assert_eq!(checked_url("http://127.0.0.1:8080/").unwrap(), "http://127.0.0.1:8080");
        for bad in ["", "127.0.0.1:8080", "https://a", "http://u:p@a", "http://a/?x=1", "http://a/#b"] {
            assert_eq!(checked_url(bad).unwrap_err().exit, Exit::Usage, "{bad:?}");
        }
    }

    #[test]
    fn a_service_that_listens_everywhere_is_called_on_the_loopback() {
        for (listen, url) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:80", "http://[::1]:80"),
            ("10.0.0.5:80", "http://10.0.0.5:80"),
        ] {
            assert_eq!(url_of(listen.parse().unwrap()).as_deref(), Ok(url));
        }
        assert_eq!(url_of("127.0.0.1:0".parse().unwrap()).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_running_embedded_service_is_found_by_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(announced_url(directory.path()), Ok(None));
        std::fs::write(directory.path().join("service.json"), r#"{"url":"http://127.0.0.1:4711","pid":1}"#)
            .unwrap();
        assert_eq!(announced_url(directory.path()), Ok(Some("http://127.0.0.1:4711".into())));
        std::fs::write(directory.path().join("service.json"), "oops").unwrap();
        assert!(announced_url(directory.path()).is_err());
    }
}
