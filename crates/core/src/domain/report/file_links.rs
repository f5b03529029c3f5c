//! Links from file names in a text to the files' pages at a commit.

use std::collections::{BTreeSet, HashMap};

use super::compose::named_lines_of;
use super::view::{CheckLine, FailureLocation, View};
use crate::domain::loops::Loop;
use crate::domain::model::ids::Sha;
use crate::domain::model::task::TamperFinding;

/// Maximum number of failing checks' locations in a text.
pub const MAX_PLACES: usize = 10;
/// Maximum number of links in a text.
const MAX_LINKS: usize = 60;

/// Returns the commit of the files mentioned in a text; `None` if the text mentions no files.
pub fn linked_commit(current: &Loop, view: &View) -> Option<Sha> {
    match view {
        View::Iteration(view) if !view.folded => {
            let found = current.iterations.iter().rev().find(|iteration| iteration.number == view.n)?;
            Some(found.commit.clone().unwrap_or_else(|| found.parent.clone()))
        }
        View::Pull(_) => current.branch.pushed.clone(),
        _ => None,
    }
}

/// Returns the files in a text's table that certainly exist at its commit, because the commit added lines to them.
pub fn certain_files(current: &Loop, view: &View) -> BTreeSet<String> {
    let View::Iteration(view) = view else { return BTreeSet::new() };
    let mut iterations = current.iterations.iter();
    let is_committed = iterations.any(|iteration| iteration.number == view.n && iteration.commit.is_some());
    let files = view.files.iter().filter(|file| is_committed && file.added > 0);
    files.map(|file| file.path.clone()).collect()
}

/// Returns the paths mentioned in a text that may not exist. Omits paths in `certain`, unless they are mentioned outside the
/// table.
pub fn named_paths_of(view: &View, certain: &BTreeSet<String>) -> BTreeSet<String> {
    let (checks, findings, mut paths) = match view {
        View::Iteration(view) => {
            let files = view.files.iter().map(|file| file.path.clone()).filter(|path| !certain.contains(path));
            (&view.checks, &view.findings, files.collect::<BTreeSet<_>>())
        }
        View::Pull(view) => (&view.checks, &view.findings, view.manifests.iter().cloned().collect()),
        _ => return BTreeSet::new(),
    };
    paths.extend(findings.iter().map(|finding| finding.path.clone()));
    paths.extend(places(checks).into_iter().map(|(path, ..)| path));
    paths
}

/// Adds links for the mentioned files and lines that exist. `lines` has each existing file's number of lines. `page` is the
/// URL of the files at the commit, with a trailing slash.
pub fn link_files(view: &mut View, page: &str, lines: &HashMap<String, u64>) {
    let (checks, findings, named, links, shown) = match view {
        View::Iteration(view) => {
            let named: Vec<String> = view.files.iter().map(|file| file.path.clone()).collect();
            (&view.checks, &view.findings, named, &mut view.links, &mut view.places)
        }
        View::Pull(view) => (&view.checks, &view.findings, view.manifests.clone(), &mut view.links, &mut view.places),
        _ => return,
    };
    let exists = |path: &str, line: u64| lines.get(path).is_some_and(|count| line <= *count);
    *shown = places(checks)
        .into_iter()
        .filter(|(path, line, ..)| exists(path, *line))
        .take(MAX_PLACES)
        .map(|(path, line, check, message)| FailureLocation { place: format!("{path}:{line}"), check, message })
        .collect();
    let of_finding = |finding: &TamperFinding| (finding.path.clone(), finding.line.map(u64::from));
    let of_place = |place: &FailureLocation| {
        let (path, line) = place.place.rsplit_once(':').unwrap_or((&place.place, ""));
        (path.to_owned(), line.parse().ok())
    };
    let wanted = shown.iter().map(of_place).chain(findings.iter().map(of_finding));
    for (path, line) in wanted.chain(named.into_iter().map(|path| (path, None))) {
        if links.len() >= MAX_LINKS || !lines.contains_key(&path) {
            continue;
        }
        // Do not link a line of the file's earlier version to this version.
        let fragment = line.filter(|line| exists(&path, *line)).map_or(String::new(), |line| format!("#L{line}"));
        let key = line.map_or_else(|| path.clone(), |line| format!("{path}:{line}"));
        links.insert(key, format!("{page}{}{fragment}", escaped(&path)));
    }
}

/// Returns the path, line, check and message of each location mentioned by failing checks.
fn places(checks: &[CheckLine]) -> Vec<(String, u64, String, String)> {
    let failing = checks.iter().filter(|check| !check.holds);
    let found = named_lines_of(failing.map(|check| (check.name.as_str(), check.output.as_str())));
    found.into_iter().map(|one| (one.path, one.line, one.check, one.message)).collect()
}

/// Escapes a path for use in a URL.
fn escaped(path: &str) -> String {
    path.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::lifecycle::samples;
    use crate::domain::model::task::TamperKind;
    use crate::domain::report;
    use crate::domain::report::view::{FileLine, FileLinks};

    const PAGE: &str = "https://forge.example/acme/app/blob/abc/";

    fn view(output: &str, files: &[&str]) -> View {
        let Some(View::Iteration(mut view)) = report::iteration(&samples::stuck()) else { panic!("an iteration") };
        view.checks = vec![CheckLine {
            name: "test".into(),
            command: "make test".into(),
            holds: false,
            why: "exit code 1".into(),
            flaky: false,
            ran_once: false,
            unread: false,
            tests: None,
            duration_s: 1,
            output: output.into(),
            line: None,
        }];
        view.files = files.iter().map(|path| FileLine { path: (*path).into(), added: 1, removed: 0 }).collect();
        view.findings = Vec::new();
        View::Iteration(view)
    }

    fn linked(mut view: View, lines: &[(&str, u64)]) -> (Vec<String>, FileLinks) {
        let lines = lines.iter().map(|(path, count)| ((*path).to_owned(), *count)).collect();
        link_files(&mut view, PAGE, &lines);
        let View::Iteration(view) = view else { panic!("an iteration") };
        (view.places.iter().map(|place| place.place.clone()).collect(), view.links)
    }

    #[test]
    fn only_files_and_lines_that_exist_are_linked() {
        let view = view("src/a.rs:3: wrong\nsrc/a.rs:99: beyond\nsrc/gone.rs:1: gone\n", &["docs/a (b).md", "gone.md"]);
        let named = named_paths_of(&view, &BTreeSet::new());
        assert!(named.iter().map(String::as_str).eq(["docs/a (b).md", "gone.md", "src/a.rs", "src/gone.rs"]));
        let (places, links) = linked(view, &[("src/a.rs", 10), ("docs/a (b).md", 1)]);
        assert_eq!(places, ["src/a.rs:3"]);
        let expected =
            [("docs/a (b).md", format!("{PAGE}docs/a%20%28b%29.md")), ("src/a.rs:3", format!("{PAGE}src/a.rs#L3"))];
        assert!(links.iter().map(|(key, url)| (key.as_str(), url.clone())).eq(expected), "{links:?}");
    }

    #[test]
    fn file_with_added_lines_is_looked_up_only_where_a_line_is_named() {
        let mut current = samples::stuck();
        let deleted = FileLine { path: "gone.rs".into(), added: 0, removed: 3 };
        let View::Iteration(mut shown) = view("src/a.rs:3: wrong\n", &["src/a.rs", "src/b.rs"]) else { unreachable!() };
        shown.files.push(deleted);
        let view = View::Iteration(shown);
        current.current_mut().expect("an iteration").commit = Some(samples::sha(5));
        let certain = certain_files(&current, &view);
        assert!(certain.iter().eq(["src/a.rs", "src/b.rs"]));
        assert!(named_paths_of(&view, &certain).iter().eq(["gone.rs", "src/a.rs"]));
        current.current_mut().expect("an iteration").commit = None;
        assert!(certain_files(&current, &view).is_empty(), "the links lead to the commit before");
    }

    #[test]
    fn finding_on_a_removed_line_links_the_file() {
        let mut view = view("", &[]);
        if let View::Iteration(view) = &mut view {
            let mut finding = TamperFinding::new("tests/a.py", TamperKind::TestsChanged, "+1 -0");
            finding.line = Some(7);
            view.findings.push(finding);
        }
        let (_, links) = linked(view, &[("tests/a.py", 3)]);
        assert_eq!(links["tests/a.py:7"], format!("{PAGE}tests/a.py"));
    }

    #[test]
    fn number_of_places_and_links_is_bounded() {
        let output: String = (1..=40).map(|line| format!("src/a.rs:{line}: wrong\n")).collect();
        let files: Vec<String> = (0..100).map(|n| format!("f{n:03}")).collect();
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        let lines: Vec<(&str, u64)> = names.iter().map(|name| (*name, 1)).chain([("src/a.rs", 100)]).collect();
        let (places, links) = linked(view(&output, &names), &lines);
        assert_eq!((places.len(), links.len()), (MAX_PLACES, MAX_LINKS));
    }

    #[test]
    fn folded_iterations_and_other_texts_name_no_files() {
        let current = samples::stuck();
        let newest = current.current().expect("an iteration");
        let commit = newest.commit.clone().unwrap_or_else(|| newest.parent.clone());
        let view = report::iteration(&current).expect("an iteration");
        assert_eq!(linked_commit(&current, &view), Some(commit));
        let folded = report::folded_iteration(&current, newest.number).expect("an iteration");
        assert_eq!(linked_commit(&current, &folded), None);
        assert!(named_paths_of(&report::reply(true, Vec::new()), &BTreeSet::new()).is_empty());
    }
}
