//! Number of cases in property tests, which `PROPTEST_CASES` scales.

use proptest::test_runner::Config;

/// Number of cases of a property test that sets no number, unless `PROPTEST_CASES` is set.
const DEFAULT: u32 = 256;

/// Returns the configuration of a property test with `count` cases, multiplied by `PROPTEST_CASES` / 256.
pub fn cases(count: u32) -> Config {
    let default = Config::default();
    let scaled = u64::from(count) * u64::from(default.cases) / u64::from(DEFAULT);
    Config { cases: u32::try_from(scaled).unwrap_or(count).max(1), ..default }
}
