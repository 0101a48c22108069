//! Where a request came from: the address of its connection, or the one that trusted proxies forward for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

/// The most proxies in a row that are followed.
const HOPS_MAX: usize = 32;
/// A longer `Forwarded` line is not read.
const FORWARDED_BYTES_MAX: usize = 4 * 1024;

const FORWARDED: HeaderName = HeaderName::from_static("forwarded");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The source of `request`, through the proxies of `trusted` networks.
pub(super) fn of(request: &ServiceRequest, trusted: &[IpNet]) -> IpAddr {
    let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    through(peer.to_canonical(), request.headers(), trusted)
}

/// Only a trusted proxy's headers count. The proxy writes one of the two, and the caller may have written the other: if
/// both are there and differ, neither counts.
fn through(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let forwarded = lines(headers, &FORWARDED)
        .map(|lines| walk(peer, lines.flat_map(|line| forwarded_hops(line).into_iter().rev()), trusted));
    let x_forwarded = lines(headers, &X_FORWARDED_FOR)
        .map(|lines| walk(peer, lines.flat_map(|line| text(line).rsplit(',').map(address)), trusted));
    match (forwarded, x_forwarded) {
        (Some(one), Some(other)) if one != other => peer,
        (Some(source), _) | (None, Some(source)) => source,
        (None, None) => peer,
    }
}

/// Walks from the last hop back to the first one that is not a trusted proxy. An unreadable hop ends the walk at the
/// proxy that wrote it.
fn walk(peer: IpAddr, hops: impl Iterator<Item = Option<IpAddr>>, trusted: &[IpNet]) -> IpAddr {
    let mut source = peer;
    for hop in hops.take(HOPS_MAX) {
        let Some(address) = hop else { break };
        source = address;
        if !is_trusted(source, trusted) {
            break;
        }
    }
    source
}

fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

/// A header's lines, the last one first; none if it is absent.
fn lines<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Option<impl Iterator<Item = &'a HeaderValue> + use<'a>> {
    let lines: Vec<_> = headers.get_all(name).collect();
    (!lines.is_empty()).then(|| lines.into_iter().rev())
}

/// Bytes that are not text become an empty text, which is no address.
fn text(line: &HeaderValue) -> &str {
    line.to_str().unwrap_or_default()
}

/// An address with or without a port; an IPv6 address bare or in brackets.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches([' ', '\t']);
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let address = text.parse().ok().or_else(bracketed);
    address
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .map(|ip| ip.to_canonical())
}

/// The `for` addresses of the elements of a `Forwarded` line (RFC 7239); none for an element without an address, and a
/// single none for an unreadable line.
fn forwarded_hops(line: &HeaderValue) -> Vec<Option<IpAddr>> {
    let line = text(line);
    if line.len() > FORWARDED_BYTES_MAX {
        return vec![None];
    }
    elements(line).unwrap_or_else(|| vec![None])
}

fn elements(mut rest: &str) -> Option<Vec<Option<IpAddr>>> {
    let mut hops = Vec::new();
    loop {
        let (hop, after) = element(rest)?;
        hops.push(hop);
        if after.is_empty() {
            return Some(hops);
        }
        rest = after.strip_prefix(',')?;
    }
}

/// Parses pairs separated by semicolons, with at most one `for`; returns what follows.
fn element(mut rest: &str) -> Option<(Option<IpAddr>, &str)> {
    let mut is_for = None;
    loop {
        let (name, value) = rest.trim_start_matches([' ', '\t']).split_once('=')?;
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return None;
        }
        let (value, after) = quoted(value).unwrap_or_else(|| bare(value))?;
        if name.eq_ignore_ascii_case("for") && is_for.replace(address(&value)).is_some() {
            return None;
        }
        let after = after.trim_start_matches([' ', '\t']);
        match after.strip_prefix(';') {
            Some(next) => rest = next,
            None => return Some((is_for.flatten(), after)),
        }
    }
}

type Value<'a> = Option<(String, &'a str)>;

/// A value in quotes and what follows it. The outer none: not in quotes; the inner none: the quotes stay open.
fn quoted(text: &str) -> Option<Value<'_>> {
    let inside = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = inside.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some(Some((value, &inside[at + 1..]))),
            '\\' => match characters.next() {
                Some((_, escaped)) => value.push(escaped),
                None => break,
            },
            _ => value.push(character),
        }
    }
    Some(None)
}

/// A value without quotes and what follows it.
fn bare(text: &str) -> Value<'_> {
    let end = text.find([',', ';', ' ', '\t', '"']).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn networks() -> Vec<IpNet> {
        ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()).to_vec()
    }

    fn source(peer: &str, lines: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        through(peer.parse().unwrap(), &headers, &networks()).to_string()
    }

    #[rstest]
    #[case::nothing_said("", "10.0.0.1")]
    #[case::one("203.0.113.7", "203.0.113.7")]
    #[case::a_port("203.0.113.7:4711", "203.0.113.7")]
    #[case::ipv6("2001:db8::7", "2001:db8::7")]
    #[case::ipv6_with_a_port("[2001:db8::7]:4711", "2001:db8::7")]
    #[case::ipv4_as_ipv6("::ffff:203.0.113.7", "203.0.113.7")]
    #[case::forged_before_the_real_one("198.51.100.1, 203.0.113.7", "203.0.113.7")]
    #[case::through_a_second_proxy("203.0.113.7, 10.1.1.1", "203.0.113.7")]
    #[case::through_ipv6_proxies("203.0.113.7,fd00::1 ,10.1.1.1", "203.0.113.7")]
    #[case::rubbish_before_it("rubbish, 203.0.113.7", "203.0.113.7")]
    #[case::only_proxies("10.9.9.9, 10.1.1.1", "10.9.9.9")]
    #[case::unreadable_at_a_proxy("203.0.113.7, unknown, 10.1.1.1", "10.1.1.1")]
    #[case::empty_element("203.0.113.7, ,", "10.0.0.1")]
    #[case::not_an_address("203.0.113.7.1", "10.0.0.1")]
    #[case::leading_zeros("203.0.113.007", "10.0.0.1")]
    #[case::a_name("example.org", "10.0.0.1")]
    fn x_forwarded_for_is_read_from_the_right_through_trusted_hops(
        #[case] header: &str,
        #[case] expected: &str,
    ) {
        assert_eq!(source("10.0.0.1", &[("x-forwarded-for", header)]), expected);
    }

    #[rstest]
    #[case::one("for=203.0.113.7", "203.0.113.7")]
    #[case::more_pairs("For=\"203.0.113.7:80\";proto=https;by=10.0.0.1;host=a.example:80", "203.0.113.7")]
    #[case::ipv6("for=\"[2001:db8::7]\"", "2001:db8::7")]
    #[case::forged_before_the_real_one("for=198.51.100.1, for=203.0.113.7;proto=http", "203.0.113.7")]
    #[case::a_comma_in_quotes("for=198.51.100.1;by=\"_a, for=1.1.1.1\", for=203.0.113.7", "203.0.113.7")]
    #[case::an_escaped_quote("for=198.51.100.1;by=\"\\\", for=1.1.1.1\", for=203.0.113.7", "203.0.113.7")]
    #[case::through_a_second_proxy("for=203.0.113.7, for=10.1.1.1", "203.0.113.7")]
    #[case::hidden("for=_hidden, for=10.1.1.1", "10.1.1.1")]
    #[case::not_said("proto=https, for=10.1.1.1", "10.1.1.1")]
    #[case::an_open_quote("for=\"203.0.113.7", "10.0.0.1")]
    #[case::an_open_quote_before_the_real_one("for=\"a, for=203.0.113.7", "10.0.0.1")]
    #[case::twice("for=203.0.113.7;for=203.0.113.8", "10.0.0.1")]
    #[case::no_value("for=", "10.0.0.1")]
    #[case::no_pair("203.0.113.7", "10.0.0.1")]
    #[case::nothing("", "10.0.0.1")]
    fn forwarded_is_read_from_the_right_through_trusted_hops(#[case] header: &str, #[case] expected: &str) {
        assert_eq!(source("10.0.0.1", &[("forwarded", header)]), expected);
    }

    #[test]
    fn lines_are_read_from_the_last_one_back() {
        let lines = [("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.7, 10.1.1.1")];
        assert_eq!(source("10.0.0.1", &lines), "203.0.113.7");
        let lines = [("forwarded", "for=\"open"), ("forwarded", "for=203.0.113.7")];
        assert_eq!(source("10.0.0.1", &lines), "203.0.113.7");
    }

    #[test]
    fn nobody_else_is_believed() {
        let lines = [("x-forwarded-for", "203.0.113.7"), ("forwarded", "for=203.0.113.7")];
        assert_eq!(source("192.0.2.1", &lines), "192.0.2.1");
        assert_eq!(source("10.0.0.1", &lines), "203.0.113.7");
    }

    #[test]
    fn headers_that_differ_are_not_believed() {
        let lines = [("x-forwarded-for", "203.0.113.7"), ("forwarded", "for=198.51.100.1")];
        assert_eq!(source("10.0.0.1", &lines), "10.0.0.1");
    }

    #[test]
    fn endless_headers_cost_little() {
        let began = std::time::Instant::now();
        let hops = "10.1.1.1,".repeat(10_000);
        assert_eq!(source("10.0.0.1", &[("x-forwarded-for", hops.trim_end_matches(','))]), "10.1.1.1");
        let pairs = "for=10.1.1.1;".repeat(10_000);
        assert_eq!(source("10.0.0.1", &[("forwarded", &pairs)]), "10.0.0.1");
        assert!(began.elapsed() < std::time::Duration::from_secs(1));
    }

    proptest::proptest! {
        #[test]
        fn any_header_names_the_peer_or_an_address(
            forwarded in "[for=,;\"\\\\ .:0-9\\[\\]a-f]{0,60}", listed in "[,. :0-9\\[\\]a-f]{0,60}",
        ) {
            let lines = [("forwarded", forwarded.as_str()), ("x-forwarded-for", listed.as_str())];
            proptest::prop_assert!(source("10.0.0.1", &lines).parse::<IpAddr>().is_ok());
        }
    }
}
