//! Members of gzip files and zip archives, one level deep.

use std::io::Read as _;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// Maximum size of what is unpacked from one file, in bytes.
const MOST_BYTES: u64 = 16 << 20;
/// Maximum number of members of a zip archive that are unpacked.
const MOST_MEMBERS: usize = 200;

/// Returns what a gzip file, a zlib stream or the members of a zip archive contain, as far as it can be unpacked: at most 16 MiB, and
/// 200 members. Empty for other files.
pub(super) fn members(bytes: &[u8]) -> Vec<Vec<u8>> {
    match bytes {
        [0x1f, 0x8b, 8, ..] => vec![unpacked(MultiGzDecoder::new(bytes), MOST_BYTES)],
        [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => vec![unpacked(ZlibDecoder::new(bytes), MOST_BYTES)],
        [b'P', b'K', 3, 4, ..] => zip_members(bytes),
        _ => Vec::new(),
    }
}

fn zip_members(bytes: &[u8]) -> Vec<Vec<u8>> {
    const HEADER: usize = 30;
    let (mut members, mut at, mut left) = (Vec::new(), 0, MOST_BYTES);
    while members.len() < MOST_MEMBERS && left > 0 {
        let found = bytes[at..].windows(4).position(|window| window == b"PK\x03\x04");
        let Some(header) = found.and_then(|found| bytes.get(at + found..)).filter(|rest| rest.len() > HEADER) else {
            break;
        };
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let content = header.get(HEADER + number(26) + number(28)..).unwrap_or_default();
        if number(8) == 8 {
            let member = unpacked(DeflateDecoder::new(content), left);
            left = left.saturating_sub(member.len() as u64);
            members.push(member);
        }
        at = bytes.len() - header.len() + 4;
    }
    members
}

/// Reads as much as can be unpacked.
fn unpacked(from: impl std::io::Read, most: u64) -> Vec<u8> {
    let mut out = Vec::new();
    // What was read before an error counts.
    let _ = from.take(most).read_to_end(&mut out);
    out
}
