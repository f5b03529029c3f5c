//! Secrets in every form, in streams that are cut at any position.

use super::*;

const SECRET: &str = "sk-ant-api03-Zq8/vT+1xY_73hGm~pLw0RkE";
const MARK: &[u8] = b"[key removed]";

fn percent(secret: &[u8]) -> String {
    secret.iter().map(|byte| format!("%{byte:02x}")).collect()
}

/// Texts that contain the secret, each with its name.
fn disguises(secret: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = secret.as_bytes();
    let mut all: Vec<(String, Vec<u8>)> =
        encodings_of(bytes).into_iter().map(|form| (String::from_utf8_lossy(&form).into_owned(), form)).collect();
    for offset in 0..6 {
        let longer = format!("{}{secret}{}", "u".repeat(offset), "z".repeat(offset));
        all.push((format!("base64 at {offset}"), BASE64.encode(longer.as_bytes()).into_bytes()));
        all.push((format!("url base64 at {offset}"), BASE64URL.encode(longer.as_bytes()).into_bytes()));
        all.push((
            format!("percent of base64 at {offset}"),
            percent(BASE64.encode(longer.as_bytes()).as_bytes()).into(),
        ));
    }
    let mixed: String = bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| match at % 3 {
            0 => format!("%{byte:02X}"),
            1 => format!("\\u{byte:04x}"),
            _ => char::from(*byte).into(),
        })
        .collect();
    let spaced = |with: &str| secret.chars().map(|c| format!("{c}{with}")).collect::<String>();
    let wrapped: Vec<String> =
        BASE64.encode(bytes).as_bytes().chunks(19).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    all.extend([
        ("mixed".to_owned(), mixed.into_bytes()),
        ("escaped JSON in JSON".to_owned(), bytes.iter().map(|b| format!("\\\\u{b:04x}")).collect::<String>().into()),
        ("spaced".to_owned(), spaced(" ").into()),
        ("dashed".to_owned(), spaced("-").into()),
        ("upper case".to_owned(), secret.to_uppercase().into()),
        ("wrapped base64".to_owned(), wrapped.join("\r\n").into()),
        ("wrapped base64 in JSON".to_owned(), wrapped.join("\\n").into()),
        ("hex with colons".to_owned(), bytes.iter().map(|b| format!("{b:02x}:")).collect::<String>().into()),
    ]);
    all
}

/// See docs/research/threats.md#s4.
#[test]
fn secret_is_found_in_every_form() {
    for secret in [SECRET, "sk-hunter2", "hunter"] {
        let forms = Arc::new(SecretForms::new([secret]));
        for (name, text) in disguises(secret) {
            let skips = ["spaced", "dashed", "upper case"].contains(&name.as_str());
            let short_base = name.contains("base") && secret == "hunter";
            if secret.len() < LOOSE_SYMBOLS && (skips || short_base) {
                continue;
            }
            assert!(forms.is_in(&text), "{secret}: {name}");
            assert!(!forms.find(&text).is_empty(), "{secret}: {name}");
        }
    }
}

/// See docs/research/threats.md#s4.
#[test]
fn stream_cut_anywhere_contains_no_secret() {
    let forms = Arc::new(SecretForms::new([SECRET]));
    for (name, text) in disguises(SECRET) {
        let stream = [b"data: {\"!\": \"", text.as_slice(), b"\"}\n\n"].concat();
        for size in [1, 2, 7, stream.len()] {
            let mut redactor = StreamRedactor::new(forms.clone(), MARK);
            let mut clean: Vec<u8> = stream.chunks(size).flat_map(|chunk| redactor.push(chunk)).collect();
            clean.extend(redactor.finish());
            let shown = String::from_utf8_lossy(&clean).into_owned();
            assert!(shown.starts_with("data: ") && shown.contains("[key removed]"), "{name}: {shown}");
            assert!(shown.ends_with("\"}\n\n") && redactor.replaced() > 0, "{name}: {shown}");
            assert!(!forms.is_in(&clean), "{name} in chunks of {size}: {shown}");
        }
    }
}

#[test]
fn part_of_a_secret_is_found() {
    let forms = Arc::new(SecretForms::new([SECRET]));
    assert!(forms.is_in(&SECRET.as_bytes()[..SECRET.len() - 1]));
    assert!(forms.is_in(&SECRET.as_bytes()[1..]));
    assert!(forms.find(b"nothing").is_empty());
    let text = format!("<{SECRET}>");
    assert_eq!(forms.find(text.as_bytes()).first(), Some(&(1..text.len() - 1)));
    assert_eq!(format!("{forms:?}"), "SecretForms");
}

#[test]
fn ordinary_stream_is_passed_on_at_once() {
    let forms = Arc::new(SecretForms::new([SECRET]));
    let mut redactor = StreamRedactor::new(forms, MARK);
    for event in [
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "data: {\"text\":\"books\"}\n\n",
        "data: {\"text\":\"a\\ns\"}\n\n",
    ] {
        assert_eq!(String::from_utf8_lossy(&redactor.push(event.as_bytes())), event);
    }
    assert_eq!((redactor.finish(), redactor.replaced()), (Vec::new(), 0));
}

/// Bytes that keep as many threads as possible active are read in linear time.
#[test]
fn hostile_stream_creates_few_search_threads() {
    let forms = SecretForms::new([SECRET.repeat(3)]);
    for pattern in ["%25", "\\", "s", "sk-", "%2", "\\u00"] {
        let mut scan = scan::Scan::default();
        for byte in pattern.repeat(2_000).bytes() {
            scan.next(&forms, byte);
        }
        assert!(scan.threads() < 500, "{pattern}: {}", scan.threads());
    }
}
