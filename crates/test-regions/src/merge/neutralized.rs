//! Changes of the program that may make the base's tests ineffective.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use super::{MergePlan, Side, file_name};
use crate::Reason;
use crate::scan::{Neutralizer, Overload, ProgramItem, directive_words, has_any, mentions};

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
/// Starts of lines that name an item without using it.
const DECLARATIONS: [&str; 5] = ["(provide", "module ", "export ", "@spec ", "import "];

impl MergePlan<'_> {
    /// Reports tests that may call an added overload of a function.
    pub(super) fn new_overloads(&mut self) {
        let Some((base, branch)) = &self.sides else { return };
        let mut added: HashMap<&str, Vec<RangeInclusive<usize>>> = HashMap::new();
        for path in branch.items.keys() {
            let before = bodies(base, path);
            if before == 0 || bodies(branch, path) <= before {
                continue;
            }
            let known: HashSet<&str> = overloads(base, path).map(|overload| overload.parameters.as_str()).collect();
            let is_new = |overload: &&Overload| !known.contains(overload.parameters.as_str());
            let is_any_new = overloads(branch, path).any(|overload| is_new(&overload));
            let numbers = overloads(branch, path).filter(|overload| is_new(overload) || !is_any_new);
            let name = path.rsplit("::").next().unwrap_or(path);
            added.entry(name).or_default().extend(numbers.map(|overload| overload.numbers.clone()));
        }
        for found in base.scan.tests() {
            let may_choose = base.scan.calls.iter().filter(|call| found.range.contains(&call.start)).any(|call| {
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
        let mut conditions = base.scan.conditions(base.text);
        for line in branch.scan.conditions(branch.text) {
            match conditions.iter().position(|other| *other == line) {
                Some(at) => drop(conditions.swap_remove(at)),
                None if !directive_words(line).any(|word| names.contains(word)) => {}
                None => self.not_judged.push((file_name(), Reason::Neutralized(line.to_owned()))),
            }
        }
        let mut known: Vec<&str> = base.scan.neutralizers.iter().map(|known| known.line.as_str()).collect();
        for new in &branch.scan.neutralizers {
            match known.iter().position(|known| *known == new.line) {
                Some(at) => drop(known.swap_remove(at)),
                None if new.is_exit && ends_command_line(base, branch, new) => {}
                None => self.not_judged.push((file_name(), Reason::Neutralized(new.line.clone()))),
            }
        }
    }
}

/// Returns the number of functions with this path and a body. Only one of several conditions is true.
fn bodies(side: &Side<'_>, path: &str) -> usize {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for overload in overloads(side, path) {
        *numbers.entry(&side.scan.items[overload.item].condition).or_default() += 1;
    }
    numbers.remove("").unwrap_or(0) + numbers.values().copied().max().unwrap_or(0)
}

fn overloads<'s>(side: &'s Side<'_>, path: &'s str) -> impl Iterator<Item = &'s Overload> {
    let items = &side.scan.items;
    side.scan.overloads.iter().filter(move |overload| items[overload.item].path == path)
}

/// Whether an exit belongs to the command line: to a new `main`, or to a new function that reads arguments. The base's tests do
/// not call this item, nor does other code of the file, except for `main`. A known `main` must not run tests.
fn ends_command_line(base: &Side<'_>, branch: &Side<'_>, exit: &Neutralizer) -> bool {
    let at = exit.start + branch.text[exit.start..].find(|c: char| !c.is_whitespace()).unwrap_or(0);
    let around = branch.scan.items[1..].iter().filter(|item| item.range.contains(&at));
    let Some(item) = around.min_by_key(|item| item.range.len()) else { return false };
    let name = last_name(item);
    let is_main = MAINS.contains(&name);
    let is_allowed = match base.items.get(&item.path) {
        Some(known) => {
            let mut texts = known.iter().map(|at| base.text[base.scan.items[*at].range.clone()].to_ascii_lowercase());
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
            let is_inside = |item: &ProgramItem| item.range.contains(&at) && MAINS.contains(&last_name(item));
            let is_test = branch.scan.found.iter().any(|found| found.range.contains(&at));
            let is_exempt = item.range.start < at + line.len() && at < item.range.end
                || is_test
                || DECLARATIONS.iter().any(|start| line.trim_start().starts_with(start))
                || branch.scan.items[1..].iter().any(is_inside);
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
