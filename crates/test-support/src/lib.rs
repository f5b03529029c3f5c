//! Numbers of cases in property tests, which `PROPTEST_CASES` scales, and free ports, for tests of several crates.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use proptest::test_runner::Config;

/// Number of cases of a property test that sets no number, unless `PROPTEST_CASES` is set.
const DEFAULT: u32 = 256;

/// Returns the configuration of a property test with `count` cases, multiplied by `PROPTEST_CASES` / 256.
pub fn cases(count: u32) -> Config {
    let default = Config::default();
    let scaled = u64::from(count) * u64::from(default.cases) / u64::from(DEFAULT);
    Config { cases: u32::try_from(scaled).unwrap_or(count).max(1), ..default }
}

/// Returns a free TCP port of the loopback address. It is below the range from which the kernel gives ports to other tests.
///
/// # Panics
/// If none of the 10,000 ports is free.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 100).unwrap_or_default() * 100;
    let mut ports = (0..10_000).map(|_| 20_000 + (start + NEXT.fetch_add(1, Ordering::SeqCst)) % 10_000);
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).expect("a free port")
}
