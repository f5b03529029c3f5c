//! Secrets in the usual forms, and texts that are not secrets.

use data_encoding::{BASE64, BASE64URL, HEXLOWER, HEXUPPER};

use super::*;

/// See docs/research/threats.md#i7, docs/research/threats.md#s8.
#[test]
fn values_are_masked_in_every_form() {
    let secret = "p@ss/w0rd+\"näh\"~x";
    let masker = Masker::new([secret]);
    for offset in 0..6 {
        let longer = format!("{}{secret}{}", "u".repeat(offset), "z".repeat(offset));
        for text in [BASE64.encode(longer.as_bytes()), BASE64URL.encode(longer.as_bytes())] {
            assert!(masker.mask(&text).contains(MASK), "offset {offset}: {text}");
        }
    }
    for text in [
        secret.to_owned(),
        HEXLOWER.encode(secret.as_bytes()),
        HEXUPPER.encode(secret.as_bytes()),
        url::form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
        serde_json::to_string(secret).unwrap().trim_matches('"').to_owned(),
    ] {
        assert_eq!(masker.mask(&format!("<{text}>")), "<***>", "{text}");
    }
}

/// See docs/research/threats.md#s8.
#[test]
fn tokens_are_masked_by_pattern() {
    let body = "aB3".repeat(20);
    let masker = Masker::default();
    for token in [
        format!("ghp_{}", &body[..36]),
        format!("gho_{}", &body[..40]),
        format!("ghs_{}", &body[..36]),
        format!("ghs_12345_{}.{}.{}-{}_x", body.repeat(3), body.repeat(2), body, body),
        format!("github_pat_{body}"),
        format!("sk-ant-api03-{body}"),
        "AKIAIOSFODNN7EXAMPLE".to_owned(),
        format!("eyJ{body}.eyJ{body}.{body}"),
        format!(
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{body}\n{body}==\n-----END RSA PRIVATE KEY-----"
        ),
        format!("-----BEGIN PRIVATE KEY-----\\n{body}\\n-----END PRIVATE KEY-----"),
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n{body}"),
    ] {
        assert_eq!(masker.mask(&format!("a \"{token}\" b")), "a \"***\" b", "{token}");
    }
    assert_eq!(masker.mask("-H 'Authorization: Basic eDp5eg==' x"), "-H '***' x");
    assert_eq!(masker.mask(r#"{"authorization":"token abc123"}"#), r#"{"***"}"#);
    assert_eq!(masker.mask("sent Bearer abcdef0123456789=="), "sent ***");
    assert_eq!(masker.mask("clone https://me:hunter22@host/x"), "clone https***host/x");
}

/// A search that reads on from each start to the end of the text takes quadratic time.
#[test]
fn token_prefix_ends_at_the_next_token() {
    let masker = Masker::default();
    let found = |text: String| masker.found(text.as_bytes()).len();
    let keys =
        format!("{}abc\n-----END {} KEY-----", format!("-----BEGIN {} KEY-----\n", "PRIVATE").repeat(3), "PRIVATE");
    assert_eq!(found(keys), 3);
    let body = "aB3".repeat(20);
    let token = |length: usize| format!("eyJ{}.eyJ{body}.{body}", "a".repeat(length));
    assert_eq!([300, 301].map(|length| found(token(length))), [1, 0]);
}

#[test]
fn secrets_between_two_views_of_a_long_input_are_found_once() {
    let masker = Masker::new(["a-secret-value-012345"]);
    for split in ["a-secret-value-012345".to_owned(), format!("a-secret-{}value-012345", "\" + \"".repeat(1_000))] {
        let mut text = "x ".repeat(SCAN_WINDOW);
        let start = SCAN_WINDOW - 4;
        text.replace_range(start..start + split.len(), &split);
        let found = masker.found(text.as_bytes());
        let [one] = &found[..] else { panic!("{} findings", found.len()) };
        assert_eq!(one.range, start..start + split.len());
    }
}

#[test]
fn ordinary_text_is_not_masked() {
    let masker = Masker::new(["", "abc", "  \n"]);
    for text in [
        "the bearer of this letter",
        "basic operation of a token stream, Bearer authentication",
        "see https://example.org:8080/a@b and ghp_short, sk-learn, AKIA",
        "-----BEGIN PUBLIC KEY-----",
        "abc 12:30@noon",
        "",
    ] {
        assert!(matches!(masker.mask(text), Cow::Borrowed(t) if t == text), "{text}");
    }
}

#[test]
fn value_that_overlaps_a_pattern_is_masked_completely() {
    let masker = Masker::new(["abcdefghijklmnopq!rst"]);
    assert_eq!(masker.mask("Bearer abcdefghijklmnopq!rst."), "***.");
    assert_eq!(format!("{masker:?}"), "Masker");
}

#[test]
fn single_lines_of_a_long_value_are_masked() {
    let key = format!("-----BEGIN X-----\n{}\n{}\n-----END X-----", "q".repeat(64), "w".repeat(20));
    let masker = Masker::new([key]);
    assert_eq!(masker.mask(&format!("1 {}", "w".repeat(20))), "1 ***");
}

#[test]
fn secret_at_the_edge_of_a_range_is_masked() {
    let masker = Masker::new(["0123456789"]);
    let text = "ab0123456789cd";
    assert_eq!(masker.mask_range(text, 0..5), "ab***");
    assert_eq!(masker.mask_range(text, 8..14), "***cd");
    assert_eq!(masker.mask_range(text, 5..8), "***");
    assert_eq!(masker.mask_range(text, 0..2), "ab");
    assert_eq!(masker.mask_range(text, 12..14), "cd");
}
