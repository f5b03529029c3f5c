//! Memory that the service takes for bytes of an agent or an outsider, and the same bytes read without a budget.
//!
//! Each reading runs in a separate process, because the kernel counts the memory of a process.

use std::hint::black_box;
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use ralph_bot::agent;
use ralph_bot::domain::model::ids::ForgeName;
use ralph_bot::domain::trust::bounds::{ARCHIVES_BYTES, DELIVERY_BYTES};
use ralph_bot::domain::trust::outbound::Masker;
use ralph_bot::forge::github;
use serde_json::Value;

use crate::harness::parts::{command, output, setting};

/// Variable with the index of a reader and whether it has its budget.
const READING: &str = "RALPH_TEST_READING";
/// Start of the line with the result.
const ADDED: &str = "added memory: ";
/// Memory that a reading with its budget may add, in MiB; without, each adds more than twice as much.
const MOST_MIB: u64 = 96;

/// Reader of bytes that others choose.
struct BudgetedReader {
    name: &'static str,
    bytes: fn() -> Vec<u8>,
    read: fn(&[u8]),
    /// The same without a budget.
    read_all: fn(&[u8]),
}

const READERS: [BudgetedReader; 3] = [
    BudgetedReader {
        name: "a request to a model",
        bytes: || numbers(16 << 20),
        read: |bytes| {
            black_box(agent::fuzzing::accepts_model_body(bytes));
        },
        read_all: |bytes| drop(black_box(serde_json::from_slice::<Value>(&bytes[1..]).expect("JSON"))),
    },
    BudgetedReader {
        name: "a delivery",
        bytes: || numbers(DELIVERY_BYTES),
        read: |bytes| drop(black_box(github::parse_delivery(&ForgeName::new("forge"), "issues", &bytes[1..]))),
        read_all: |bytes| drop(black_box(serde_json::from_slice::<Value>(&bytes[1..]).expect("JSON"))),
    },
    BudgetedReader {
        name: "an archive",
        bytes: archive,
        read: |bytes| {
            let mut left = ARCHIVES_BYTES;
            drop(black_box(Masker::new(["sk-canary-5b2d9e7f41c8a603"]).found_in_file(bytes, &mut left)));
        },
        read_all: |bytes| {
            let mut all = Vec::new();
            GzDecoder::new(bytes).read_to_end(&mut all).expect("an archive");
            black_box(all);
        },
    },
];

/// Returns a JSON object with as many numbers as fit, after the byte that chooses the format of a model.
fn numbers(size: usize) -> Vec<u8> {
    format!("b{{\"model\":\"m\",\"messages\":[{}1]}}", "1,".repeat((size - 64) / 2)).into_bytes()
}

/// Returns an archive of 256 KiB with 256 MiB.
fn archive() -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let part = vec![b' '; 1 << 20];
    for _ in 0..256 {
        gzip.write_all(&part).expect("packed");
    }
    gzip.finish().expect("packed")
}

/// See docs/research/threats.md#s17.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_stay_within_their_memory_budgets() {
    if let Some(reading) = setting(READING) {
        return read_here(&reading);
    }
    for (number, reader) in READERS.iter().enumerate() {
        let within = added_memory(number, true).await;
        assert!(within <= MOST_MIB, "{}: {within} MiB", reader.name);
        let without = added_memory(number, false).await;
        assert!(without > 2 * MOST_MIB, "{} without a budget: {without} MiB", reader.name);
    }
}

/// Returns the memory that a reading adds to its process, in MiB.
async fn added_memory(reader: usize, has_budget: bool) -> u64 {
    let mut again = command(std::env::current_exe().expect("a path"));
    again.args(["budgets::readers_stay_within_their_memory_budgets", "--exact", "--nocapture"]);
    let out = output(again.env(READING, format!("{reader} {has_budget}"))).await;
    let text = String::from_utf8(out).expect("text");
    let added = text.split(ADDED).nth(1).and_then(|rest| rest.split_whitespace().next());
    added.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no result: {text}"))
}

fn read_here(reading: &str) {
    let (reader, has_budget) = reading.split_once(' ').expect("a reader and its budget");
    let reader = &READERS[reader.parse::<usize>().expect("a number")];
    let bytes = (reader.bytes)();
    // Resets the maximum.
    std::fs::write("/proc/self/clear_refs", "5").expect("written");
    let before = memory("VmRSS:");
    (if has_budget == "true" { reader.read } else { reader.read_all })(&bytes);
    println!("{ADDED}{} MiB", memory("VmHWM:").saturating_sub(before));
}

/// Returns a kernel figure about this process, in MiB.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}
