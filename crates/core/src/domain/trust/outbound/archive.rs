//! Members of gzip files and zip archives.

use std::io::Read as _;

use flate2::read::{DeflateDecoder, MultiGzDecoder};

/// Maximum total size that is unpacked from one file, in bytes.
const MOST_BYTES: u64 = 16 << 20;
/// Maximum number of members of a zip archive that are unpacked.
const MOST_MEMBERS: usize = 5_000;

/// Content of an archive that could be unpacked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnpackedArchive {
    /// Content of each member.
    pub(super) members: Vec<Vec<u8>>,
    /// Whether the archive has more content than may be unpacked.
    pub(super) is_cut: bool,
}

/// Returns what a gzip file or the members of a zip archive contain, as far as it can be unpacked: at most 16 MiB and 5,000
/// members. Archives within archives and compressed parts of other files are not unpacked.
pub(super) fn unpack(bytes: &[u8]) -> UnpackedArchive {
    match bytes {
        [0x1f, 0x8b, 8, ..] => {
            let (member, is_cut) = unpacked(MultiGzDecoder::new(bytes), MOST_BYTES);
            UnpackedArchive { members: vec![member], is_cut }
        }
        [b'P', b'K', 3, 4, ..] => zip_members(bytes, MOST_BYTES),
        _ => UnpackedArchive::default(),
    }
}

fn zip_members(bytes: &[u8], mut bytes_left: u64) -> UnpackedArchive {
    const HEADER: usize = 30;
    let (mut archive, mut at) = (UnpackedArchive::default(), 0);
    loop {
        let found = bytes[at..].windows(4).position(|window| window == b"PK\x03\x04");
        let Some(header) = found.and_then(|found| bytes.get(at + found..)).filter(|rest| rest.len() > HEADER) else {
            return archive;
        };
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let content = header.get(HEADER + number(26) + number(28)..).unwrap_or_default();
        if number(8) == 8 {
            if archive.members.len() == MOST_MEMBERS {
                archive.is_cut = true;
                return archive;
            }
            let (member, is_cut) = unpacked(DeflateDecoder::new(content), bytes_left);
            bytes_left -= member.len() as u64;
            archive.members.push(member);
            if is_cut {
                archive.is_cut = true;
                return archive;
            }
        }
        at = bytes.len() - header.len() + 4;
    }
}

/// Reads at most `most` bytes. Also returns whether there is more to read.
fn unpacked(from: impl std::io::Read, most: u64) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    // What was read before an error counts.
    let _ = from.take(most + 1).read_to_end(&mut out);
    let is_cut = out.len() as u64 > most;
    out.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    (out, is_cut)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder};

    use super::*;

    /// A member of a zip archive.
    fn member(name: &str, content: &[u8]) -> Vec<u8> {
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
        deflate.write_all(content).expect("packed");
        let mut header = b"PK\x03\x04\x14\0\0\0\x08\0".to_vec();
        header.resize(26, 0);
        header.extend([name.len() as u8, 0, 0, 0]);
        [header, name.as_bytes().to_vec(), deflate.finish().expect("packed")].concat()
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(content).expect("packed");
        gzip.finish().expect("packed")
    }

    /// See docs/research/threats.md#i7.
    #[test]
    fn members_of_gzip_and_zip_are_unpacked() {
        let complete = |members: &[&[u8]]| UnpackedArchive {
            members: members.iter().map(|member| member.to_vec()).collect(),
            is_cut: false,
        };
        let packed = gzip(b"content");
        assert_eq!(unpack(&packed), complete(&[b"content"]));
        assert_eq!(unpack(&packed[..packed.len() - 4]), complete(&[b"content"]), "what can be read counts");
        let zip = [member("a", b"content of a"), member("bc", b"content of bc")].concat();
        assert_eq!(unpack(&zip), complete(&[b"content of a", b"content of bc"]));
        for other in
            [b"PK\x03\x04".as_slice(), b"", b"text", b"text about PK\x03\x04 headers of zip archives, and more"]
        {
            assert_eq!(unpack(other), UnpackedArchive::default());
        }
    }

    /// See docs/research/threats.md#i7.
    #[test]
    fn archives_with_more_than_is_unpacked_are_cut() {
        let zeros = vec![0; MOST_BYTES as usize];
        assert!(!unpack(&gzip(&zeros)).is_cut);
        assert!(unpack(&gzip(&[zeros.as_slice(), b"x"].concat())).is_cut);
        assert!(unpack(&[member("a", &zeros), member("b", b"x")].concat()).is_cut);
        let many = member("a", b"x").repeat(MOST_MEMBERS);
        assert!(!unpack(&many).is_cut);
        assert!(unpack(&[many, member("b", b"x")].concat()).is_cut);
    }
}
