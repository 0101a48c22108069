//! Which addresses are public: anything else belongs to a private network, to this machine, or to nobody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is not public, by first address and length: this network, private use, carriers' networks, loopback,
/// link-local, protocol assignments, documentation, the relay of 6to4, benchmarks, multicast, reserved.
const NOT_PUBLIC_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The only part of IPv6 from which public addresses are given. Outside of it are loopback, link-local, unique local,
/// multicast, and the forms that carry an IPv4 address (mapped, NAT64).
const GIVEN_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// What is not public in it: protocol assignments with Teredo, documentation (twice), 6to4.
const NOT_PUBLIC_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether an address is public.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let begins = |(first, length): &(Ipv4Addr, u32)| {
                address.to_bits() >> (32 - length) == first.to_bits() >> (32 - length)
            };
            !NOT_PUBLIC_V4.iter().any(begins)
        }
        IpAddr::V6(address) => {
            let begins = |(first, length): &(Ipv6Addr, u32)| {
                address.to_bits() >> (128 - length) == first.to_bits() >> (128 - length)
            };
            begins(&GIVEN_V6) && !NOT_PUBLIC_V6.iter().any(begins)
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::this_network("0.0.0.0")]
    #[case::this_network_too("0.1.2.3")]
    #[case::private("10.255.255.255")]
    #[case::carrier("100.64.0.1")]
    #[case::carrier_last("100.127.255.255")]
    #[case::loopback("127.0.0.1")]
    #[case::loopback_too("127.255.0.9")]
    #[case::link_local("169.254.169.254")]
    #[case::private_b("172.31.255.255")]
    #[case::assignments("192.0.0.8")]
    #[case::documentation("192.0.2.1")]
    #[case::relay("192.88.99.1")]
    #[case::private_c("192.168.1.1")]
    #[case::benchmark("198.19.0.1")]
    #[case::documentation_2("198.51.100.7")]
    #[case::documentation_3("203.0.113.7")]
    #[case::multicast("239.1.1.1")]
    #[case::reserved("250.0.0.1")]
    #[case::broadcast("255.255.255.255")]
    #[case::unspecified_v6("::")]
    #[case::loopback_v6("::1")]
    #[case::compatible("::8.8.8.8")]
    #[case::mapped("::ffff:127.0.0.1")]
    #[case::mapped_public("::ffff:8.8.8.8")]
    #[case::translated("::ffff:0:8.8.8.8")]
    #[case::nat64("64:ff9b::8.8.8.8")]
    #[case::nat64_local("64:ff9b:1::a00:1")]
    #[case::discard("100::1")]
    #[case::teredo("2001::1")]
    #[case::documentation_v6("2001:db8::1")]
    #[case::six_to_four("2002:7f00:1::")]
    #[case::documentation_v6_new("3fff::1")]
    #[case::segment_routing("5f00::1")]
    #[case::unique_local("fd00::1")]
    #[case::link_local_v6("fe80::1")]
    #[case::site_local("fec0::1")]
    #[case::multicast_v6("ff02::1")]
    fn what_is_private_or_special_is_not_public(#[case] address: IpAddr) {
        assert!(!is_public(address), "{address}");
    }

    #[rstest]
    #[case("8.8.8.8")]
    #[case("9.255.255.255")]
    #[case("11.0.0.0")]
    #[case("100.63.255.255")]
    #[case("100.128.0.0")]
    #[case("172.15.0.1")]
    #[case("172.32.0.1")]
    #[case("223.255.255.255")]
    #[case("2606:4700::1111")]
    #[case("2a00:1450::1")]
    #[case("2001:200::1")]
    fn neighbours_of_these_are(#[case] address: IpAddr) {
        assert!(is_public(address), "{address}");
    }
}
