//! Where a webhook's receiver is.

use std::net::IpAddr;

use url::{Host, Position, Url};

const CHARACTERS_MAX: usize = 2_048;

/// The address of a receiver: https or plain http, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookUrl(Url);

/// The server that an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookHost<'a> {
    /// By its name.
    Name(&'a str),
    /// By its address.
    Address(IpAddr),
}

impl WebhookUrl {
    /// Reads the address of a new webhook. The error says what it must be.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.chars().count() > CHARACTERS_MAX {
            return Err("must be at most 2048 characters");
        }
        let read = Self::stored(text)?;
        // What is stored is what is sent: three characters for each byte of a letter that no URL has, such as `ü`.
        if read.as_str().len() > CHARACTERS_MAX {
            return Err("must be at most 2048 characters as it is sent, percent-encoded");
        }
        Ok(read)
    }

    /// Reads an address that is stored: earlier versions took longer ones. The error says what it must be.
    pub fn stored(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "must be a URL such as https://example.com/hooks")?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err("must begin with https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must have no user and no password");
        }
        if url.fragment().is_some() {
            return Err("must have no fragment");
        }
        if url.port() == Some(0) {
            return Err("must not name port 0");
        }
        Ok(Self(url))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it is reached by https.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The server; addresses in other notations, such as `0x7f.1`, are addresses too.
    pub fn host(&self) -> WebhookHost<'_> {
        match self.0.host() {
            Some(Host::Domain(name)) => WebhookHost::Name(name),
            Some(Host::Ipv4(address)) => WebhookHost::Address(address.into()),
            Some(Host::Ipv6(address)) => WebhookHost::Address(address.into()),
            // Neither https nor http can be without a host.
            None => WebhookHost::Name(""),
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// The server as a request names it, with a port that is not the usual one.
    pub fn authority(&self) -> &str {
        self.0.authority()
    }

    /// The path and the query.
    pub fn target(&self) -> &str {
        &self.0[Position::BeforePath..Position::AfterQuery]
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("")]
    #[case("example.com/hooks")]
    #[case("ftp://example.com/")]
    #[case("file:///etc/passwd")]
    #[case("https://")]
    #[case("https://user@example.com/")]
    #[case("https://:secret@example.com/")]
    #[case("https://example.com/#part")]
    #[case("https://example.com:0/")]
    #[case("https://exa mple.com/")]
    fn what_no_receiver_can_have_is_refused(#[case] text: &str) {
        assert!(WebhookUrl::parse(text).is_err(), "{text}");
    }

    #[test]
    fn an_address_has_a_length() {
        assert!(WebhookUrl::parse(&format!("https://example.com/{}", "a".repeat(2_048))).is_err());
    }

    #[test]
    fn the_length_of_an_address_is_that_of_what_is_stored_and_sent() {
        let with = |letters| format!("https://example.com/hook?d={}", "ü".repeat(letters));
        let longest = WebhookUrl::parse(&with(336)).unwrap();
        assert_eq!(
            (longest.as_str().len(), WebhookUrl::parse(longest.as_str())),
            (2_043, Ok(longest.clone()))
        );
        assert!(WebhookUrl::parse(&with(337)).is_err());
        let taken_before = WebhookUrl::stored(&with(400)).unwrap();
        assert_eq!(WebhookUrl::stored(taken_before.as_str()), Ok(taken_before.clone()));
    }

    #[rstest]
    #[case("http://127.0.0.1/", "127.0.0.1")]
    #[case("http://2130706433/", "127.0.0.1")]
    #[case("http://0x7f.1/", "127.0.0.1")]
    #[case("http://0177.0.0.1/", "127.0.0.1")]
    #[case("http://127.0.0.1./", "127.0.0.1")]
    #[case("http://①②⑦.0.0.1/", "127.0.0.1")]
    #[case("http://[::ffff:10.0.0.1]/", "::ffff:10.0.0.1")]
    fn every_notation_of_an_address_is_one(#[case] text: &str, #[case] address: IpAddr) {
        assert_eq!(WebhookUrl::parse(text).unwrap().host(), WebhookHost::Address(address));
    }

    #[test]
    fn a_request_gets_its_parts() {
        let url = WebhookUrl::parse("https://Example.com:8443/hooks?a=1").unwrap();
        assert_eq!(url.host(), WebhookHost::Name("example.com"));
        assert_eq!((url.port(), url.authority(), url.target()), (8443, "example.com:8443", "/hooks?a=1"));
        assert_eq!(WebhookUrl::parse("http://example.com").unwrap().target(), "/");
    }
}
