//! Compiled code that interpreters load instead of the source, and that reviewers cannot read.

use super::diff::FileDiff;
use super::findings::Findings;
use crate::domain::model::task::TamperKind;

/// Whether a file is in a folder from which Python loads the compiled form of neighboring sources.
pub fn is_compiled_cache(path: &str) -> bool {
    path.rsplit('/').skip(1).any(|folder| folder == "__pycache__")
}

/// Reports new compiled code. If a repository tracks such code, every test run changes it, so only new files are reported.
pub(super) fn scan(file: &FileDiff, findings: &mut Findings) {
    let is_new = file.new.as_ref().is_some_and(|new| file.old.as_ref() != Some(new));
    if is_new && is_compiled_cache(file.path()) {
        let evidence = "compiled code that Python loads in the place of its source";
        findings.add(file.path(), None, TamperKind::TestsNeutralized, evidence);
    }
}

#[cfg(test)]
mod tests {
    use crate::domain::model::task::TamperKind;
    use crate::domain::trust::tamper::{MAX_FINDINGS, scan};

    /// See docs/research/threats.md#g17.
    #[test]
    fn new_compiled_code_is_reported() {
        let header = |path: &str, mode: &str| format!("diff --git a/{path} b/{path}\n{mode}index 1..2\n");
        let of = |path: &str, mode: &str| {
            let diff = format!("{}Binary files /dev/null and b/{path} differ\n", header(path, mode));
            scan(&diff, &Default::default(), &|_| false, MAX_FINDINGS)
                .into_iter()
                .map(|found| found.kind)
                .collect::<Vec<_>>()
        };
        let path = "app/__pycache__/calc.cpython-311.pyc";
        assert_eq!(of(path, "new file mode 100644\n"), [TamperKind::TestsNeutralized]);
        assert_eq!(of(path, ""), [], "the repository tracks it");
        assert_eq!(of(path, "deleted file mode 100644\n"), []);
        assert_eq!(of("app/pycache/calc.pyc", "new file mode 100644\n"), []);
    }
}
