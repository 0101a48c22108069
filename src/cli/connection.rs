//! Finding the service and the key: what was typed, then the environment, then the embedded service.

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::arguments::Connect;
use super::failure::{Exit, Failure};
use crate::settings::key_from_environment;

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

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
    /// The whole text behind `Bearer `.
    pub(super) key: SecretString,
}

impl Connection {
    /// Works out address and key; says what to pass when one is missing.
    pub(super) fn find(connect: &Connect, prefer: Prefer) -> Result<Self, Failure> {
        let url = match &connect.url {
            Some(url) => url.clone(),
            None => embedded_url(&connect.data_dir)?.unwrap_or_else(|| DEFAULT_URL.to_owned()),
        };
        let key = connect.key.clone().or_else(|| key_of_environment(prefer)).ok_or_else(|| {
            Failure::new("no API key was given")
                .exit(Exit::Usage)
                .remedy("pass --key, or set TOLLGATE_KEY or TOLLGATE_ADMIN_KEY; `tollgate up` prints the first admin key once")
        })?;
        Ok(Self { url: checked_url(&url)?, key: SecretString::from(key.trim().to_owned()) })
    }
}

fn key_of_environment(prefer: Prefer) -> Option<String> {
    let names = match prefer {
        Prefer::Service => ["TOLLGATE_KEY", "TOLLGATE_ADMIN_KEY"],
        Prefer::Admin => ["TOLLGATE_ADMIN_KEY", "TOLLGATE_KEY"],
    };
    key_from_environment(&names).map(|key| key.expose_secret().to_owned())
}

#[derive(Deserialize)]
struct ServiceFile {
    url: String,
}

/// The address that a running embedded service has left in its directory.
fn embedded_url(data_dir: &Path) -> Result<Option<String>, Failure> {
    let path = data_dir.join("service.json");
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
    fn a_running_embedded_service_is_found_by_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(embedded_url(directory.path()), Ok(None));
        std::fs::write(directory.path().join("service.json"), r#"{"url":"http://127.0.0.1:4711","pid":1}"#)
            .unwrap();
        assert_eq!(embedded_url(directory.path()), Ok(Some("http://127.0.0.1:4711".into())));
        std::fs::write(directory.path().join("service.json"), "oops").unwrap();
        assert!(embedded_url(directory.path()).is_err());
    }
}
