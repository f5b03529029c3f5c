#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ralph_bot::fuzzing::program_files(data));
