//! Members of gzip files and zip archives, also of such that are members of others, and compressed parts of other files.

use std::io::Read as _;

use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::read::{DeflateDecoder, MultiGzDecoder};

/// Maximum total size that is unpacked from one file, in bytes.
const MOST_BYTES: u64 = 16 << 20;
/// Maximum number of members of a zip archive that are unpacked.
const MOST_MEMBERS: usize = 5_000;
/// Maximum number of archives of which each is a member of the one before.
const MOST_NESTED: usize = 5;
/// Maximum number of places in a file where a compressed part may begin.
const MOST_STREAMS: usize = 2_000;
/// Maximum number of archives in base64 that are unpacked of one file.
const MOST_ENCODED: usize = 100;
/// Minimum size of an unpacked part of a file, in bytes; shorter ones occur by chance.
const LEAST_STREAM: usize = 16;
/// Maximum distance of the record at the end of a zip archive from the end of the file, in bytes.
const END_RECORD: usize = 22 + 65_535;

/// Content of an archive that could be unpacked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnpackedArchive {
    /// Content of each member.
    pub(super) members: Vec<Vec<u8>>,
    /// Whether the archive has more content than may be unpacked.
    pub(super) is_cut: bool,
}

/// Returns what a gzip file, a zlib stream or the members of a zip archive contain, as far as it can be unpacked: at most 16 MiB, 5,000
/// members and five archives within each other. A zip archive may follow other data, as in a program that unpacks itself. Of zip
/// archives and other files, such as images, documents and packs of git, also the parts that are compressed by gzip or zlib. Of all
/// files also archives in base64. The limits hold for all of this together.
pub(super) fn unpack(bytes: &[u8]) -> UnpackedArchive {
    let (mut all, mut bytes_left) = (UnpackedArchive::default(), MOST_BYTES);
    all.add(bytes, &mut bytes_left, MOST_NESTED);
    let encoded = in_base64(bytes);
    all.is_cut |= encoded.len() == MOST_ENCODED;
    encoded.iter().for_each(|archive| all.add(archive, &mut bytes_left, MOST_NESTED));
    all
}

impl UnpackedArchive {
    /// Adds the members of an archive, and theirs. `nested` is the number of archives within each other that are
    /// unpacked.
    fn add(&mut self, bytes: &[u8], bytes_left: &mut u64, nested: usize) {
        let found = opened(bytes, *bytes_left);
        if found.is_some() && (nested == 0 || self.members.len() >= MOST_MEMBERS) {
            self.is_cut = true;
            return;
        }
        let mut found = found.unwrap_or_default();
        let size = |members: &[Vec<u8>]| members.iter().map(|member| member.len() as u64).sum::<u64>();
        *bytes_left -= size(&found.members);
        // A zip archive keeps what is compressed already as it is.
        if !matches!(bytes, [0x1f, 0x8b, ..] | [0x78, ..]) {
            let parts = streams(bytes, *bytes_left);
            *bytes_left -= size(&parts);
            found.members.extend(parts);
        }
        self.is_cut |= found.is_cut;
        for member in found.members {
            self.add(&member, bytes_left, nested.saturating_sub(1));
            self.members.push(member);
        }
    }
}

/// Returns the members of an archive, without theirs; `None` for other files.
fn opened(bytes: &[u8], bytes_left: u64) -> Option<UnpackedArchive> {
    let one = |(member, is_cut)| Some(UnpackedArchive { members: vec![member], is_cut });
    match bytes {
        [0x1f, 0x8b, 8, ..] => one(unpacked(MultiGzDecoder::new(bytes), bytes_left)),
        [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => one(unpacked(ZlibDecoder::new(bytes), bytes_left)),
        [b'P', b'K', 3, 4, ..] => Some(zip_members(bytes, bytes_left)),
        _ if has_end_record(bytes) => Some(zip_members(bytes, bytes_left)),
        _ => None,
    }
}

/// Returns the archives that a text contains in base64, at most 100.
fn in_base64(text: &[u8]) -> Vec<Vec<u8>> {
    // Begins of gzip files and zip archives.
    const BEGINS: [&[u8]; 2] = [b"H4sI", b"UEsD"];
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(begin) = text[at..].windows(4).position(|window| BEGINS.contains(&window)) {
        at += begin;
        let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
        // Lines of a text, of a string with escaped line ends, or of several strings.
        let length = text[at..].iter().take_while(|byte| is_digit(byte) || b"\r\n\t \\\"'>".contains(byte)).count();
        let mut digits: Vec<u8> = text[at..at + length].iter().copied().filter(is_digit).collect();
        digits.iter_mut().for_each(|digit| match digit {
            b'-' => *digit = b'+',
            b'_' => *digit = b'/',
            _ => {}
        });
        digits.truncate(digits.len() / 4 * 4);
        found.extend(data_encoding::BASE64.decode(&digits).ok());
        at += length.max(1);
        if found.len() >= MOST_ENCODED {
            break;
        }
    }
    found
}

/// Returns the parts of a file that are compressed by gzip or zlib, as far as they can be unpacked.
fn streams(bytes: &[u8], mut bytes_left: u64) -> Vec<Vec<u8>> {
    let (mut found, mut tried, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() && tried < MOST_STREAMS && bytes_left > 0 {
        let rest = &bytes[at..];
        let ((member, _), used) = match rest {
            [0x1f, 0x8b, 8, ..] => {
                let mut decoder = GzDecoder::new(rest);
                (unpacked(&mut decoder, bytes_left), rest.len() - decoder.get_ref().len())
            }
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => {
                let mut decoder = ZlibDecoder::new(rest);
                (unpacked(&mut decoder, bytes_left), usize::try_from(decoder.total_in()).unwrap_or(rest.len()))
            }
            _ => {
                at += 1;
                continue;
            }
        };
        tried += 1;
        let is_stream = member.len() >= LEAST_STREAM;
        at += if is_stream { used.max(1) } else { 1 };
        if is_stream {
            bytes_left -= member.len() as u64;
            found.push(member);
        }
    }
    found
}

/// Whether a file ends as a zip archive does.
fn has_end_record(bytes: &[u8]) -> bool {
    let end = &bytes[bytes.len().saturating_sub(END_RECORD)..];
    end.windows(4).any(|window| window == b"PK\x05\x06")
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
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

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
        let end = [b"PK\x05\x06".as_slice(), &[0; 18]].concat();
        let behind = [b"#!/bin/sh\nexec java -jar \"$0\"\n".to_vec(), zip.clone(), end].concat();
        assert_eq!(unpack(&behind), unpack(&zip), "a program before the archive");
        for other in
            [b"PK\x03\x04".as_slice(), b"", b"text", b"text about PK\x03\x04 headers of zip archives, and more"]
        {
            assert_eq!(unpack(other), UnpackedArchive::default());
        }
    }

    fn zlib(content: &[u8]) -> Vec<u8> {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        zlib.write_all(content).expect("packed");
        zlib.finish().expect("packed")
    }

    fn holds(file: &[u8], content: &[u8]) -> bool {
        unpack(file).members.iter().any(|member| member == content)
    }

    /// See docs/research/threats.md#i7.
    #[test]
    fn archives_in_archives_and_compressed_parts_are_unpacked() {
        let content = b"some content of a file";
        let mut packed = content.to_vec();
        for nested in 1..=MOST_NESTED {
            packed = gzip(&packed);
            let unpacked = unpack(&packed);
            assert!(holds(&packed, content) && !unpacked.is_cut && unpacked.members.len() == nested, "{nested}");
        }
        assert!(unpack(&gzip(&packed)).is_cut, "one more is reported");
        let mut stored = b"PK\x03\x04\x14\0\0\0\0\0".to_vec();
        stored.resize(30, 0);
        let image = [b"\x89PNG\r\n\x1a\n\0\0\0\x20zTXtComment\0\0".as_slice(), &zlib(content), b"crc IEND"].concat();
        for (name, file) in [
            ("zip in zip", member("a.zip", &member("b", content))),
            ("gzip in zip", member("a.gz", &gzip(content))),
            ("gzip that a zip archive stores", [stored, gzip(content), member("b", b"other")].concat()),
            ("gzip in a tar archive", [&[0; 512][..], &gzip(content), &[0; 1024]].concat()),
            ("text of an image", image.clone()),
            ("image in gzip", gzip(&image)),
            (
                "second object of a pack",
                [b"PACK\0\0\0\x02".as_slice(), &zlib(b"another of its objects"), b"\xb6\x01", &zlib(content)].concat(),
            ),
        ] {
            assert!(holds(&file, content), "{name}: {:?}", unpack(&file));
        }
        let encoded = |packed: &[u8]| data_encoding::BASE64.encode(packed).into_bytes();
        assert!(holds(&encoded(&gzip(content)), content) && !unpack(&encoded(&gzip(content))).is_cut);
        assert_eq!(unpack(b"1 x^2 and x\x01y are no streams, nor is \x1f\x8b\x08").members, [] as [Vec<u8>; 0]);
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
        let encoded = |content: &[u8]| data_encoding::BASE64.encode(&gzip(content));
        assert!(!unpack(encoded(&zeros).as_bytes()).is_cut);
        assert!(unpack(encoded(&[zeros.as_slice(), b"x"].concat()).as_bytes()).is_cut, "one in base64");
        assert!(unpack(format!("{};{}", encoded(&zeros), encoded(b"x")).as_bytes()).is_cut, "two in base64 together");
        assert!(unpack(format!("{};", encoded(b"x")).repeat(MOST_ENCODED).as_bytes()).is_cut, "many in base64");
    }
}
