//! New source files in makefiles. A build needs their names, and all other lines of the makefile are the base's in the run with the base's
//! tests.

use std::collections::{HashMap, HashSet, VecDeque};

use super::commands::is_runner;
use super::config_files::is_makefile;
use super::marks::is_test_file;

/// Returns the base's version of a makefile with the names of new source files that the branch added to its lines. `None` if it added
/// none. `added` has the paths that only the branch has.
pub fn with_new_sources<'a>(
    path: &str,
    base: &str,
    branch: &str,
    added: impl Iterator<Item = &'a str>,
) -> Option<String> {
    // Sources and objects of compiled languages.
    pattern!(
        SOURCE,
        r"^[\w./+-]*\.(?:c|cc|cpp|cxx|h|hh|hpp|o|obj|lo|s|f|f90|ml|mli|cmo|cmx|cmi|hs|hi|d|nim|zig|java|class|pas|adb)$"
    );
    if !is_makefile(path) && !path.ends_with(".mk") {
        return None;
    }
    let stem = |path: &'a str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.split('.').next().unwrap_or(name)
    };
    let stems: HashSet<&str> = added.filter(|path| SOURCE.is_match(path) && !is_test_file(path)).map(stem).collect();
    let is_new = |word: &str| {
        let name = word.rsplit('/').next().unwrap_or(word);
        SOURCE.is_match(word) && stems.contains(name.split('.').next().unwrap_or(name))
    };
    let (old, new) = (base.replace("\\\n", " "), branch.replace("\\\n", " "));
    // Longer lines of the branch by their other words, and whether they start with a tab.
    let mut longer: HashMap<(String, bool), VecDeque<&str>> = HashMap::new();
    for line in new.lines().filter(|line| !is_runner(line)) {
        let rest: Vec<&str> = line.split_whitespace().filter(|word| !is_new(word)).collect();
        if rest.len() < line.split_whitespace().count() {
            longer.entry((rest.join(" "), line.starts_with('\t'))).or_default().push_back(line);
        }
    }
    let mut is_changed = false;
    let mut text = String::new();
    for line in old.lines() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_empty = words.is_empty();
        let same = longer.get_mut(&(words, line.starts_with('\t'))).filter(|_| !is_empty);
        let found = same.and_then(VecDeque::pop_front);
        is_changed |= found.is_some();
        text.push_str(found.unwrap_or(line));
        text.push('\n');
    }
    is_changed.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_sources_are_added_to_the_lists_of_the_base() {
        let base =
            "SRCS = a.c \\\n  c.c\n\ntest: build/t\n\t./build/t\n\nbuild/t: tests/t.c a.o\n\tcc -o $@ tests/t.c a.o\n";
        let merged = |branch: &str| with_new_sources("Makefile", base, branch, ["src/b.c", "b.py"].into_iter());
        let branch = base.replace("c.c", "c.c \\\n  src/b.c").replace("t.c a.o", "t.c a.o b.o");
        assert_eq!(merged(&branch).unwrap(), branch.replace("\\\n", " "));
        for branch in [
            base.replace("./build/t", "true"),
            base.replace("./build/t", "./build/t b.py"),
            base.replace("-o $@", "-DNDEBUG -o $@ b.o"),
            base.replace("a.o\n", "d.o\n"),
            base.replace("\t./build/t", "\tprove t b.o"),
        ] {
            assert_eq!(merged(&branch), None, "{branch}");
        }
        let both = base.replace("./build/t", "true").replace("  c.c", "  c.c b.c");
        assert!(merged(&both).unwrap().contains("\t./build/t\n"));
        assert_eq!(with_new_sources("check.sh", "cc a.c\n", "cc a.c b.c\n", ["b.c"].into_iter()), None);
    }
}
