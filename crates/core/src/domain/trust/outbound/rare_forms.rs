//! Forms of a secret that programs for text make and that few texts have: base85 in three alphabets, base32 in the order of its digits,
//! uuencode, binary and octal digits, and letters moved by half of the alphabet.

use std::sync::LazyLock;

use data_encoding::{BASE32HEX, Encoding, Specification};

use crate::domain::trust::secret_forms::inner_digits;

/// Digits of the alphabets of base85: Ascii85, that of git and Python, and that of ZeroMQ.
const BASE85: [&[u8; 85]; 3] = [
    b"!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstu",
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
];
static UUENCODE: LazyLock<Encoding> =
    LazyLock::new(|| encoding("`!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_"));
static BINARY: LazyLock<Encoding> = LazyLock::new(|| encoding("01"));

/// Returns a part of a secret in these forms, for each position in which it can stand among other bytes.
pub(super) fn rare_forms(part: &[u8]) -> Vec<Vec<u8>> {
    let mut forms: Vec<Vec<u8>> = (0..4).flat_map(|offset| base85(part, offset)).collect();
    let digits = |offset, bits, encoding: &Encoding| {
        inner_digits(part, offset, bits, (encoding, encoding)).into_iter().map(|(digit, _)| digit).collect()
    };
    forms.extend((0..5).map(|offset| digits(offset, 5, &BASE32HEX)));
    forms.extend((0..3).map(|offset| digits(offset, 6, &UUENCODE)));
    forms.push(digits(0, 1, &BINARY));
    forms.push(part.iter().map(|byte| format!("{byte:03o}")).collect::<String>().into_bytes());
    forms.push(part.iter().map(|byte| moved(*byte)).collect());
    forms
}

/// Returns the groups of four bytes that lie within a part behind `offset` other bytes, as five digits of each alphabet.
fn base85(part: &[u8], offset: usize) -> [Vec<u8>; 3] {
    let begin = (4 - offset) % 4;
    let groups = part.get(begin..).unwrap_or_default().chunks_exact(4);
    let values: Vec<u32> =
        groups.map(|group| group.iter().fold(0, |value: u32, byte| value << 8 | u32::from(*byte))).collect();
    let of = |alphabet: &[u8; 85]| {
        let group = |value: &u32| [85_u32.pow(4), 85_u32.pow(3), 85 * 85, 85, 1].map(|unit| (value / unit) % 85);
        values.iter().flat_map(group).map(|digit| alphabet[digit as usize]).collect()
    };
    BASE85.map(of)
}

/// Creates an encoding from its digits.
fn encoding(digits: &str) -> Encoding {
    let mut specification = Specification::new();
    specification.symbols.push_str(digits);
    specification.encoding().expect("distinct ASCII digits, whose number is a power of two")
}

/// Moves a letter by half of the alphabet.
fn moved(byte: u8) -> u8 {
    match byte {
        b'a'..=b'm' | b'A'..=b'M' => byte + 13,
        b'n'..=b'z' | b'N'..=b'Z' => byte - 13,
        _ => byte,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are what Python's `base64`, `binascii` and `codecs` make.
    #[test]
    fn forms_are_those_of_usual_programs() {
        let has = |part: &[u8], form: &str| {
            let forms = rare_forms(part);
            assert!(forms.iter().any(|one| one == form.as_bytes()), "{form} of {forms:?}");
        };
        let part = b"Kq7vZ2mX9pLw";
        for form in [
            "95un6=u'qs3H.Z9",
            "OK~@LS~6`|IdDvO",
            "9DOJETIQ69MLGEBG9HR",
            "2W$W=EHR;5@Y<$QW",
            "Xd7iM2zK9cYj",
            // Behind one and two other bytes.
            "G$6Y<=?1=o",
            "5N2DRMB8P6QM1PE167",
            "+<3=V6C)M6#EP3'",
        ] {
            has(part, form);
        }
        has(b"\x86\x4f\xd2\x6f\xb5\x59\xf7\x5b", "HelloWorld");
        has(b"Kq7", "113161067");
        has(b"Kq7", "010010110111000100110111");
    }
}
