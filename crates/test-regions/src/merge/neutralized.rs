//! Changes of the program that may make the base's tests ineffective.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use super::{MergePlan, Side, file_name};
use crate::Reason;
use crate::scan::{Covered, Neutralizer, Overload, ProgramItem, directive_words, has_any, mentions};

/// Last names of items that start a program.
const MAINS: [&str; 2] = ["main", "isMainModule"];
/// Words of code that reads the arguments of the command line.
const ARGUMENTS: [&str; 11] = [
    "paramStr",
    "paramCount",
    "commandLineParams",
    "argv",
    "command-line",
    "getArgs",
    "ARGS",
    "args",
    "arguments",
    "--help",
    "--version",
];
/// Maximum number of new exits in a file that may belong to its command line; the others are reported.
const MAX_EXITS: usize = 100;
/// Starts of lines that name an item without using it.
const DECLARATIONS: [&str; 5] = ["(provide", "module ", "export ", "@spec ", "import "];

impl MergePlan<'_> {
    /// Reports tests that may call an added overload of a function.
    pub(super) fn new_overloads(&mut self) {
        let Some((base, branch)) = &self.sides else { return };
        let mut added: HashMap<&str, HashSet<RangeInclusive<usize>>> = HashMap::new();
        let old = overloads(base);
        for (path, overloads) in overloads(branch) {
            let known = old.get(path).map_or(&[][..], Vec::as_slice);
            let before = bodies(base, known);
            if before == 0 || bodies(branch, &overloads) <= before {
                continue;
            }
            let known: HashSet<&str> = known.iter().map(|overload| overload.parameters.as_str()).collect();
            let is_new = |overload: &&&Overload| !known.contains(overload.parameters.as_str());
            let is_any_new = overloads.iter().any(|overload| is_new(&overload));
            let numbers = overloads.iter().filter(|overload| is_new(overload) || !is_any_new);
            let name = path.rsplit("::").next().unwrap_or(path);
            added.entry(name).or_default().extend(numbers.map(|overload| overload.numbers.clone()));
        }
        let mut calls: Vec<_> = base.scan.calls.iter().collect();
        calls.sort_by_key(|call| call.start);
        for found in base.scan.tests() {
            let from = calls.partition_point(|call| call.start < found.range.start);
            let calls = calls[from..].iter().take_while(|call| call.start < found.range.end);
            let may_choose = calls.into_iter().any(|call| {
                let overloads = added.get(call.name.as_str()).into_iter().flatten();
                overloads.into_iter().any(|new| new.start() <= call.numbers.end() && call.numbers.start() <= new.end())
            });
            if may_choose {
                self.not_judged.push((found.name(), Reason::Ambiguous));
            }
        }
    }

    /// Reports new lines of the program that may prevent tests from running.
    pub(super) fn new_neutralizers(&mut self) {
        let Some((base, branch)) = &self.sides else { return };
        let names = base.scan.names_in_conditions();
        let mut conditions = counted(base.scan.conditions(base.text));
        for line in branch.scan.conditions(branch.text) {
            let is_new = !take(&mut conditions, line);
            if is_new && directive_words(line).any(|word| names.contains(word)) {
                self.not_judged.push((file_name(), Reason::Neutralized(line.to_owned())));
            }
        }
        let mut known = counted(base.scan.neutralizers.iter().map(|known| known.line.as_str()));
        let is_main = |item: &&ProgramItem| MAINS.contains(&last_name(item));
        let mains = branch.scan.items[1..].iter().filter(is_main).map(|item| item.range.clone());
        let exempt = Covered::by(mains.chain(branch.scan.found.iter().map(|found| found.range.clone())));
        let new = branch.scan.neutralizers.iter().filter(|new| !take(&mut known, &new.line));
        let mut exits = 0;
        for new in new {
            exits += usize::from(new.is_exit);
            if !(new.is_exit && exits <= MAX_EXITS && ends_command_line(base, branch, new, &exempt)) {
                self.not_judged.push((file_name(), Reason::Neutralized(new.line.clone())));
            }
        }
    }
}

/// Counts equal lines.
fn counted<'l>(lines: impl IntoIterator<Item = &'l str>) -> HashMap<&'l str, usize> {
    let mut counts = HashMap::new();
    lines.into_iter().for_each(|line| *counts.entry(line).or_default() += 1);
    counts
}

/// Removes a line from the counts. Returns `false` if they do not contain it.
fn take(counts: &mut HashMap<&str, usize>, line: &str) -> bool {
    counts.get_mut(line).filter(|count| **count > 0).map(|count| *count -= 1).is_some()
}

/// Returns the number of functions with bodies among those with one path. Only one of several conditions is true.
fn bodies(side: &Side<'_>, overloads: &[&Overload]) -> usize {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for overload in overloads {
        *numbers.entry(&side.scan.items[overload.item].condition).or_default() += 1;
    }
    numbers.remove("").unwrap_or(0) + numbers.values().copied().max().unwrap_or(0)
}

/// Returns the functions that can be overloaded, by path.
fn overloads<'s>(side: &'s Side<'_>) -> HashMap<&'s str, Vec<&'s Overload>> {
    let mut overloads: HashMap<&str, Vec<&Overload>> = HashMap::new();
    for overload in &side.scan.overloads {
        overloads.entry(&side.scan.items[overload.item].path).or_default().push(overload);
    }
    overloads
}

/// Whether an exit belongs to the command line: to a new `main`, or to a new function that reads arguments. The base's tests do
/// not call this item, nor does other code of the file, except for `main`. A known `main` must not run tests. `exempt` are the
/// parts of the branch that may use the item.
fn ends_command_line(base: &Side<'_>, branch: &Side<'_>, exit: &Neutralizer, exempt: &Covered) -> bool {
    let at = exit.start + branch.text[exit.start..].find(|c: char| !c.is_whitespace()).unwrap_or(0);
    let around = branch.scan.items[1..].iter().filter(|item| item.range.contains(&at));
    let Some(item) = around.min_by_key(|item| item.range.len()) else { return false };
    let name = last_name(item);
    let is_main = MAINS.contains(&name);
    let is_allowed = match base.items.get(&item.path) {
        Some(known) => {
            let at = known.values().flatten();
            let mut texts = at.map(|at| base.text[base.scan.items[*at].range.clone()].to_ascii_lowercase());
            is_main && texts.all(|text| !has_any(&text, &["test", "assert", "check"]))
        }
        None => {
            is_main || has_any(&item.path, &["CLI", "Cli"]) || has_any(&branch.text[item.range.start..at], &ARGUMENTS)
        }
    };
    let is_tested = || base.scan.tests().any(|found| mentions(&base.text[found.range.clone()], name));
    let is_used = || {
        let mut start = 0;
        branch.text.split_inclusive('\n').any(|line| {
            let at = start;
            start += line.len();
            let is_exempt = item.range.start < at + line.len() && at < item.range.end
                || exempt.contains(at)
                || DECLARATIONS.iter().any(|start| line.trim_start().starts_with(start));
            !is_exempt && mentions(line, name)
        })
    };
    is_allowed && !is_tested() && !is_used()
}

/// Returns the name of an item without its container, keyword and leading sign.
fn last_name(item: &ProgramItem) -> &str {
    let name = item.path.rsplit("::").next().unwrap_or_default();
    name.rsplit(' ').next().unwrap_or_default().trim_start_matches('-')
}
