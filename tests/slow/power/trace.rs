//! Parser of strace logs: changes of files, syncs, and bytes of connections.

use std::collections::HashMap;
use std::path::PathBuf;

/// Options of strace for this parser: paths of descriptors, and all bytes as hexadecimal.
pub const OPTIONS: [&str; 6] = [
    "-q",
    "-y",
    "-xx",
    "-s1000000",
    "-e",
    "trace=openat,mkdir,pwrite64,ftruncate,fsync,fdatasync,unlink,recvfrom,sendto,writev",
];

/// Successful system call. Files are identified by path, connections by strace's name for them.
pub enum SystemCall {
    MakeFolder { path: PathBuf },
    Create { path: PathBuf },
    Write { path: PathBuf, at: usize, bytes: Vec<u8> },
    Cut { path: PathBuf, length: usize },
    Remove { path: PathBuf },
    Sync { path: PathBuf },
    Received { on: String, bytes: Vec<u8> },
    Sent { on: String, bytes: Vec<u8> },
}

/// System calls of a log, in order: changes and sent bytes count from the start of the call, syncs and received bytes from
/// its end.
pub fn read(log: &str) -> Vec<SystemCall> {
    let mut calls: Vec<Option<SystemCall>> = Vec::new();
    // Index of the unfinished call of each thread, and the known part of its line.
    let mut begun: HashMap<&str, (usize, String)> = HashMap::new();
    for line in log.lines() {
        let (thread, said) = line.split_once(' ').unwrap_or_default();
        let said = said.trim_start();
        if let Some(start) = said.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, (calls.len(), start.trim_end().to_owned()));
            calls.push(None);
        } else if let Some(rest) = said.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            let Some((at, start)) = begun.remove(thread) else { continue };
            match parsed(&format!("{start}{}", rest.1)) {
                Some(call @ (SystemCall::Sync { .. } | SystemCall::Received { .. })) => calls.push(Some(call)),
                call => calls[at] = call,
            }
        } else {
            calls.push(parsed(said));
        }
    }
    // A call that was cut off by the end of the process may have been executed.
    for (at, start) in begun.into_values() {
        let call = parsed(&format!("{start}) = 0"));
        calls[at] = call.filter(|call| !matches!(call, SystemCall::Sync { .. } | SystemCall::Received { .. }));
    }
    calls.into_iter().flatten().collect()
}

fn parsed(line: &str) -> Option<SystemCall> {
    let (name, rest) = line.split_once('(')?;
    // Short lines are padded before the result.
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?;
    if result.starts_with('-') {
        return None;
    }
    // Killed in the middle: what changes or sends may have been done.
    if result.starts_with('?') && matches!(name, "fsync" | "fdatasync" | "recvfrom") {
        return None;
    }
    let path = || Some(PathBuf::from(String::from_utf8(descriptor(arguments)?).ok()?));
    let named = || Some(PathBuf::from(String::from_utf8(strings(arguments).into_iter().next()?).ok()?));
    let on = || String::from_utf8(descriptor(arguments)?).ok();
    let last = || arguments.rsplit(", ").next()?.parse().ok();
    Some(match name {
        "openat" if arguments.contains("O_CREAT") => SystemCall::Create { path: named()? },
        "mkdir" => SystemCall::MakeFolder { path: named()? },
        "unlink" => SystemCall::Remove { path: named()? },
        "pwrite64" => SystemCall::Write { path: path()?, at: last()?, bytes: strings(arguments).into_iter().next()? },
        "ftruncate" => SystemCall::Cut { path: path()?, length: last()? },
        "fsync" | "fdatasync" => SystemCall::Sync { path: path()? },
        "recvfrom" => SystemCall::Received { on: on()?, bytes: strings(arguments).concat() },
        "sendto" | "writev" => SystemCall::Sent { on: on()?, bytes: strings(arguments).concat() },
        _ => return None,
    })
}

/// Target of the first argument, which is a descriptor: `9<\x2f…>`.
fn descriptor(arguments: &str) -> Option<Vec<u8>> {
    let (_, rest) = arguments.split_once('<')?;
    Some(bytes(rest.split_once('>')?.0))
}

/// Bytes of all quoted strings.
fn strings(arguments: &str) -> Vec<Vec<u8>> {
    arguments.split('"').skip(1).step_by(2).map(bytes).collect()
}

/// Decodes `\x2f\x74` to bytes; other characters stand for themselves.
fn bytes(written: &str) -> Vec<u8> {
    let mut found = Vec::with_capacity(written.len() / 4);
    let mut rest = written.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(1..3).filter(|_| *first == b'\\').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => (found.push(byte), rest = &tail[3..]),
            None => (found.push(*first), rest = tail),
        };
    }
    found
}
