//! Test modules of Rust whose tests moved to test modules of other files.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::HiddenMacros;
use crate::RegionKind;
use crate::merge::{MergePlan, Side};
use crate::rust;

/// Maximum number of searches for modules that the others no longer support. More are needed only for a chain of modules.
const MAX_ROUNDS: usize = 20;

/// Parsed test module.
struct DividedModule<'a> {
    /// Attributes and name of the module.
    header: &'a str,
    condition: &'a str,
    /// Texts of its items.
    items: Vec<&'a str>,
}

/// Test module that exists in the base, in the branch, or in both with different texts.
struct ModuleChange<'a> {
    /// Index of the file.
    file: usize,
    old: Option<(usize, DividedModule<'a>)>,
    new: Option<(usize, DividedModule<'a>)>,
}

impl ModuleChange<'_> {
    /// Whether items other than `use` were added or removed.
    fn is_division(&self) -> bool {
        let items = |module: &Option<(usize, DividedModule<'_>)>| {
            let items = module.iter().flat_map(|(_, module)| &module.items).filter(|item| !is_use(item));
            let mut items: Vec<String> = items.map(|item| (*item).to_owned()).collect();
            items.sort();
            items
        };
        items(&self.old) != items(&self.new)
    }
}

/// Marks the changed test modules of Rust files as moved if the branch only distributes their items differently: it loses no item,
/// and a module has only items of these modules. `cargo test` reports the number of tests, so a file that no module includes is
/// noticed.
pub(super) fn match_divided(paths: &[&str], plans: &mut [MergePlan<'_>], hidden: &HiddenMacros) {
    let mut divided: Vec<(usize, Option<usize>, Option<usize>)> = Vec::new();
    {
        let mut changes: Vec<ModuleChange<'_>> = Vec::new();
        for (file, plan) in plans.iter().enumerate().filter(|(file, _)| paths[*file].ends_with(".rs")) {
            let Some((base, branch)) = &plan.sides else { continue };
            let pairs = plan.pairs.iter().map(|(old, new)| (Some(*old), Some(*new)));
            let all = pairs.chain(plan.gone.iter().map(|old| (Some(*old), None)));
            for (old, new) in all.chain(plan.extra.iter().map(|new| (None, Some(*new)))) {
                let is_module = |side, at: Option<usize>| at.is_none_or(|at| module(side, at).is_some());
                let hides = new.is_some_and(|at| hidden.are_in(plans, file, at));
                if is_module(base, old) && is_module(branch, new) && !hides {
                    let old = old.and_then(|at| Some((at, module(base, at)?)));
                    let new = new.and_then(|at| Some((at, module(branch, at)?)));
                    changes.push(ModuleChange { file, old, new });
                }
            }
        }
        let mut rounds = 0..MAX_ROUNDS;
        loop {
            let clean = redistributed(&changes);
            if clean.len() == changes.len() {
                break;
            }
            if rounds.next().is_none() {
                return;
            }
            let changed = changes.into_iter().enumerate().filter(|(at, _)| clean.contains(at));
            changes = changed.map(|(_, change)| change).collect();
        }
        for ModuleChange { file, old, new } in &changes {
            divided.push((*file, old.as_ref().map(|(at, _)| *at), new.as_ref().map(|(at, _)| *at)));
        }
    }
    let mut moves = vec![(HashSet::new(), HashSet::new()); plans.len()];
    for (file, old, new) in divided {
        moves[file].0.extend(old);
        moves[file].1.extend(new);
    }
    for (plan, (away, here)) in plans.iter_mut().zip(&moves) {
        plan.pairs.retain(|(old, _)| !away.contains(old));
        plan.moved(away, here);
    }
}

/// Returns the indices of the changes whose removed items are in other modules, and whose added items were in other modules.
fn redistributed(changes: &[ModuleChange<'_>]) -> HashSet<usize> {
    let mut kept: HashMap<&str, isize> = HashMap::new();
    let mut known: HashSet<(&str, &str, &str)> = HashSet::new();
    for change in changes {
        for (_, module) in change.old.iter() {
            module.items.iter().for_each(|item| *kept.entry(item).or_default() -= 1);
            known.extend(module.items.iter().map(|item| (module.header, module.condition, *item)));
        }
        for (_, module) in change.new.iter() {
            module.items.iter().for_each(|item| *kept.entry(item).or_default() += 1);
        }
    }
    let is_lost = |item: &str| !is_use(item) && kept.get(item).is_some_and(|count| *count < 0);
    let is_clean = |change: &ModuleChange<'_>| {
        let mut old = change.old.iter().flat_map(|(_, module)| &module.items);
        let mut new = change
            .new
            .iter()
            .flat_map(|(_, module)| module.items.iter().map(|item| (module.header, module.condition, *item)));
        change.is_division() && !old.any(|item| is_lost(item)) && new.all(|item| known.contains(&item))
    };
    changes.iter().enumerate().filter(|(_, change)| is_clean(change)).map(|(at, _)| at).collect()
}

/// Parses a test module; `None` if the region is none, or contains more than items and comments.
fn module<'a>(side: &'a Side<'_>, at: usize) -> Option<DividedModule<'a>> {
    let found = &side.scan.found[at];
    let text = side.text.get(found.range.clone())?;
    let open = text.find('{').filter(|_| found.kind == RegionKind::TestModule)?;
    let inside = text[open + 1..].strip_suffix('}')?;
    let scan = rust::scan(inside);
    let is_outer = |condition: &str, container: &str| condition.is_empty() && container.is_empty();
    let items = scan.items[1..].iter().filter(|item| is_outer(&item.outer, &item.parent));
    let tests = scan.found.iter().filter(|found| found.is_test && is_outer(&found.condition, &found.container));
    let mut ranges: Vec<Range<usize>> = items.map(|item| item.range.clone()).collect();
    ranges.extend(tests.map(|found| found.range.clone()));
    ranges.sort_by_key(|range| (range.start, usize::MAX - range.end));
    let mut items: Vec<&str> = Vec::new();
    let mut end = 0;
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        // Documentation of an item that was already added.
        if range.end <= end {
            continue;
        }
        is_comment(&inside[end.min(range.start)..range.start]).then_some(())?;
        items.push(&inside[range.clone()]);
        end = range.end;
    }
    let is_complete = scan.fault.is_none() && is_comment(&inside[end..]);
    is_complete.then(|| DividedModule { header: &text[..open], condition: &found.condition, items })
}

fn is_use(item: &str) -> bool {
    item.starts_with("use ")
}

/// Whether a text has only blank lines and comments.
fn is_comment(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with("//") && !line.starts_with("//!"))
}
