//! All targets in one program, which is linked once: `RALPH_FUZZ_TARGET` names the one that runs.
#![no_main]

use std::sync::LazyLock;

use ralph_bot::fuzzing::{FuzzTarget, TARGETS};

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("RALPH_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("RALPH_FUZZ_TARGET is `{name}`, which is no target of src/fuzzing.rs")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
