//! Data with an ordinary name that the base's tests read: finds the files that name it.

use std::collections::BTreeSet;

use super::branch_state::BranchState;
use crate::domain::trust::tamper::{CheckStart, DataUse, TestData, only_adds_lines};
use crate::engine::receipt::EffectError;
use crate::engine::work::Verification;

/// Maximum number of files that are read because they may name data.
const MAX_FILES: usize = 1000;
/// Maximum number of programs that are read because such files name them.
const MAX_PROGRAMS: usize = 100;

impl Verification {
    /// Returns the changed files of the base that contain data of its tests. A file to which the branch only added lines is left out if
    /// tests only read it, because they may check that it is complete.
    pub(super) async fn data_of_tests(
        &self,
        branch: BranchState<'_>,
        start: &CheckStart<'_>,
    ) -> Result<BTreeSet<String>, EffectError> {
        let BranchState { repo, current, base, to, paths, .. } = branch;
        let names = (&current.id, repo);
        if TestData::new(start, paths.of_base(), &[]).texts().is_empty() {
            return Ok(BTreeSet::new());
        }
        let links = self.workspaces.symbolic_links_of(repo, base).await?;
        let targets = self.contents(names, base, &links.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let target = |(link, target): (String, Vec<u8>)| (link, String::from_utf8_lossy(&target).into_owned());
        let links: Vec<(String, String)> = targets.into_iter().map(target).collect();
        let mut data = TestData::new(start, paths.of_base(), &links);
        let mut naming = self.workspaces.files_with(repo, base, &data.texts()).await;
        naming.truncate(MAX_FILES);
        let naming: Vec<&str> = naming.iter().map(String::as_str).collect();
        let naming = self.contents(names, base, &naming).await?;
        let of = |(path, content): (&String, &Vec<u8>)| data.programs_of(path, &String::from_utf8_lossy(content));
        let programs: BTreeSet<&str> = naming.iter().flat_map(of).take(MAX_PROGRAMS).collect();
        let programs: Vec<&str> = programs.into_iter().collect();
        for (path, content) in self.contents(names, base, &programs).await? {
            data.note_failing(&path, &String::from_utf8_lossy(&content));
        }
        for (path, content) in naming {
            let content = String::from_utf8_lossy(&content);
            let tests = test_regions::regions(&path, &content).unwrap_or_default();
            let tests: Vec<_> = tests.into_iter().map(|region| region.range).collect();
            data.read(&path, &content, &tests);
        }
        let found: Vec<(&str, DataUse)> = data.of_tests().collect();
        let read: Vec<&str> = found.iter().filter(|(_, by)| *by == DataUse::Read).map(|(path, _)| *path).collect();
        let [old, new] = self.contents_of_each(names, [base, to], &read).await?;
        let only_adds = |path: &str| {
            let (Some(old), Some(new)) = (old.get(path), new.get(path)) else { return false };
            only_adds_lines(&String::from_utf8_lossy(old), &String::from_utf8_lossy(new))
        };
        Ok(found.into_iter().map(|(path, _)| path).filter(|path| !only_adds(path)).map(str::to_owned).collect())
    }
}
