//! Beginnings of the tests and sections that changed lines are in, where the diff does not show them.
//!
//! A diff shows three lines around a change. In a long test, its name is out of sight then, and so is whether the changed lines
//! are in a test at all. Hunks are extended by the lines of the changed file, up to the beginning of the function around them.
//! A hunk of a file with sections, such as `pyproject.toml`, gets the name of its section as the heading.

use std::collections::{BTreeSet, HashMap};

use super::blocks::{TextReader, indent};
use super::diff::{self, DiffLine, FileDiff, Hunk, LineChange};
use super::language::{Language, is_test_path};

/// Maximum number of lines between the beginning of a function and the changed lines.
const MOST_LINES: usize = 300;
/// Maximum number of lines that are added to a diff.
const MOST_LINES_OF_DIFF: usize = 100_000;
/// Maximum number of files that are extended.
const MOST_FILES: usize = 500;

/// Texts of changed files after the change, by path.
pub type ChangedTexts = HashMap<String, Vec<u8>>;

/// Returns the paths of files in which the beginning of a test or section may be out of sight.
pub fn files_to_extend(diff: &str) -> BTreeSet<String> {
    let files = diff::parse(diff).into_iter();
    let extended = files.filter(|file| has_sections(file) || language_to_extend(file).is_some());
    extended.filter_map(|file| file.new).take(MOST_FILES).collect()
}

/// Whether a changed file consists of sections of which some configure checks.
fn has_sections(file: &FileDiff) -> bool {
    let name = file.path().rsplit('/').next().unwrap_or_default();
    !file.is_new() && !file.is_deleted() && ["pyproject.toml", "setup.cfg"].contains(&name)
}

/// Returns the language of a file with tests that has a hunk inside a block.
fn language_to_extend(file: &FileDiff) -> Option<Language> {
    if file.is_new() || file.is_deleted() {
        return None;
    }
    let language = file.new.as_deref().and_then(Language::of)?;
    let shows_tests = |hunk: &Hunk| {
        let mut texts = hunk.lines.iter().map(|line| line.text.as_str()).chain([hunk.heading.as_str()]);
        texts.any(|text| text.contains("mod test") || text.contains("cfg(test)"))
    };
    let has_tests = file.paths().any(is_test_path) || language == Language::Rust && file.hunks.iter().any(shows_tests);
    (has_tests && file.hunks.iter().any(|hunk| level(hunk).is_some_and(|level| level > 0))).then_some(language)
}

/// Returns the indentation of the first line of a hunk that is not blank.
fn level(hunk: &Hunk) -> Option<usize> {
    hunk.lines.iter().find(|line| !line.text.trim().is_empty()).map(|line| indent(&line.text))
}

/// Extends the hunks of tests to the beginning of the function that their first line is in, and gives hunks of sections the
/// heading of theirs. A file whose text does not fit its hunks is left as it is.
pub(super) fn extend(files: &mut [FileDiff], texts: &ChangedTexts) {
    let mut left = MOST_LINES_OF_DIFF;
    for file in files {
        let Some(text) = file.new.as_ref().and_then(|path| texts.get(path)) else { continue };
        let text = String::from_utf8_lossy(text);
        let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
        if !file.hunks.iter().all(|hunk| fits(&lines, hunk)) {
            continue;
        }
        if has_sections(file) {
            for hunk in &mut file.hunks {
                let section = lines[..first_number(hunk)].iter().rev().find(|line| line.starts_with('['));
                hunk.heading = section.map_or_else(String::new, |line| (*line).to_owned());
            }
        } else if let Some(language) = language_to_extend(file) {
            extend_file(file, &ChangedSource::of(lines, language), &mut left);
        }
    }
}

/// Whether the lines of a hunk after the change are at their places.
fn fits(lines: &[&str], hunk: &Hunk) -> bool {
    let mut kept = hunk.lines.iter().filter(|line| line.change != LineChange::Removed);
    kept.all(|line| lines.get((line.number as usize).wrapping_sub(1)).is_some_and(|text| *text == line.text))
        && first_number(hunk) <= lines.len()
}

fn extend_file(file: &mut FileDiff, source: &ChangedSource<'_>, left: &mut usize) {
    let mut extended: Vec<Hunk> = Vec::new();
    for mut hunk in std::mem::take(&mut file.hunks) {
        let start = first_number(&hunk);
        let above = extended.last().map_or(0, next_number);
        let beginning = level(&hunk).and_then(|level| source.beginning(start, level));
        let Some(first) = beginning.filter(|first| start.saturating_sub((*first).max(above)) <= *left) else {
            extended.push(hunk);
            continue;
        };
        let between = first.max(above)..start;
        *left -= between.len();
        let context = |number: usize| DiffLine {
            change: LineChange::Context,
            number: u32::try_from(number + 1).unwrap_or(u32::MAX),
            text: source.lines[number].to_owned(),
        };
        match extended.last_mut().filter(|_| first < above) {
            Some(before) => {
                before.lines.extend(between.map(context));
                before.lines.append(&mut hunk.lines);
            }
            None => {
                hunk.lines.splice(0..0, between.map(context));
                hunk.heading = source.heading(first).to_owned();
                extended.push(hunk);
            }
        }
    }
    file.hunks = extended;
}

/// Returns the 0-based number of the first line of a hunk after the change.
fn first_number(hunk: &Hunk) -> usize {
    hunk.lines.first().map_or(0, |line| (line.number as usize).saturating_sub(1))
}

/// Returns the 0-based number of the line that follows a hunk after the change.
fn next_number(hunk: &Hunk) -> usize {
    let last = hunk.lines.last();
    last.map_or(0, |line| line.number as usize - usize::from(line.change == LineChange::Removed && line.number > 0))
}

/// Text of a changed file.
struct ChangedSource<'a> {
    language: Language,
    lines: Vec<&'a str>,
    /// Whether each line is inside a string of several lines.
    in_text: Vec<bool>,
}

impl<'a> ChangedSource<'a> {
    fn of(lines: Vec<&'a str>, language: Language) -> Self {
        let mut reader = TextReader::of(language);
        let in_text = lines.iter().map(|line| reader.take(line)).collect();
        Self { language, lines, in_text }
    }

    /// Returns the 0-based number of the line that begins the test or function around a line, or of its first attribute.
    /// `start` is the 0-based number of the line, and `level` its indentation.
    fn beginning(&self, start: usize, mut level: usize) -> Option<usize> {
        let lowest = start.saturating_sub(MOST_LINES);
        for at in (lowest..start).rev() {
            let line = self.lines[at];
            let begins_nothing = self.in_text[at]
                || line.trim().is_empty()
                || line.trim_start().starts_with(['{', '}', ')', ']', '#'])
                || self.language.is_comment(line)
                || indent(line) >= level;
            if begins_nothing {
                continue;
            }
            level = indent(line);
            if self.language.test_name(line, true).is_some() || self.language.helper_name(line).is_some() {
                return Some(self.with_attributes(at, lowest));
            }
            if level == 0 {
                return None;
            }
        }
        None
    }

    /// Returns the number of the first line of the attributes and comments directly before a line.
    fn with_attributes(&self, mut at: usize, lowest: usize) -> usize {
        let level = indent(self.lines[at]);
        let attribute = |line: &str| {
            let text = line.trim_start();
            let marks = ["@", "#[", "/*", "* ", "*/", "//"];
            indent(line).abs_diff(level) <= 1 && marks.iter().any(|mark| text.starts_with(mark))
        };
        while at > lowest && attribute(self.lines[at - 1]) {
            at -= 1;
        }
        at
    }

    /// Returns the heading that git gives to a hunk that begins with this line.
    fn heading(&self, first: usize) -> &'a str {
        let begins = |line: &&&str| line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$');
        self.lines[..first].iter().rev().find(begins).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model::task::{TamperFinding, TamperKind};
    use crate::domain::trust::tamper::{scan, scan_with};

    /// Returns the diff between two texts as git gives it, and the text after the change.
    fn changed(path: &str, old: &str, new: &str) -> (String, ChangedTexts) {
        let body = similar::TextDiff::from_lines(old, new).unified_diff().context_radius(3).to_string();
        let diff = format!("diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n{body}");
        (diff, [(path.to_owned(), new.as_bytes().to_vec())].into())
    }

    fn found(path: &str, old: &str, new: &str) -> Vec<TamperFinding> {
        let (diff, texts) = changed(path, old, new);
        scan_with(&diff, &texts)
    }

    /// Tests whose last line, an assertion, is far from the first one.
    const LONG_TESTS: [(&str, &str); 7] = [
        (
            "src/test/java/CartTest.java",
            "class CartTest {\n\n    @Test\n    void adds() {\n        Cart cart = new Cart();\n        cart.add(1);\n        cart.add(2);\n        cart.add(3);\n        cart.close();\n        assertEquals(6, cart.total());\n    }\n}\n",
        ),
        (
            "test/cart.test.js",
            "describe('cart', () => {\n  it('adds', () => {\n    const cart = new Cart();\n    cart.add(1);\n    cart.add(2);\n    cart.add(3);\n    cart.close();\n    expect(cart.total()).toBe(6);\n  });\n});\n",
        ),
        (
            "test_cart.py",
            "class TestCart(TestCase):\n    def test_adds(self):\n        cart = Cart()\n        cart.add(1)\n        cart.add(2)\n        cart.add(3)\n        cart.close()\n        self.assertEqual(cart.total(), 6)\n",
        ),
        (
            "spec/cart_spec.rb",
            "RSpec.describe Cart do\n  it \"adds\" do\n    cart = Cart.new\n    cart.add(1)\n    cart.add(2)\n    cart.add(3)\n    cart.close\n    expect(cart.total).to eq(6)\n  end\nend\n",
        ),
        (
            "tests/CartTest.php",
            "<?php\nclass CartTest extends TestCase\n{\n    public function testAdds(): void\n    {\n        $cart = new Cart();\n        $cart->add(1);\n        $cart->add(2);\n        $cart->add(3);\n        $cart->close();\n        $this->assertSame(6, $cart->total());\n    }\n}\n",
        ),
        (
            "src/cart.rs",
            "pub struct Cart;\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn adds() {\n        let mut cart = Cart;\n        cart.add(1);\n        cart.add(2);\n        cart.add(3);\n        cart.close();\n        assert_eq!(cart.total(), 6);\n    }\n}\n",
        ),
        (
            "test/cart.bats",
            "setup() {\n  load helper\n}\n\n@test \"adds\" {\n  cart=$(new_cart)\n  add 1\n  add 2\n  add 3\n  close\n  [ \"$(total)\" = 6 ]\n}\n",
        ),
    ];

    #[test]
    fn assertion_removed_far_from_the_beginning_of_its_test_blocks() {
        for (path, old) in LONG_TESTS {
            let gone = ["assert", "expect", "[ \""];
            let kept: Vec<&str> =
                old.lines().filter(|line| !gone.iter().any(|word| line.trim_start().contains(word))).collect();
            let new = kept.join("\n") + "\n";
            assert_ne!(old, new, "{path}");
            // Rust's module of tests is named by the heading only.
            let (diff, texts) = changed(path, old, &new);
            let diff = if path.ends_with(".rs") { diff.replacen(" @@\n", " @@ mod tests {\n", 1) } else { diff };
            assert_eq!(files_to_extend(&diff), [path.to_owned()].into(), "{path}");
            let found = scan_with(&diff, &texts);
            assert!(
                found.iter().any(|one| one.blocks() && one.kind == TamperKind::AssertionRemoved),
                "{path}: {found:?}\n{diff}"
            );
        }
    }

    #[test]
    fn setting_far_from_the_name_of_its_section_is_found() {
        let other: String = (0..9).map(|number| format!("option{number} = 1\n")).collect();
        let old = format!("[tool.black]\nline = 1\n\n[tool.pytest.ini_options]\n{other}mode = [\"a\"]\n");
        let new = old.replace("[\"a\"]", "[\"a\", \"slow\"]");
        let (diff, texts) = changed("pyproject.toml", &old, &new);
        let found = scan_with(&diff, &texts);
        assert!(found.iter().any(|one| one.kind == TamperKind::CheckConfigEdited), "{found:?}");
        assert_eq!(scan(&diff), []);
        let old = format!("[tool.pytest.ini_options]\nx = 1\n\n[tool.black]\n{other}exclude = [\"a\"]\n");
        let (diff, texts) = changed("pyproject.toml", &old, &old.replace("[\"a\"]", "[\"b\"]"));
        assert_eq!(scan_with(&diff, &texts), scan(&diff));
    }

    #[test]
    fn hunks_of_one_test_are_joined() {
        let steps: String = (0..20).map(|number| format!("    cart.add({number})\n")).collect();
        let old = format!(
            "def test_a():\n    cart = Cart()\n    assert cart.is_empty()\n{steps}    assert cart.total() == 190\n\n\ndef test_b():\n    pass\n"
        );
        let new = old.replace("is_empty()", "is_empty() is True").replace(" == 190", " == 190.0");
        let (diff, texts) = changed("test_cart.py", &old, &new);
        let mut files = diff::parse(&diff);
        assert_eq!(files[0].hunks.len(), 2);
        extend(&mut files, &texts);
        assert_eq!(files[0].hunks.len(), 1);
        let kept = files[0].hunks[0].lines.iter().filter(|line| line.change != LineChange::Removed);
        let numbers: Vec<u32> = kept.map(|line| line.number).collect();
        assert_eq!(numbers, (1..=u32::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
    }

    #[test]
    fn lines_of_functions_that_ended_are_not_extended_to_them() {
        let old = "def test_a():\n    assert f() == 1\n    assert f() == 2\n    assert f() == 3\n    assert f() == 4\n\nCASES = [\n    1,\n    2,\n    3,\n    4,\n    5,\n]\n";
        let (diff, texts) = changed("test_cart.py", old, &old.replace("    4,\n", "    6,\n"));
        let mut files = diff::parse(&diff);
        extend(&mut files, &texts);
        assert_eq!(files, diff::parse(&diff));
    }

    #[test]
    fn helper_far_from_its_beginning_stays_a_helper() {
        let old = "class TestCart(TestCase):\n    def make(self):\n        cart = Cart()\n        cart.add(1)\n        cart.add(2)\n        cart.add(3)\n        cart.close()\n        self.assertEqual(cart.total(), 6)\n        return cart\n";
        let found = found("test_cart.py", old, &old.replace("        self.assertEqual(cart.total(), 6)\n", ""));
        assert!(!found.is_empty() && found.iter().all(|one| !one.blocks()), "{found:?}");
    }

    #[test]
    fn texts_that_do_not_fit_the_diff_are_ignored() {
        let (path, old) = LONG_TESTS[0];
        let (diff, _) = changed(path, old, &old.replace("        assertEquals(6, cart.total());\n", ""));
        for text in ["", "\n\n\n\n\n\n\n\n\n\n\n", old] {
            let texts: ChangedTexts = [(path.to_owned(), text.as_bytes().to_vec())].into();
            assert_eq!(scan_with(&diff, &texts), scan(&diff), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn extended_hunks_have_the_same_changes_and_no_gaps(
            old in "(( {0,8}(def test_a\\(|x = 1|assert f|class A:|@a|\\}|\"\"\"|# c)?|)\n){0,60}",
            added in "( {0,8}(def test_b\\(|assert g)\n){1,3}",
            at in 0_usize..60,
            removed in 0_usize..4,
        ) {
            let mut lines: Vec<&str> = old.split_inclusive('\n').collect();
            let at = at.min(lines.len());
            let end = (at + removed).min(lines.len());
            lines.splice(at..end, added.split_inclusive('\n'));
            for path in ["tests/test_a.py", "tests/a.rs", "test/a.bats", "spec/a_spec.rb"] {
                let (diff, texts) = changed(path, &old, &lines.concat());
                let before = diff::parse(&diff);
                let mut after = before.clone();
                extend(&mut after, &texts);
                let changes = |files: &[FileDiff]| -> Vec<DiffLine> {
                    let lines = files.iter().flat_map(|file| &file.hunks).flat_map(|hunk| &hunk.lines);
                    lines.filter(|line| line.change != LineChange::Context).cloned().collect()
                };
                proptest::prop_assert_eq!(changes(&before), changes(&after));
                for hunk in after.iter().flat_map(|file| &file.hunks) {
                    let kept: Vec<u32> =
                        hunk.lines.iter().filter(|line| line.change != LineChange::Removed).map(|line| line.number).collect();
                    proptest::prop_assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{:?}", kept);
                }
            }
        }
    }
}
