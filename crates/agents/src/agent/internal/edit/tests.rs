//! Real files in real trees, with links and pipes that an agent could create.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct EditFixture {
    root: tempfile::TempDir,
    top: PathBuf,
    read_only: Vec<PathBuf>,
}

impl EditFixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().canonicalize().unwrap().join("tree");
        fs::create_dir_all(top.join("src")).unwrap();
        fs::create_dir_all(top.join("kept")).unwrap();
        fs::write(top.join("src/a.txt"), "one\ntwo\nthree\n").unwrap();
        fs::write(top.parent().unwrap().join("outside.txt"), "secret").unwrap();
        Self { root, read_only: vec![top.join("kept")], top }
    }

    fn edit(&self, arguments: Value) -> Result<String, String> {
        let edit = serde_json::from_value::<EditCommand>(arguments).map_err(|error| error.to_string())?;
        Tree { top: &self.top, read_only: &self.read_only }.edit(edit).map_err(|failure| failure.to_string())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.top.join(path)).unwrap()
    }
}

#[test]
fn files_are_shown_created_and_changed() {
    let place = EditFixture::new();
    let full = place.top.join("src/a.txt");
    let listing = "     1\tone\n     2\ttwo\n     3\tthree\n";
    assert_eq!(place.edit(json!({"command": "view", "path": "src/a.txt"})).unwrap(), listing);
    assert_eq!(place.edit(json!({"command": "view", "path": full, "view_range": null})).unwrap(), listing);
    let part = place.edit(json!({"command": "view", "path": "./src/a.txt", "view_range": [2, 99]})).unwrap();
    assert_eq!(part, "     2\ttwo\n     3\tthree\n");
    assert_eq!(place.edit(json!({"command": "view", "path": "."})).unwrap(), "kept/\nsrc/");
    assert_eq!(place.edit(json!({"command": "view", "path": "kept"})).unwrap(), "(an empty folder)");

    let made = place.edit(json!({"command": "create", "path": "new/deep/b.txt", "file_text": "x\ny"})).unwrap();
    assert_eq!((made.as_str(), place.read("new/deep/b.txt").as_str()), ("new/deep/b.txt is made (2 lines).", "x\ny"));
    let again = place.edit(json!({"command": "create", "path": "new/deep/b.txt", "file_text": ""})).unwrap();
    assert_eq!((again.as_str(), place.read("new/deep/b.txt").as_str()), ("new/deep/b.txt is replaced (0 lines).", ""));

    fs::set_permissions(&full, fs::Permissions::from_mode(0o750)).unwrap();
    let answer = place
        .edit(json!({"command": "str_replace", "path": "src/a.txt", "old_str": "two\nth", "new_str": "2\nTH"}))
        .unwrap();
    assert!(answer.starts_with("src/a.txt is changed at line 2:\n     1\tone\n     2\t2\n     3\tTHree\n"), "{answer}");
    assert_eq!(place.read("src/a.txt"), "one\n2\nTHree\n");
    assert_eq!(fs::metadata(&full).unwrap().permissions().mode() & 0o777, 0o750);
    let answer =
        place.edit(json!({"command": "insert", "path": "src/a.txt", "insert_line": 1, "insert_text": "1½"})).unwrap();
    assert!(answer.contains("     2\t1½\n"), "{answer}");
    assert_eq!(place.read("src/a.txt"), "one\n1½\n2\nTHree\n");
    assert_eq!(fs::read_dir(place.top.join("src")).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn ambiguous_replacements_are_refused() {
    for (text, old, new, expected) in [
        ("aXb", "X", "", Ok("ab")),
        ("a\r\nb\r\nc\r\n", "a\nb", "1\n2", Ok("1\r\n2\r\nc\r\n")),
        ("XX", "X", "Y", Err("2 times")),
        ("a b", "a  b", "c", Err("is not in f.")),
        ("  a b", "a b \n", "c", Err("blanks at its ends")),
        ("a", "", "c", Err("old_str is empty")),
    ] {
        let made = replaced("f", text, old, new);
        match expected {
            Ok(expected) => assert_eq!(made.expect("made"), expected),
            Err(words) => {
                assert!(made.as_ref().is_err_and(|said| said.to_string().contains(words)), "{old:?}: {made:?}")
            }
        }
    }
    for (text, after, new, expected) in [
        ("", 0, "a", Ok("a\n")),
        ("a", 1, "b\n", Ok("a\nb\n")),
        ("a\nb\n", 0, "x", Ok("x\na\nb\n")),
        ("a\nb\n", 2, "x", Ok("a\nb\nx\n")),
        ("a\n", 2, "x", Err("line 2 does not exist")),
    ] {
        let made = inserted("f", text, after, new);
        match expected {
            Ok(expected) => assert_eq!(made.expect("made"), expected),
            Err(words) => assert!(made.as_ref().is_err_and(|said| said.to_string().contains(words)), "{made:?}"),
        }
    }
}

/// See docs/research/threats.md#g9.
#[test]
fn paths_outside_of_the_tree_are_refused() {
    let place = EditFixture::new();
    let outside = place.root.path().canonicalize().unwrap().join("outside.txt");
    symlink(&outside, place.top.join("link.txt")).unwrap();
    symlink(place.root.path(), place.top.join("up")).unwrap();
    fs::hard_link(&outside, place.top.join("hard.txt")).unwrap();
    rustix::fs::mknodat(CWD, place.top.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::create_dir(place.top.join(".git")).unwrap();
    for (path, words) in [
        ("../outside.txt", "without `..`"),
        ("src/../../outside.txt", "without `..`"),
        ("src/../src/a.txt", "without `..`"),
        ("/etc/passwd", "outside of the work tree"),
        (outside.to_str().unwrap(), "outside of the work tree"),
        ("link.txt", "link"),
        ("up/outside.txt", "links are not followed"),
        ("pipe", "not a regular file"),
        ("src/a.txt/b", "not a folder"),
        ("", "the path is empty"),
        ("a\0b", "the path is empty"),
    ] {
        for arguments in [
            json!({"command": "view", "path": path}),
            json!({"command": "create", "path": path, "file_text": "x"}),
            json!({"command": "str_replace", "path": path, "old_str": "secret", "new_str": "x"}),
            json!({"command": "insert", "path": path, "insert_line": 0, "insert_text": "x"}),
        ] {
            let error = place.edit(arguments.clone()).unwrap_err();
            assert!(error.contains(words), "{arguments}: {error}");
        }
    }
    for path in ["kept/new.txt", ".git/hooks/post-commit", "kept"] {
        let refusal = place.edit(json!({"command": "create", "path": path, "file_text": "x"})).unwrap_err();
        assert!(refusal.contains("may only be read"), "{path}: {refusal}");
    }
    for path in ["src", "."] {
        let said = place.edit(json!({"command": "create", "path": path, "file_text": "x"})).unwrap_err();
        assert!(said.contains("not a regular file") || said.contains("expected the path of a file"), "{path}: {said}");
    }
    // Hard links to other files are not written through.
    place.edit(json!({"command": "create", "path": "hard.txt", "file_text": "mine"})).unwrap();
    assert_eq!((fs::read_to_string(&outside).unwrap().as_str(), place.read("hard.txt").as_str()), ("secret", "mine"));
}

#[test]
fn large_and_binary_files_are_refused() {
    let place = EditFixture::new();
    fs::write(place.top.join("big"), vec![b'x'; MAX_FILE as usize + 1]).unwrap();
    assert!(place.edit(json!({"command": "view", "path": "big"})).unwrap_err().contains("larger than"));
    fs::write(place.top.join("wide"), vec![b'x'; 100_000]).unwrap();
    let wide = place.edit(json!({"command": "view", "path": "wide"})).unwrap();
    assert!(wide.len() < MAX_SHOWN && wide.contains("cut at line 1 of 1"), "{}", wide.len());
    fs::write(place.top.join("long"), "line\n".repeat(9_000)).unwrap();
    let long = place.edit(json!({"command": "view", "path": "long"})).unwrap();
    assert!(long.len() < 3 * MAX_SHOWN && long.contains("of 9000; ask for a view_range"), "{}", long.len());
    fs::write(place.top.join("binary"), [0xff, 0xfe, b'a']).unwrap();
    assert!(place.edit(json!({"command": "view", "path": "binary"})).is_ok());
    let error = place.edit(json!({"command": "str_replace", "path": "binary", "old_str": "a", "new_str": "b"}));
    assert!(error.unwrap_err().contains("not UTF-8 text"));
    for range in [json!([5, 9]), json!([3, 2]), json!([-5, 0])] {
        let error = place.edit(json!({"command": "view", "path": "src/a.txt", "view_range": range}));
        assert!(error.as_ref().is_err_and(|error| error.contains("there are none")), "{error:?}");
    }
    let huge = "x".repeat(MAX_FILE as usize + 1);
    assert!(
        place.edit(json!({"command": "create", "path": "c", "file_text": huge})).unwrap_err().contains("too large")
    );
    for arguments in [
        json!({"command": "delete", "path": "a"}),
        json!({"command": "view"}),
        json!({"command": "create", "path": "a"}),
        json!({"command": "insert", "path": "a", "insert_line": -1, "insert_text": ""}),
        json!([]),
    ] {
        assert!(place.edit(arguments).is_err());
    }
}

/// See docs/research/threats.md#g9.
#[test]
fn random_paths_never_leave_the_tree() {
    use proptest::test_runner::TestRunner;
    let place = EditFixture::new();
    let tried = TestRunner::new(test_support::cases(128)).run(&r"[./a~ -]{0,12}", |path| {
        let _ = place.edit(json!({"command": "create", "path": path, "file_text": "x"}));
        let _ = place.edit(json!({"command": "view", "path": path}));
        proptest::prop_assert_eq!(fs::read_dir(place.root.path()).unwrap().count(), 2);
        Ok(())
    });
    tried.unwrap();
}
