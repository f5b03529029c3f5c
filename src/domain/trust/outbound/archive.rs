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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder};

    use super::*;

    /// See docs/threats.md#i7.
    #[test]
    fn members_of_gzip_and_zip_are_unpacked() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(b"content").expect("packed");
        let gzip = gzip.finish().expect("packed");
        assert_eq!(members(&gzip), [b"content"]);
        assert_eq!(members(&gzip[..gzip.len() - 4]), [b"content"], "what can be read counts");
        let mut zip = Vec::new();
        for name in ["a", "bc"] {
            let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
            deflate.write_all(format!("content of {name}").as_bytes()).expect("packed");
            let mut header = b"PK\x03\x04\x14\0\0\0\x08\0".to_vec();
            header.resize(26, 0);
            header.extend([name.len() as u8, 0, 0, 0]);
            zip.extend([header, name.as_bytes().to_vec(), deflate.finish().expect("packed")].concat());
        }
        assert_eq!(members(&zip), [b"content of a".to_vec(), b"content of bc".to_vec()]);
        assert!(members(b"PK\x03\x04").is_empty() && members(b"").is_empty() && members(b"text").is_empty());
    }
}
