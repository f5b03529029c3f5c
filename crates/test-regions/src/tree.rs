//! Merges the base's tests into all files of a change, and recognizes regions that moved between files.

mod divided;

use std::collections::{HashMap, HashSet};

use crate::definitions::put_back;
use crate::language::SourceLanguage;
use crate::merge::{MergePlan, with_base_tests};
use crate::scan::{Shape, words};
use crate::{FileMerge, MAX_ITEMS, Reason, RegionKind};

/// Program file touched by a change. A renamed file counts as two files: one without a branch version, one without a base
/// version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedFile<'a> {
    pub path: &'a str,
    /// Content in the base; `None` for a new file.
    pub base: Option<&'a str>,
    /// Content in the branch; `None` for a deleted file.
    pub branch: Option<&'a str>,
}

/// Result for all files of a change, in order. Omits files without a difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeMerge {
    pub files: Vec<(String, FileMerge)>,
}

/// Text, shape and condition of a region, used to recognize it in another file.
type RegionIdentity<'a> = (&'a str, Shape, String);

/// Merges the base's tests into all files of a change. A region that moved unchanged to another of these files does not
/// count as a difference if runners read that file as well. `collects_doctests` is true if a check collects Python's doctests
/// from all modules of a folder and reports their number. The result keeps definitions that `task`, the text of the task, asks for.
pub fn with_base_tests_of(files: &[ChangedFile<'_>], collects_doctests: bool, task: &str) -> TreeMerge {
    let mut plans: Vec<MergePlan<'_>> = Vec::new();
    let mut left = MAX_ITEMS;
    for file in files {
        let mut plan = MergePlan::new(file.path, file.base, file.branch.unwrap_or_default(), &mut left);
        plan.match_moved();
        plans.push(plan);
    }
    let hidden = HiddenMacros::of(&plans);
    let mut moves = vec![(HashSet::new(), HashSet::new()); plans.len()];
    for (from, at, to, other) in moved_regions(&plans) {
        let is_collected = collects_doctests && is_python_of_same_folder(files[from].path, files[to].path);
        let is_read = is_collected || is_read(files[from], &plans[from], at, (files[to], &plans[to]));
        if is_read && !hidden.are_in(&plans, to, other) {
            moves[from].0.insert(at);
            moves[to].1.insert(other);
        }
    }
    let paths: Vec<&str> = files.iter().map(|file| file.path).collect();
    for (plan, (away, here)) in plans.iter_mut().zip(&moves) {
        plan.moved(away, here);
    }
    divided::match_divided(&paths, &mut plans, &hidden);
    put_back(&mut plans, task);
    let mut result = TreeMerge::default();
    for (file, plan) in files.iter().zip(plans) {
        let merge = if file.branch.is_some() { plan.finish() } else { deleted(plan, file) };
        if merge != FileMerge::default() {
            result.files.push((file.path.to_owned(), merge));
        }
    }
    result
}

/// Returns the regions that moved to another file: the file, the base's region, the other file, and the branch's region.
fn moved_regions(plans: &[MergePlan<'_>]) -> Vec<(usize, usize, usize, usize)> {
    let mut places: HashMap<RegionIdentity<'_>, Vec<(usize, usize)>> = HashMap::new();
    for (file, plan) in plans.iter().enumerate() {
        let Some((_, branch)) = &plan.sides else { continue };
        for at in plan.extra.iter().rev() {
            let found = &branch.scan.found[*at];
            let identity = (branch.text_of(*at), found.shape, found.condition.clone());
            places.entry(identity).or_default().push((file, *at));
        }
    }
    let mut moved = Vec::new();
    for (file, plan) in plans.iter().enumerate() {
        let Some((base, _)) = &plan.sides else { continue };
        for at in plan.gone.iter().filter(|at| !plan.keeps_item(**at)) {
            let found = &base.scan.found[*at];
            let identity = (base.text_of(*at), found.shape, found.condition.clone());
            if let Some((other, region)) = places.get_mut(&identity).and_then(Vec::pop) {
                moved.push((file, *at, other, region));
            }
        }
    }
    moved
}

/// Whether a runner that reads the region at its old place also reads it in the other file. Some runners receive a list of
/// files and report no number of tests, so a missing test would not be noticed. They read the other file if it already
/// contained such tests, or if it is the renamed file.
fn is_read(
    from: ChangedFile<'_>,
    plan: &MergePlan<'_>,
    at: usize,
    (to, other): (ChangedFile<'_>, &MergePlan<'_>),
) -> bool {
    let (Some((base, _)), Some((other_base, _))) = (&plan.sides, &other.sides) else { return false };
    let kind = base.scan.found[at].kind;
    let needs_list = match SourceLanguage::of(from.path, from.base.unwrap_or_default()) {
        Some(SourceLanguage::Zig | SourceLanguage::Racket | SourceLanguage::Nim) => true,
        // Cargo reports the number of tests, and doctest for Haskell reads imported modules.
        Some(SourceLanguage::Rust | SourceLanguage::Haskell) => false,
        _ => !matches!(kind, RegionKind::TestModule | RegionKind::Test | RegionKind::TestCode),
    };
    let is_renamed = from.branch.is_none() && to.base.is_none() && folder(from.path) == folder(to.path);
    !needs_list || is_renamed || other_base.scan.tests().any(|found| found.kind == kind)
}

/// Names of the macros that the branch's version of each file defines and no file of the base does.
struct HiddenMacros(Vec<HashSet<String>>);

impl HiddenMacros {
    fn of(plans: &[MergePlan<'_>]) -> Self {
        let bases = plans.iter().filter_map(|plan| plan.sides.as_ref().map(|(base, _)| base));
        let known: HashSet<&str> =
            bases.flat_map(|base| base.scan.macros.iter().map(|old| &base.text[old.range.clone()])).collect();
        let new = |plan: &MergePlan<'_>| {
            let Some((_, branch)) = &plan.sides else { return HashSet::new() };
            let macros = branch.scan.macros.iter().filter(|new| !known.contains(&branch.text[new.range.clone()]));
            macros.map(|new| new.name.clone()).collect()
        };
        Self(plans.iter().map(new).collect())
    }

    /// Whether a region of the branch's version of a file uses such a macro of the file.
    fn are_in(&self, plans: &[MergePlan<'_>], file: usize, region: usize) -> bool {
        let Some((_, branch)) = &plans[file].sides else { return false };
        let names = &self.0[file];
        !names.is_empty() && words(branch.text_of(region)).any(|word| names.contains(word))
    }
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn is_python_of_same_folder(path: &str, other: &str) -> bool {
    path.ends_with(".py") && other.ends_with(".py") && folder(path) == folder(other)
}

/// Returns the result for a deleted file: only its moved regions can be judged.
fn deleted(mut plan: MergePlan<'_>, file: &ChangedFile<'_>) -> FileMerge {
    let gone: HashSet<usize> = plan.gone.drain(..).collect();
    let Some((base, _)) = &plan.sides else {
        // Without a parsable version, the file differs from the base if the base has tests.
        let merge = with_base_tests(file.path, file.base, "");
        return FileMerge { text: None, judged: Vec::new(), ..merge };
    };
    let names = base.scan.found.iter().enumerate().filter(|(at, _)| gone.contains(at)).map(|(_, found)| found.name());
    let mut not_judged: Vec<_> = names.map(|name| (name, Reason::FileGone)).collect();
    not_judged.sort();
    FileMerge { text: None, judged: Vec::new(), not_judged }
}
