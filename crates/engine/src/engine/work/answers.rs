//! Detects program code with hard-coded answers to tests. This needs the whole files, because a diff does not show it.

use std::collections::BTreeSet;

use super::branch_state::BranchState;
use super::changed_tests::found_on_branch;
use crate::domain::loops::BranchFinding;
use crate::domain::trust::tamper::{self, LookedUpFunctions};
use crate::engine::receipt::EffectError;
use crate::engine::work::Verification;

/// Maximum number of files that are read, of program code and of tests together.
const MAX_FILES: usize = 500;

impl Verification {
    /// Returns the findings about functions of the branch that only handle the inputs of its tests.
    pub(super) async fn hard_coded_answers(&self, branch: BranchState<'_>) -> Result<Vec<BranchFinding>, EffectError> {
        let BranchState { repo, current, base, to: commit, diff: complete, paths } = branch;
        let changed = tamper::program_files(&complete.text);
        let programs: BTreeSet<&str> = changed.iter().map(String::as_str).take(MAX_FILES).collect();
        let read = self.workspaces.contents_at(&current.id, repo, commit, &programs).await?;
        let text = |(path, content): (String, Vec<u8>)| Some((path, String::from_utf8(content).ok()?));
        let programs = read.into_iter().filter_map(text).collect();
        let functions = LookedUpFunctions::of(&complete.text, &programs);
        if functions.is_empty() {
            return Ok(Vec::new());
        }
        let of_base = self.workspaces.paths_of(repo, base).await?;
        let known = of_base.iter().map(String::as_str).chain(paths.added());
        let tests: BTreeSet<&str> = known.filter(|path| tamper::is_test_source(path)).take(MAX_FILES).collect();
        let read = self.workspaces.contents_at(&current.id, repo, commit, &tests).await?;
        let mut texts: Vec<String> = read.into_values().filter_map(|content| String::from_utf8(content).ok()).collect();
        texts.extend(programs.values().filter_map(|text| tamper::inline_tests(text)).map(str::to_owned));
        let found = functions.known_to(&texts, &current.task.text.agent_text());
        Ok(found_on_branch(found, complete))
    }
}
