//! Summary of the tests of this run that were skipped because this machine lacks a part, with the reasons.
//!
//! Cargo runs the test targets of a package in alphabetical order, hence the name.

fn main() {
    // `cargo nextest` lists the tests of a target first; this target has no tests.
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let skipped = skipped_tests::take();
    if skipped.is_empty() {
        return;
    }
    println!("\nskipped {} tests, because this machine lacks a part", skipped.len());
    for test in &skipped {
        println!("test {} ... ignored, {}", test.test, test.reason.replace('\n', " "));
    }
    println!("\ntest result: ok. 0 passed; 0 failed; {} ignored\n", skipped.len());
}
