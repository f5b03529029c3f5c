//! Classification of network addresses as public or private.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns why an address is not on the public internet, in one or two words; `None` for a public address.
pub fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

fn v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    Some(match (a, b, c, d) {
        (0, ..) => "this network",
        (127, ..) => "loopback",
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => "private",
        (100, 64..=127, ..) => "shared by a carrier",
        (169, 254, ..) => "link-local",
        (192, 0, 0, _) => "for protocols",
        (192, 0, 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => "for documentation",
        (192, 88, 99, _) => "a relay",
        (198, 18..=19, ..) => "for benchmarks",
        (224..=239, ..) => "multicast",
        (255, 255, 255, 255) => "broadcast",
        (240..=255, ..) => "reserved",
        _ => return None,
    })
}

fn v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let low = |at: usize| {
        let ([a, b], [c, d]) = (segments[at].to_be_bytes(), segments[at + 1].to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    Some(match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => "unspecified",
        [0, 0, 0, 0, 0, 0, 0, 1] => "loopback",
        // Addresses that stand for one of IPv4: mapped, compatible, translated (also by a local prefix), 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, ..] => return v4(low(6)).or(Some("an IPv4 address in disguise")),
        [0, 0, 0, 0, 0xffff, 0, ..] => "an IPv4 address in disguise",
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => return v4(low(6)),
        [0x64, 0xff9b, 1, ..] => "translated locally",
        [0x2002, ..] => return v4(low(1)),
        [0x100, 0, 0, 0 | 1, ..] => "discarded",
        [0x2001, 0..=0x1ff, ..] => "for protocols",
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => "for documentation",
        [0x5f00, ..] => "for segment routing",
        [0xfc00..=0xfdff, ..] => "unique-local",
        [0xfe80..=0xfebf, ..] => "link-local",
        [0xfec0..=0xfeff, ..] => "site-local",
        [0xff00..=0xffff, ..] => "multicast",
        // Everything that is given out lies in 2000::/3.
        [0x2000..=0x3fff, ..] => return None,
        _ => "reserved",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_internet_addresses_are_public() {
        let public =
            ["1.1.1.1", "44.237.180.172", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "192.0.1.1"];
        let public6 = ["2606:4700:4700::1111", "2a00:1450::1", "64:ff9b::101:101", "2002:101:101::1", "2001:200::1"];
        for text in public.into_iter().chain(public6) {
            assert_eq!(not_public(text.parse().unwrap()), None, "{text}");
        }
        let kept_in = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 127.0.0.1 127.255.0.9 169.254.169.254 172.16.0.1 \
            172.31.255.255 192.0.0.1 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.1 198.51.100.1 \
            203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 :: ::1 ::ffff:127.0.0.1 \
            ::ffff:10.0.0.1 ::ffff:1.1.1.1 ::127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe \
            64:ff9b:1::1 2002:7f00:1:: 2002:c0a8:101::1 100::1 2001::1 2001:10::1 2001:db8::1 3fff::1 \
            5f00::1 fc00::1 fd12:3456::1 fe80::1 fec0::1 ff02::1 4000::1 8000::1";
        for text in kept_in.split(' ') {
            assert!(not_public(text.parse().unwrap()).is_some(), "{text}");
        }
    }
}
