//! Texts and commits that pass the outbound filter.

use data_encoding::BASE64;
use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::domain::model::ids::Sha;

const SECRET: &str = "Zq7Wm2-Rk9Tx4Lp8Vb3Nc6";

fn outbound() -> OutboundFilter {
    OutboundFilter::new(Masker::named([("the token of forge `work`", SECRET)]))
}

/// See docs/research/threats.md#i7, docs/research/threats.md#s8.
#[test]
fn secrets_are_replaced_by_their_names() {
    let outbound = outbound();
    let encoded = BASE64.encode(format!("user:{SECRET}").as_bytes());
    let split = format!("\"{}\" + \"{}\"", &SECRET[..9], &SECRET[9..]);
    let referenced = SECRET.replace('-', "&#45;");
    for text in [SECRET, &encoded, &split, &referenced] {
        let body = outbound.body(&format!("see {text} there"));
        assert!(body.as_str().contains("(removed: the token of forge `work`)"), "{}", body.as_str());
        assert!(!body.as_str().contains(&SECRET[10..]), "{}", body.as_str());
    }
    let json =
        outbound.json(json!({ "a": [SECRET, 1], SECRET: { "b": format!("x{SECRET}") } })).into_value().to_string();
    assert!(!json.contains(SECRET) && json.matches("removed").count() == 3, "{json}");
}

/// See docs/research/threats.md#s8.
#[test]
fn secret_is_replaced_at_every_place_in_json() {
    let outbound = outbound();
    let row =
        json!({ "clean": "clean", "text": SECRET, SECRET: "clean", "long": format!("{}{SECRET}", "x ".repeat(200)) });
    let rows = outbound.json(json!([row.clone(), row.clone(), { "clean": row }])).into_value().to_string();
    assert!(!rows.contains(SECRET), "{rows}");
    assert_eq!(rows.matches("(removed: ").count(), 9, "{rows}");
    assert_eq!(rows.matches("clean").count(), 3 * 3 + 1, "{rows}");
}

#[test]
fn learned_values_are_removed() {
    let outbound = outbound();
    let (other, clone) = ("learned-0123456789-ABC", outbound.clone());
    assert_eq!(outbound.answer(other).as_str(), other);
    clone.learn("a token of a run", &SecretString::from(other));
    clone.learn("again", &SecretString::from(other));
    clone.learn("known", &SecretString::from(SECRET));
    assert_eq!(outbound.answer(other).as_str(), "(removed: a token of a run)");
    assert_eq!(format!("{outbound:?}"), "OutboundFilter");
    let token = |n: usize| format!("token-{n:02}-9f8a7b6c5d4e");
    for n in 0..40 {
        outbound.learn("a later token", &SecretString::from(token(n)));
    }
    let removed = |n: usize| outbound.answer(&token(n)).as_str() == "(removed: a later token)";
    assert!((8..40).all(removed), "at least 32 values are remembered");
    assert!(!removed(0) && outbound.answer(other).as_str() == other, "tokens that ended long ago are forgotten");
}

/// See docs/research/threats.md#g16, docs/research/threats.md#i8.
#[test]
fn messages_of_commits_have_no_foreign_effects() {
    let trailers = [
        Trailer::Loop("r-42-abc".into()),
        Trailer::CoAuthor("mona".into(), 7, "forge.example".into()),
        Trailer::CoAuthor("x\ny".into(), 7, "forge.example".into()),
        Trailer::SignedOff(CommitAuthor { name: "bot".into(), email: "bot@forge.example".into() }),
        Trailer::SignedOff(CommitAuthor { name: "x\ny".into(), email: "bot@forge.example".into() }),
    ];
    let lines = ["- a: fixes #2\nSigned-off-by: Eve <e@x>".to_owned()];
    let message =
        outbound().message(&format!("ralph: fixes #1 [skip ci]\n\nSkip-Checks: true {SECRET}"), &lines, &trailers);
    assert_eq!(
        message.as_str(),
        "ralph: fixes no. 1 (skip ci) Skip Checks: true (removed: the token of forge `work`)\n\n\
         - a: fixes no. 2 Signed-off-by: Eve <e(at)x>\n\nRalph-Loop: r-42-abc\n\
         Co-authored-by: mona <7+mona@users.noreply.forge.example>\nSigned-off-by: bot <bot@forge.example>\n"
    );
}

/// See docs/research/threats.md#i9.
#[test]
fn bodies_and_titles_have_no_invisible_characters() {
    assert_eq!(outbound().body("a\u{202e}b\u{200b} ⚠️\n\tc").as_str(), "ab ⚠️\n\tc");
    assert_eq!(outbound().title("a\u{2066}\nb").as_str(), "a b");
    let words = "`[skip ci]` [CI-Skip] [1, 2] [no. 1](x) ***NO_CI***\nskip-checks: true [ no\nci ]";
    let inert = "`(skip ci)` (CI-Skip) [1, 2] [no. 1](x) NO CI\nskip checks: true ( no\nci )";
    assert_eq!(outbound().body(words).as_str(), inert);
    assert_eq!(outbound().body(inert).as_str(), inert);
}

/// See docs/research/threats.md#i7, docs/research/threats.md#g11.
#[test]
fn objects_with_secrets_are_not_cleared() {
    let outbound = outbound();
    let id = Sha::parse(&"a".repeat(40)).expect("an id");
    let clean = ObjectScan::new(&outbound).finish(&id).expect("nothing was scanned");
    assert_eq!(clean.commit(), &id);
    let scans: [(&str, &dyn Fn(&mut ObjectScan<'_>)); 6] = [
        ("message", &|scan| scan.commit(&id, format!("author x <{SECRET}>").as_bytes())),
        ("branch", &|scan| scan.branch(&format!("ralph/{SECRET}"))),
        ("name", &|scan| scan.path(format!("src/{SECRET}.txt").as_bytes())),
        ("name", &|scan| scan.path("src/a\u{202e}txt.rs".as_bytes())),
        ("could not", &|scan| scan.unscanned(b"big", "too large")),
        ("`f`, line 2", &|scan| {
            let content = format!("\n\0{SECRET}");
            let found = scan.content(content.as_bytes());
            scan.report(b"f", content.as_bytes(), found, Some(b"other"));
        }),
    ];
    for (word, scan_it) in scans {
        let mut scan = ObjectScan::new(&outbound);
        scan_it(&mut scan);
        let leak = scan.finish(&id).expect_err(word).to_string();
        assert!(leak.contains(word) && !leak.contains(SECRET), "{leak}");
    }
    let mut scan = ObjectScan::new(&outbound);
    let content = format!("new\n{SECRET}\n");
    let found = scan.content(content.as_bytes());
    scan.report(b"f", content.as_bytes(), found, Some(SECRET.as_bytes()));
    scan.path("src/ü-✔️.rs".as_bytes());
    assert!(scan.finish(&id).is_ok(), "it was there before");
}

/// The list of invisible characters is complete.
#[test]
fn default_ignorable_characters_are_invisible() {
    let ignorable = regex::Regex::new(r"^[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}]$").expect("a pattern");
    let seen = |c: &char| ignorable.is_match(c.encode_utf8(&mut [0; 4])) && !is_invisible(*c);
    assert_eq!(('\0'..=char::MAX).filter(seen).collect::<Vec<_>>(), Vec::<char>::new());
}
