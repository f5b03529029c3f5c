//! Members of gzip files and zip archives.

use std::io::Read;

use flate2::bufread::{DeflateDecoder, MultiGzDecoder};

use crate::domain::trust::bounds::{ARCHIVE_BYTES, ARCHIVE_MEMBERS};

/// Number of times that the bytes of a zip archive may be read, because its members can overlap.
const MOST_READS: u64 = 4;

/// Whether the whole content of a file was unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnpackEnd {
    /// Yes, or the file is not an archive.
    Complete,
    /// The archive has more content than may be unpacked.
    Cut,
}

/// Calls `scan` with the content of a gzip file or of each member of a zip archive, as far as it can be unpacked: at most
/// 16 MiB, 5,000 members, and `left`, from which the unpacked bytes are subtracted. Archives within archives and compressed
/// parts of other files are not unpacked.
pub(super) fn unpack(bytes: &[u8], left: &mut u64, mut scan: impl FnMut(&[u8])) -> UnpackEnd {
    let most = ARCHIVE_BYTES.min(*left);
    let mut archive_left = most;
    let end = match bytes {
        [0x1f, 0x8b, 8, ..] => {
            let (member, end) = unpacked(MultiGzDecoder::new(bytes), &mut archive_left);
            scan(&member);
            end
        }
        [b'P', b'K', 3, 4, ..] => zip_members(bytes, &mut archive_left, scan),
        _ => UnpackEnd::Complete,
    };
    *left -= most - archive_left;
    end
}

fn zip_members(bytes: &[u8], left: &mut u64, mut scan: impl FnMut(&[u8])) -> UnpackEnd {
    const HEADER: usize = 30;
    let (mut members, mut read, mut at) = (0, 0, 0);
    loop {
        let found = bytes[at..].windows(4).position(|window| window == b"PK\x03\x04");
        let Some(header) = found.and_then(|found| bytes.get(at + found..)).filter(|rest| rest.len() > HEADER) else {
            return UnpackEnd::Complete;
        };
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let content = header.get(HEADER + number(26) + number(28)..).unwrap_or_default();
        if number(8) == 8 {
            if members == ARCHIVE_MEMBERS || read > MOST_READS * bytes.len() as u64 {
                return UnpackEnd::Cut;
            }
            members += 1;
            let mut decoder = DeflateDecoder::new(content);
            let (member, end) = unpacked(&mut decoder, left);
            read += decoder.total_in();
            scan(&member);
            if end == UnpackEnd::Cut {
                return end;
            }
        }
        at = bytes.len() - header.len() + 4;
    }
}

/// Reads at most `left` bytes, and subtracts their number from it.
fn unpacked(from: impl Read, left: &mut u64) -> (Vec<u8>, UnpackEnd) {
    let mut out = Vec::new();
    // Content before an error counts.
    let _ = from.take(*left + 1).read_to_end(&mut out);
    let end = if out.len() as u64 > *left { UnpackEnd::Cut } else { UnpackEnd::Complete };
    out.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= out.len() as u64;
    (out, end)
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

    /// Returns the unpacked members and whether there is more.
    fn unpack(bytes: &[u8]) -> (Vec<Vec<u8>>, UnpackEnd) {
        let (mut members, mut left) = (Vec::new(), u64::MAX);
        let end = super::unpack(bytes, &mut left, |member| members.push(member.to_vec()));
        (members, end)
    }

    /// See docs/research/threats.md#i7.
    #[test]
    fn members_of_gzip_and_zip_are_unpacked() {
        let complete =
            |members: &[&[u8]]| (members.iter().map(|member| member.to_vec()).collect::<Vec<_>>(), UnpackEnd::Complete);
        let packed = gzip(b"content");
        assert_eq!(unpack(&packed), complete(&[b"content"]));
        assert_eq!(unpack(&packed[..packed.len() - 4]), complete(&[b"content"]), "what can be read counts");
        let zip = [member("a", b"content of a"), member("bc", b"content of bc")].concat();
        assert_eq!(unpack(&zip), complete(&[b"content of a", b"content of bc"]));
        for other in
            [b"PK\x03\x04".as_slice(), b"", b"text", b"text about PK\x03\x04 headers of zip archives, and more"]
        {
            assert_eq!(unpack(other), complete(&[]));
        }
    }

    /// See docs/research/threats.md#i7.
    #[test]
    fn archives_above_the_unpacking_limit_are_cut() {
        let is_cut = |bytes: &[u8]| unpack(bytes).1 == UnpackEnd::Cut;
        let zeros = vec![0; ARCHIVE_BYTES as usize];
        assert!(!is_cut(&gzip(&zeros)));
        assert!(is_cut(&gzip(&[zeros.as_slice(), b"x"].concat())));
        assert!(is_cut(&[member("a", &zeros), member("b", b"x")].concat()));
        let many = member("a", b"x").repeat(ARCHIVE_MEMBERS);
        assert!(!is_cut(&many));
        assert!(is_cut(&[many, member("b", b"x")].concat()));
    }

    #[test]
    fn bytes_of_several_archives_are_counted_together() {
        let mut left = 10;
        let mut of_next = |content: &[u8]| super::unpack(&gzip(content), &mut left, |_| {});
        assert_eq!(of_next(b"123456"), UnpackEnd::Complete);
        assert_eq!(of_next(b"1234"), UnpackEnd::Complete);
        assert_eq!(of_next(b"1"), UnpackEnd::Cut);
    }

    /// Each member's compressed data contains all following members.
    #[test]
    fn overlapping_members_are_read_at_most_a_few_times() {
        let header = |content: &[u8]| {
            let mut header = b"PK\x03\x04\x14\0\0\0\x08\0".to_vec();
            header.resize(30, 0);
            [&header, content].concat()
        };
        // A stored block of deflate with a header in it, which is followed by the next member's block.
        let of_member = |_: usize| {
            let inner = header(&[]);
            let length = (inner.len() as u16).to_le_bytes();
            let complement = (!(inner.len() as u16)).to_le_bytes();
            [&[0][..], &length, &complement, &inner].concat()
        };
        let bytes = header(&(0..2_000).flat_map(of_member).collect::<Vec<u8>>());
        let (mut read, mut left) = (0, u64::MAX);
        let end = super::unpack(&bytes, &mut left, |member| read += member.len());
        assert_eq!(end, UnpackEnd::Cut);
        assert!(read <= 6 * bytes.len(), "{read} of {}", bytes.len());
    }
}
