//! Time and memory of readers whose input an agent or an outsider chooses.

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use ralph_bot::agent;
use ralph_bot::checks::counts;
use ralph_bot::config::parse_repository;
use ralph_bot::domain::model::ids::ForgeName;
use ralph_bot::domain::trust::bounds::{
    ARCHIVE_BYTES, ARCHIVES_BYTES, BROKER_BODY_BYTES, CHECK_OUTPUT_BYTES, JSON_VALUES, PUSHED_BYTES, REPORT_BYTES,
    REPOSITORY_FILE_BYTES,
};
use ralph_bot::domain::trust::outbound::{MAX_CHANGE_BYTES, Masker, OutboundFilter};
use ralph_bot::domain::trust::policy::Policy;
use ralph_bot::domain::trust::sanitize::document;
use ralph_bot::domain::trust::secret_forms::{SecretForms, StreamRedactor};
use ralph_bot::domain::trust::tamper;
use ralph_bot::forge::github;
use test_regions::{ChangedFile, MAX_FILE_BYTES, with_base_tests_of};

use crate::machine::median;
use crate::report::{FigureRow, FigureTarget};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    Each reader of bytes that an agent or an outsider chose reads the most expensive known input, half and whole. \
    Baseline: the half, so the ratio shows how the time grows; medians. Memory: the most that one input of the \
    maximum size adds to the process. Times are processor times of the thread.";

const NAME: &str = "readers";
/// Maximum ratio of the times for twice the input; a tenth is measurement noise.
const MOST_GROWTH: f64 = 2.2;
/// Maximum memory for one input, in MiB.
const MOST_MIB: f64 = 384.0;
/// Size of the largest texts of issues and comments, in bytes.
const TEXT_BYTES: usize = 256 << 10;
const SECRET: &str = "sk-canary-5b2d9e7f41c8a603";

/// Reader with a generator for its most expensive input.
struct Reader {
    name: &'static str,
    /// Maximum size of an input, in bytes.
    most: usize,
    /// Returns an input of about this size.
    input: fn(usize) -> Vec<u8>,
    read: fn(&[u8]),
}

const READERS: [Reader; 21] = [
    Reader { name: "a request to a model: numbers", most: BROKER_BODY_BYTES, input: numbers, read: request },
    Reader { name: "a request to a model: objects", most: BROKER_BODY_BYTES, input: objects, read: request },
    Reader { name: "an answer of a model", most: BROKER_BODY_BYTES / 8, input: keys, read: answer },
    Reader { name: "a pushed file: beginnings of tokens", most: PUSHED_BYTES / 8, input: tokens, read: file },
    Reader { name: "a pushed file: base64", most: PUSHED_BYTES / 8, input: base64, read: file },
    Reader { name: "a pushed archive", most: ARCHIVE_BYTES as usize, input: archive, read: file },
    Reader { name: "a diff", most: MAX_CHANGE_BYTES as usize / 4, input: diff, read: changes },
    Reader { name: "the output of a check", most: CHECK_OUTPUT_BYTES, input: output, read: counted },
    Reader { name: "a test report", most: REPORT_BYTES as usize, input: report, read: junit },
    Reader { name: "a test report in JSON", most: REPORT_BYTES as usize, input: json_report, read: json },
    Reader { name: "a program file: exits", most: MAX_FILE_BYTES, input: exits, read: program::<'d'> },
    Reader { name: "a program file: overloads", most: MAX_FILE_BYTES, input: overloads, read: program::<'c'> },
    Reader { name: "a program file: decorators", most: MAX_FILE_BYTES, input: decorators, read: program::<'p'> },
    Reader { name: "a program file: items", most: MAX_FILE_BYTES, input: items, read: program::<'c'> },
    Reader { name: "a manifest", most: MAX_CHANGE_BYTES as usize, input: features, read: manifest },
    Reader { name: "a build file", most: MAX_CHANGE_BYTES as usize, input: sources, read: build_file },
    Reader { name: "a rendered text", most: TEXT_BYTES, input: markdown, read: rendered },
    Reader { name: "an agent's text that leaves", most: TEXT_BYTES, input: markdown, read: leaving },
    Reader { name: "an agent's output", most: CHECK_OUTPUT_BYTES / 4, input: events, read: agent::fuzzing::output },
    Reader { name: "a delivery", most: 2 * JSON_VALUES, input: delivery, read: webhook },
    Reader { name: "a repository's file", most: REPOSITORY_FILE_BYTES, input: yaml, read: settings },
];

fn repeated(text: &str, size: usize) -> String {
    text.repeat(size.div_ceil(text.len()))
}

fn numbers(size: usize) -> Vec<u8> {
    format!("b{{\"model\":\"m\",\"messages\":[{}1]}}", repeated("1,", size - 32)).into_bytes()
}

fn objects(size: usize) -> Vec<u8> {
    format!("b{{\"model\":\"m\",\"messages\":[{}1]}}", repeated("{\"a\":{},\"url\":\"x\"},", size - 64)).into_bytes()
}

fn request(body: &[u8]) {
    black_box(agent::fuzzing::accepts_model_body(body));
}

fn keys(size: usize) -> Vec<u8> {
    repeated(&SECRET[..12], size).into_bytes()
}

fn answer(bytes: &[u8]) {
    let mut redactor = StreamRedactor::new(Arc::new(SecretForms::new([SECRET])), b"[key removed]");
    black_box((redactor.push(bytes), redactor.finish()));
}

fn tokens(size: usize) -> Vec<u8> {
    repeated("ghp_ sk-ant- eyJ", size).into_bytes()
}

fn base64(size: usize) -> Vec<u8> {
    repeated("c2stY2FuYXJ5LTViMmQ5ZTdmNDFjOGE2%5c", size).into_bytes()
}

fn file(content: &[u8]) {
    let mut left = ARCHIVES_BYTES;
    black_box(Masker::new([SECRET]).found_in_file(content, &mut left));
}

/// Returns an archive with this many bytes.
fn archive(size: usize) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let written = gzip.write_all(&tokens(size - 64));
    written.and_then(|()| gzip.finish()).unwrap_or_default()
}

fn diff(size: usize) -> Vec<u8> {
    let hunk = "@@ -1,2 +1,2 @@ def test_a():\n-    assert a == 1\n-    assert b\n+    assert a == 2\n+    pass\n";
    format!("diff --git a/test_a.py b/test_a.py\n--- a/test_a.py\n+++ b/test_a.py\n{}", repeated(hunk, size))
        .into_bytes()
}

fn changes(diff: &[u8]) {
    black_box(tamper::scan(&String::from_utf8_lossy(diff), &Default::default(), &|_| false, 100));
}

fn output(size: usize) -> Vec<u8> {
    repeated("test a ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n", size).into_bytes()
}

fn counted(text: &[u8]) {
    black_box(counts::read(&String::from_utf8_lossy(text)));
}

fn report(size: usize) -> Vec<u8> {
    let case = "<testcase classname='a' name='b'><failure/></testcase>\n";
    format!("<testsuite>{}</testsuite>", repeated(case, size - 128)).into_bytes()
}

fn junit(xml: &[u8]) {
    black_box(counts::read_junit(&String::from_utf8_lossy(xml)));
}

fn json_report(size: usize) -> Vec<u8> {
    let test = "{\"nodeid\":\"a\",\"outcome\":\"failed\"},";
    format!("{{\"summary\":{{\"collected\":1}},\"tests\":[{}{{}}]}}", repeated(test, size - 128)).into_bytes()
}

fn json(text: &[u8]) {
    black_box(counts::read_json(&String::from_utf8_lossy(text)));
}

fn exits(size: usize) -> Vec<u8> {
    repeated("exit(0)\n", size - 8).into_bytes()
}

fn numbered(size: usize, line: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = String::new();
    for number in 0.. {
        let line = line(number);
        if text.len() + line.len() > size {
            break;
        }
        text.push_str(&line);
    }
    text.into_bytes()
}

fn overloads(size: usize) -> Vec<u8> {
    numbered(size, |number| format!("void f{number}(int a) {{}}\n"))
}

fn decorators(size: usize) -> Vec<u8> {
    numbered(size, |number| format!("@a{number}\ndef b(): pass\n"))
}

fn items(size: usize) -> Vec<u8> {
    format!("class {} {{ {} }};\n", "a".repeat(400), repeated("int a;", size - 512)).into_bytes()
}

/// Reads a new version of a program file in D, C++ or Python.
fn program<const LANGUAGE: char>(text: &[u8]) {
    let (path, branch) = (
        format!(
            "a.{}",
            match LANGUAGE {
                'd' => "d",
                'c' => "cpp",
                _ => "py",
            }
        ),
        String::from_utf8_lossy(text),
    );
    let files = [ChangedFile { path: &path, base: Some("x"), branch: Some(&branch) }];
    black_box(with_base_tests_of(&files, true, ""));
}

fn features(size: usize) -> Vec<u8> {
    let chain = numbered(size - 64, |number| format!("f{number} = [\"f{}\"]\n", number + 1));
    [b"[package]\nname = \"a\"\n[features]\ndefault = [\"f0\"]\n", chain.as_slice()].concat()
}

fn manifest(text: &[u8]) {
    let branch = String::from_utf8_lossy(text);
    black_box(tamper::with_base_settings("Cargo.toml", "[package]\nname = \"a\"\n", &branch, &|_| false));
    black_box(tamper::default_features(&branch));
}

fn sources(size: usize) -> Vec<u8> {
    numbered(size, |number| format!("s{number}.c *{number}.c "))
}

fn build_file(text: &[u8]) {
    let names: Vec<String> = (0..20_000).map(|number| format!("src/s{number}.c")).collect();
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    black_box(tamper::changes_tests("CMakeLists.txt", "", &String::from_utf8_lossy(text), &files, true));
}

fn markdown(size: usize) -> Vec<u8> {
    repeated("<p>See <b>@a</b> fixes #1 `x` [y](https://example.org/z)</p>\n* _b_\n", size).into_bytes()
}

fn rendered(page: &[u8]) {
    let page = String::from_utf8_lossy(page);
    black_box(document::write(&document::read(&page, Some(&page)).parts));
}

fn leaving(text: &[u8]) {
    let filter = OutboundFilter::new(Masker::new([SECRET]));
    black_box(filter.body(&String::from_utf8_lossy(text)));
}

/// Returns lines of the first format of agents' outputs.
fn events(size: usize) -> Vec<u8> {
    let line = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a"}],"usage":{"input_tokens":1}}}"#;
    format!("a{}", repeated(&format!("{line}\n"), size - 1)).into_bytes()
}

fn delivery(size: usize) -> Vec<u8> {
    format!("{{\"a\":[{}1]}}", repeated("1,", size - 64)).into_bytes()
}

fn webhook(body: &[u8]) {
    black_box(github::parse_delivery(&ForgeName::new("forge"), "issues", body));
}

fn yaml(size: usize) -> Vec<u8> {
    format!("checks:\n{}", repeated("  - { name: a, run: b }\n", size - 64)).into_bytes()
}

fn settings(text: &[u8]) {
    black_box(parse_repository(".ralph.yml", &String::from_utf8_lossy(text), &Policy::default()).is_ok());
}

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (rounds, part) = if run.size == Size::Brief { (1, 64) } else { (5, 1) };
    for Reader { name, most, input, read } in READERS {
        let (half, whole) = (input(most / part / 2), input(most / part));
        let (mut of_half, mut of_whole) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            of_half.push(time(&half, read)?);
            of_whole.push(time(&whole, read)?);
        }
        let ms = |times: Vec<Duration>| median(times).as_secs_f64() * 1e3;
        let row = FigureRow::new(NAME, name, ms(of_whole), "ms").beside("half of it", ms(of_half));
        run.add(row.target(FigureTarget::RatioAtMost(MOST_GROWTH)));
        let added = added_memory(&whole, read)?;
        run.add(FigureRow::new(NAME, format!("{name}, memory"), added, "MiB").target(FigureTarget::AtMost(MOST_MIB)));
    }
    Ok(())
}

/// Returns the processor time of a reader, which other work on the machine does not change.
fn time(input: &[u8], read: fn(&[u8])) -> anyhow::Result<Duration> {
    let start = processor_time()?;
    read(input);
    Ok(processor_time()?.saturating_sub(start))
}

fn processor_time() -> anyhow::Result<Duration> {
    // The kernel updates the figure when the thread yields.
    std::thread::yield_now();
    let figures = std::fs::read_to_string("/proc/thread-self/schedstat").context("the kernel counts no times")?;
    let nanoseconds = figures.split(' ').next().context("a figure is missing")?;
    Ok(Duration::from_nanos(nanoseconds.parse()?))
}

/// Returns the maximum increase of the process's memory while reading an input, in MiB.
fn added_memory(input: &[u8], read: fn(&[u8])) -> anyhow::Result<f64> {
    // Resets the maximum.
    std::fs::write("/proc/self/clear_refs", "5").context("the maximum of the memory cannot be reset")?;
    let before = memory("VmRSS:")?;
    read(input);
    Ok((memory("VmHWM:")? - before).max(0.0) / 1024.0)
}

/// Returns a kernel figure about this process, in KiB.
fn memory(name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a line is missing")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
