//! Changes of the program that may make the base's tests ineffective.

use std::collections::{BTreeSet, HashMap};

use super::{MergePlan, Side, file_name};
use crate::Reason;
use crate::scan::directive_words;

impl MergePlan<'_> {
    /// Reports tests that may call an added overload of a function.
    pub(super) fn new_overloads(&mut self) {
        let Some((base, branch)) = &self.sides else { return };
        let bodies = |side: &Side<'_>, path: &str| {
            let items = side.items.get(path).into_iter().flatten().map(|at| &side.scan.items[*at]);
            // Only one of several conditions is true.
            let mut numbers: HashMap<&str, usize> = HashMap::new();
            items
                .filter(|item| item.end_at.is_some())
                .for_each(|item| *numbers.entry(&item.condition).or_default() += 1);
            numbers.remove("").unwrap_or(0) + numbers.values().copied().max().unwrap_or(0)
        };
        let is_new = |path: &&String| {
            let before = bodies(base, path);
            branch.scan.has_overloads && before > 0 && bodies(branch, path) > before
        };
        let names: BTreeSet<&str> =
            branch.items.keys().filter(is_new).map(|path| path.rsplit("::").next().unwrap_or(path)).collect();
        for (at, found) in base.scan.found.iter().enumerate().filter(|(_, found)| found.is_test) {
            let mut words = base.text_of(at).split(|c: char| !c.is_alphanumeric() && c != '_');
            if words.any(|word| names.contains(word)) {
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
        let mut known = base.scan.neutralizers.clone();
        for line in &branch.scan.neutralizers {
            match known.iter().position(|other| other == line) {
                Some(at) => drop(known.swap_remove(at)),
                None => self.not_judged.push((file_name(), Reason::Neutralized(line.clone()))),
            }
        }
    }
}
