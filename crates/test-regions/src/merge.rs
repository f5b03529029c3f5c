//! Merges the base's tests into the branch's version of a file.

mod neutralized;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crate::definitions::put_back;
use crate::language::{is_data, is_too_large};
use crate::scan::{Covered, FileScan, FoundRegion, ProgramItem, Shape, has_any};
use crate::{MAX_ITEMS, Reason, RegionKind, RegionName};

/// Maximum length of the first line, which decides how lines end, in bytes.
const MAX_LINE: usize = 10_000;

/// Result for one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileMerge {
    /// Branch's file with the base's tests. `None` if the branch's file already contains them, or if no difference can be
    /// judged.
    pub text: Option<String>,
    /// Differences that `text` reverts.
    pub judged: Vec<(RegionName, Judgement)>,
    /// Differences that `text` does not revert.
    pub not_judged: Vec<(RegionName, Reason)>,
}

/// Treatment of a region in the merged file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Judgement {
    /// The base's version replaces the branch's version.
    Replaced,
    /// The branch added the region, so the merge removes it.
    Removed,
    /// The branch removed the region, so the merge restores it.
    Restored,
}

/// Words that mark tests in any language.
const MARKS: [&str; 26] = [
    ">>>",
    "iex>",
    "jldoctest",
    "doctest",
    "unittest",
    "UnitTest",
    "#[test",
    "cfg(test",
    "TEST_CASE",
    "TEST(",
    "deftest",
    "vitest",
    "module+ test",
    "let%test",
    "let%expect_test",
    "runnableExamples",
    "isMainModule",
    "@Test",
    "[Test]",
    "[Fact]",
    "describe(",
    "describe \"",
    "@test",
    "XCTest",
    "test \"",
    "check_equal",
];

/// Merges the base's tests into the branch's version of a file. `base` is `None` for a new file.
///
/// The function checks its result: the merged file has exactly the base's tests, except for the differences in
/// [`FileMerge::not_judged`].
pub fn with_base_tests(path: &str, base: Option<&str>, branch: &str) -> FileMerge {
    let mut plan = MergePlan::new(path, base, branch, &mut MAX_ITEMS.clone());
    plan.match_moved();
    put_back(std::slice::from_mut(&mut plan), "");
    plan.finish()
}

/// One version of a file.
pub(crate) struct Side<'a> {
    pub text: &'a str,
    pub scan: FileScan,
    /// Indices of items, by path and condition.
    items: HashMap<String, HashMap<String, Vec<usize>>>,
}

impl<'a> Side<'a> {
    fn new(text: &'a str, scan: FileScan) -> Self {
        let mut items: HashMap<String, HashMap<String, Vec<usize>>> = HashMap::new();
        for (at, item) in scan.items.iter().enumerate() {
            items.entry(item.path.clone()).or_default().entry(item.condition.clone()).or_default().push(at);
        }
        Self { text, scan, items }
    }

    pub fn text_of(&self, found: usize) -> &'a str {
        &self.text[self.scan.found[found].range.clone()]
    }

    fn items<'s>(&'s self, path: &str, condition: &'s str) -> impl Iterator<Item = &'s ProgramItem> {
        let all = self.items.get(path).and_then(|items| items.get(condition));
        all.into_iter().flatten().map(|at| &self.scan.items[*at])
    }

    /// Returns the items with a path, under any condition, in no order.
    fn items_at<'s>(&'s self, path: &str) -> impl Iterator<Item = &'s ProgramItem> {
        self.items.get(path).into_iter().flat_map(HashMap::values).flatten().map(|at| &self.scan.items[*at])
    }
}

/// Replacement of a part of the branch's file.
pub(crate) struct Edit {
    pub range: Range<usize>,
    pub text: String,
    pub name: RegionName,
    pub judgement: Judgement,
}

/// Differences between two versions of a file.
pub(crate) struct MergePlan<'a> {
    pub path: &'a str,
    /// Versions of the base and of the branch; `None` if the language is unknown or there is nothing to compare.
    pub sides: Option<(Side<'a>, Side<'a>)>,
    /// Pairs of indices: a base region and the branch region that replaces it with different text.
    pub pairs: Vec<(usize, usize)>,
    /// Pairs of indices: a base region and the equal branch region.
    equal: Vec<(usize, usize)>,
    /// Indices of the base's regions without a counterpart in the branch.
    pub gone: Vec<usize>,
    /// Indices of the branch's regions without a counterpart in the base.
    pub extra: Vec<usize>,
    pub not_judged: Vec<(RegionName, Reason)>,
    /// Indices of the base's regions that may be missing in the result.
    excused: Vec<usize>,
    /// Branch's regions that remain although the base has no counterpart.
    kept: Vec<usize>,
    /// Edits that put the base's definitions back.
    pub definitions: Vec<Edit>,
}

/// Place and condition of a region, used to match versions.
type RegionKey<'k> = (Shape, &'k str, &'k str);

fn key(found: &FoundRegion) -> RegionKey<'_> {
    (found.shape, &found.anchor, &found.condition)
}

impl<'a> MergePlan<'a> {
    /// Compares the versions. Takes the number of their items and regions from `left`; files beyond it are not compared.
    pub fn new(path: &'a str, base: Option<&'a str>, branch: &'a str, left: &mut usize) -> Self {
        let mut plan = Self {
            path,
            sides: None,
            pairs: Vec::new(),
            equal: Vec::new(),
            gone: Vec::new(),
            extra: Vec::new(),
            not_judged: Vec::new(),
            excused: Vec::new(),
            kept: Vec::new(),
            definitions: Vec::new(),
        };
        let old = base.unwrap_or_default();
        if base == Some(branch) {
            return plan;
        }
        let is_large = is_too_large(path, old) || is_too_large(path, branch);
        let scans = Some(path).filter(|_| !is_large);
        let scans = scans.and_then(|path| Some((FileScan::of(path, old)?, FileScan::of(path, branch)?)));
        let size = scans.as_ref().map_or(0, |(old, new)| old.len() + new.len());
        if is_large || size > *left {
            let tests = FileScan::of(path, old).map(|scan| scan.tests().next().is_some());
            if tests.unwrap_or_else(|| has_any(old, &MARKS)) {
                plan.not_judged.push((file_name(), Reason::TooLarge));
            }
            return plan;
        }
        *left -= size;
        let Some((old_scan, new_scan)) = scans else {
            if base.is_some() && !is_data(path) && marks(old) != marks(branch) {
                plan.not_judged.push((file_name(), Reason::UnknownLanguage));
            }
            return plan;
        };
        let sides = (Side::new(old, old_scan), Side::new(branch, new_scan));
        if let Some(line) = unreadable(base, &sides) {
            plan.not_judged.push((file_name(), Reason::Unbalanced { line }));
            return plan;
        }
        if sides.0.scan.fault.is_some() || sides.1.scan.fault.is_some() {
            return plan;
        }
        plan.compare(&sides);
        plan.sides = Some(sides);
        plan.changed_macros();
        plan.new_neutralizers();
        plan.new_overloads();
        plan
    }

    fn compare(&mut self, (base, branch): &(Side<'_>, Side<'_>)) {
        let mut groups: BTreeMap<RegionKey<'_>, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (at, found) in base.scan.found.iter().enumerate() {
            groups.entry(key(found)).or_default().0.push(at);
        }
        for (at, found) in branch.scan.found.iter().enumerate() {
            groups.entry(key(found)).or_default().1.push(at);
        }
        for ((shape, anchor, condition), (old, new)) in groups {
            let is_test = |side: &Side<'_>, list: &[usize]| list.iter().any(|at| side.scan.found[*at].is_test);
            if !is_test(base, &old) && !is_test(branch, &new) {
                continue;
            }
            let items = (base.items(anchor, condition).count(), branch.items(anchor, condition).count());
            let is_doc = shape != Shape::Item;
            if is_doc && base.scan.last_wins && items.1 > items.0 && items.0 > 0 {
                let tests = old.iter().filter(|at| base.scan.found[**at].is_test);
                self.not_judged.extend(tests.map(|at| (base.scan.found[*at].name(), Reason::Ambiguous)));
                self.excused.extend(&old);
                self.kept.extend(&new);
                continue;
            }
            let (old, new) = self.pair_equal((base, branch), old, new);
            let several = items.0.max(items.1) > 1 && items.0 > 0 && items.1 > 0;
            if is_doc && several && (items.0 != items.1 || old.len() != new.len()) {
                let tests = old.iter().filter(|at| base.scan.found[**at].is_test);
                self.not_judged.extend(tests.map(|at| (base.scan.found[*at].name(), Reason::Ambiguous)));
                self.excused.extend(&old);
                self.extra.extend(new.iter().filter(|at| branch.scan.found[**at].is_test));
                continue;
            }
            let both = old.len().min(new.len());
            for (old, new) in old.iter().zip(&new) {
                if base.scan.found[*old].is_test || branch.scan.found[*new].is_test {
                    self.pairs.push((*old, *new));
                }
            }
            self.gone.extend(old[both..].iter().filter(|at| base.scan.found[**at].is_test));
            self.extra.extend(new[both..].iter().filter(|at| branch.scan.found[**at].is_test));
        }
        self.gone.sort_unstable();
        self.extra.sort_unstable();
    }

    /// Pairs regions of a group with equal text, in order. Returns the remaining ones.
    fn pair_equal(
        &mut self,
        (base, branch): (&Side<'_>, &Side<'_>),
        old: Vec<usize>,
        new: Vec<usize>,
    ) -> (Vec<usize>, Vec<usize>) {
        let mut by_text: HashMap<&str, Vec<usize>> = HashMap::new();
        new.iter().rev().for_each(|at| by_text.entry(branch.text_of(*at)).or_default().push(*at));
        let mut paired = HashSet::new();
        let mut rest = Vec::new();
        for at in old {
            match by_text.get_mut(base.text_of(at)).and_then(Vec::pop) {
                Some(other) => {
                    paired.insert(other);
                    self.equal.push((at, other));
                }
                None => rest.push(at),
            }
        }
        (rest, new.into_iter().filter(|at| !paired.contains(at)).collect())
    }

    /// Recognizes regions that moved within the file.
    pub fn match_moved(&mut self) {
        let Some((base, branch)) = &self.sides else { return };
        let id = |side: &Side<'a>, at: usize| {
            let found = &side.scan.found[at];
            (side.text_of(at), found.shape, found.condition.clone())
        };
        let mut places: HashMap<_, Vec<usize>> = HashMap::new();
        self.extra.iter().rev().for_each(|at| places.entry(id(branch, *at)).or_default().push(*at));
        let mut gone = Vec::new();
        for at in std::mem::take(&mut self.gone) {
            let place = places.get_mut(&id(base, at)).filter(|_| !self.keeps_item(at));
            match place.and_then(Vec::pop) {
                Some(other) => self.equal.push((at, other)),
                None => gone.push(at),
            }
        }
        self.gone = gone;
        self.extra = places.into_values().flatten().collect();
        self.extra.sort_unstable();
    }

    /// Whether a base region documents an item that still exists in the branch. The region then belongs to this item,
    /// because a runner may not read another item's documentation.
    pub fn keeps_item(&self, at: usize) -> bool {
        let Some((base, branch)) = &self.sides else { return false };
        let found = &base.scan.found[at];
        let is_kept = || branch.items(&found.anchor, &found.condition).next().is_some();
        found.shape != Shape::Item && !branch.text.is_empty() && is_kept()
    }

    /// Marks missing regions as moved to another file, and additional regions as moved from another file.
    pub fn moved(&mut self, away: &HashSet<usize>, here: &HashSet<usize>) {
        self.gone.retain(|gone| !away.contains(gone));
        self.excused.extend(away);
        self.extra.retain(|extra| !here.contains(extra));
        self.kept.extend(here);
    }

    /// Reports tests that use a macro of the file if the branch changed the macro.
    fn changed_macros(&mut self) {
        let Some((base, branch)) = &self.sides else { return };
        let definitions = |side: &Side<'a>| {
            let mut texts: BTreeMap<String, String> = BTreeMap::new();
            for definition in &side.scan.macros {
                texts.entry(definition.name.clone()).or_default().push_str(&side.text[definition.range.clone()]);
            }
            texts
        };
        let old = definitions(base);
        let new = definitions(branch);
        let changed = old.keys().chain(new.keys()).filter(|name| old.get(*name) != new.get(*name));
        let changed: BTreeSet<&str> = changed.map(String::as_str).collect();
        if changed.is_empty() {
            return;
        }
        for (at, found) in base.scan.found.iter().enumerate().filter(|(_, found)| found.is_test) {
            let words = base.text_of(at).split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(name) = words.into_iter().find(|word| changed.contains(word)) {
                self.not_judged.push((found.name(), Reason::MacroChanged(name.to_owned())));
            }
        }
    }

    /// Builds the merged file.
    pub fn finish(mut self) -> FileMerge {
        let mut merge = FileMerge::default();
        let Some((base, branch)) = self.sides.take() else {
            merge.not_judged = self.not_judged;
            return merge;
        };
        let mut edits: Vec<Edit> = std::mem::take(&mut self.definitions);
        for (old, new) in &self.pairs {
            let (old_found, new_found) = (&base.scan.found[*old], &branch.scan.found[*new]);
            let (name, judgement) = match (old_found.is_test, new_found.is_test) {
                (true, true) => (old_found.name(), Judgement::Replaced),
                (true, false) => (old_found.name(), Judgement::Restored),
                (false, _) => (new_found.name(), Judgement::Removed),
            };
            edits.push(Edit { range: new_found.range.clone(), text: base.text_of(*old).to_owned(), name, judgement });
        }
        let siblings = if self.gone.is_empty() { Siblings::default() } else { self.siblings(&base, &branch) };
        let mut whole = Vec::new();
        for at in std::mem::take(&mut self.gone) {
            match self.restored(&base, &branch, &siblings, at) {
                Ok(edit) => {
                    if !edit.range.is_empty() {
                        whole.push(edit.range.clone());
                    }
                    edits.push(edit);
                }
                Err(reason) => {
                    self.excused.push(at);
                    self.not_judged.push((base.scan.found[at].name(), reason));
                }
            }
        }
        let whole = Covered::by(whole.into_iter());
        for at in &self.extra {
            let found = &branch.scan.found[*at];
            if !whole.contains(found.range.start) {
                let (range, text) = removed(&branch, found);
                edits.push(Edit { range, text, name: found.name(), judgement: Judgement::Removed });
            }
        }
        if !edits.is_empty() {
            edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
            let judged: Vec<_> = edits.iter().map(|edit| (edit.name.clone(), edit.judgement)).collect();
            let text = apply(branch.text, &edits).filter(|text| self.has_base_tests(&base, &branch, text));
            match text {
                Some(text) => {
                    merge.judged = judged;
                    merge.text = Some(text).filter(|text| text != branch.text);
                }
                None => self.not_judged.extend(judged.into_iter().map(|(name, _)| (name, Reason::ResultDiffers))),
            }
        }
        self.not_judged.sort();
        self.not_judged.dedup();
        merge.judged.sort();
        merge.not_judged = self.not_judged;
        merge
    }

    /// Whether a merged file has exactly the base's tests.
    fn has_base_tests(&self, base: &Side<'_>, branch: &Side<'_>, text: &str) -> bool {
        let Some(merged) = FileScan::of(self.path, text).filter(|scan| scan.fault.is_none()) else { return false };
        let mut counts: HashMap<(&str, &str), isize> = HashMap::new();
        for found in merged.tests() {
            *counts.entry((&found.condition, &text[found.range.clone()])).or_default() += 1;
        }
        let excused: HashSet<usize> = self.excused.iter().copied().collect();
        let required = base.scan.found.iter().enumerate().filter(|(at, found)| found.is_test && !excused.contains(at));
        if !required.map(|(_, found)| found).all(|found| take(&mut counts, found, base.text)) {
            return false;
        }
        for at in &self.excused {
            take(&mut counts, &base.scan.found[*at], base.text);
        }
        for at in &self.kept {
            take(&mut counts, &branch.scan.found[*at], branch.text);
        }
        counts.values().all(|count| *count == 0)
    }

    /// Returns the edit that restores a region.
    fn restored(&self, base: &Side<'_>, branch: &Side<'_>, siblings: &Siblings<'_>, at: usize) -> Result<Edit, Reason> {
        let found = &base.scan.found[at];
        let text = base.text_of(at);
        let (range, text) = match found.shape {
            Shape::Item => Self::restored_item(base, branch, siblings, at)?,
            Shape::Doc | Shape::InnerDoc => {
                let mut items = branch.items(&found.anchor, &found.condition);
                let Some(item) = items.next() else { return Err(missing(branch, &found.anchor)) };
                if items.next().is_some() {
                    return Err(Reason::Ambiguous);
                }
                let place = if found.shape == Shape::Doc { item.doc_at } else { item.inner_doc_at };
                let place = place.ok_or(Reason::ResultDiffers)?;
                let indent = indent(branch.text, place);
                let before = &branch.text[..place - indent.len()];
                let is_alone = before.is_empty() || before.ends_with(['\n', '\u{feff}']);
                let separator = match (is_alone, branch.scan.inline_separator) {
                    (false, separator) if !separator.is_empty() => separator.to_owned(),
                    _ => format!("{}{indent}", line_break(branch.text)),
                };
                (place..place, format!("{text}{separator}"))
            }
        };
        Ok(Edit { range, text, name: found.name(), judgement: Judgement::Restored })
    }

    fn restored_item(
        base: &Side<'_>,
        branch: &Side<'_>,
        siblings: &Siblings<'_>,
        at: usize,
    ) -> Result<(Range<usize>, String), Reason> {
        let found = &base.scan.found[at];
        let text = base.text_of(at);
        // An item with this name that is no longer a test.
        let mut same = branch.items_at(&found.anchor);
        let same = (same.next(), same.next());
        if let (Some(item), None) = same
            && item.parent == found.container
            && !item.path.is_empty()
            && item.condition.starts_with(&found.condition)
        {
            return Ok((item.range.clone(), text.to_owned()));
        }
        let nl = line_break(branch.text);
        let indent = indent(base.text, found.range.start);
        if let Some(place) = siblings.place_before(found) {
            return Ok((place..place, format!("{nl}{nl}{indent}{text}")));
        }
        let mut containers = branch.items(&found.container, &found.condition);
        let Some(container) = containers.next() else { return Err(missing(branch, &found.container)) };
        if containers.next().is_some() {
            return Err(Reason::Ambiguous);
        }
        let end = container.end_at.ok_or(Reason::ResultDiffers)?;
        if end >= branch.text.len() {
            let gap = match branch.text {
                "" => "",
                text if text.ends_with('\n') => nl,
                _ => &format!("{nl}{nl}"),
            };
            return Ok((end..end, format!("{gap}{indent}{text}{nl}")));
        }
        let before = branch.text[..end].trim_end_matches([' ', '\t']).len();
        Ok((before..before, format!("{nl}{indent}{text}{nl}")))
    }

    /// Returns the items and regions that exist once in both versions.
    fn siblings<'s>(&self, base: &'s Side<'_>, branch: &Side<'_>) -> Siblings<'s> {
        let mut siblings = Siblings::default();
        let complete = base.scan.items.iter().filter(|item| item.complete && !item.path.is_empty());
        let mut others: HashMap<_, Option<&ProgramItem>> = HashMap::new();
        for item in &branch.scan.items {
            let is_known = |other: &mut Option<&ProgramItem>| *other = None;
            others.entry((&item.path, &item.parent, &item.outer)).and_modify(is_known).or_insert(Some(item));
        }
        for item in complete {
            let same = others.get(&(&item.path, &item.parent, &item.outer)).copied().flatten();
            if let Some(same) = same.filter(|same| same.complete) {
                let places = siblings.0.entry((&item.parent, &item.outer)).or_default();
                places.push((item.range.end, same.range.end));
            }
        }
        for (old, new) in self.pairs.iter().chain(&self.equal) {
            let (old, new) = (&base.scan.found[*old], &branch.scan.found[*new]);
            if old.shape == Shape::Item && new.container == old.container && new.condition == old.condition {
                let places = siblings.0.entry((&old.container, &old.condition)).or_default();
                places.push((old.range.end, new.range.end));
            }
        }
        siblings.0.values_mut().for_each(|places| places.sort_unstable());
        siblings
    }
}

/// Items and regions that exist in both versions, by their container and condition, with their ends in the base and in the branch.
#[derive(Default)]
struct Siblings<'s>(HashMap<(&'s str, &'s str), Vec<(usize, usize)>>);

impl Siblings<'_> {
    /// Returns the offset in the branch after the nearest sibling before a region of the base.
    fn place_before(&self, found: &FoundRegion) -> Option<usize> {
        let places = self.0.get(&(found.container.as_str(), found.condition.as_str()))?;
        let before = places.partition_point(|(end, _)| *end <= found.range.start);
        before.checked_sub(1).map(|at| places[at].1)
    }
}

/// Removes a region from the counts. Returns `false` if the counts do not contain it.
fn take<'x>(counts: &mut HashMap<(&'x str, &'x str), isize>, found: &'x FoundRegion, text: &'x str) -> bool {
    let count = counts.get_mut(&(found.condition.as_str(), &text[found.range.clone()])).filter(|count| **count > 0);
    count.map(|count| *count -= 1).is_some()
}

/// Returns the reason for a missing item.
fn missing(branch: &Side<'_>, path: &str) -> Reason {
    if branch.items.contains_key(path) { Reason::ConditionChanged } else { Reason::ItemGone }
}

/// Returns the name for all tests of a file.
pub(crate) fn file_name() -> RegionName {
    RegionName { kind: RegionKind::File, anchor: String::new(), number: 0 }
}

/// Returns the lines of a text that contain words of tests.
fn marks(text: &str) -> Vec<&str> {
    text.lines().filter(|line| has_any(line, &MARKS)).map(str::trim).collect()
}

/// Returns the line of the first fault if it prevents a comparison of the versions' tests.
fn unreadable(base: Option<&str>, sides: &(Side<'_>, Side<'_>)) -> Option<usize> {
    let (old, new) = sides;
    let (side, fault) = match (new.scan.fault, old.scan.fault) {
        (Some(fault), _) => (new, fault),
        (None, Some(fault)) => (old, fault),
        (None, None) => return None,
    };
    // A new file cannot change the base's tests.
    base?;
    let tests = |side: &Side<'_>| -> Vec<(String, String)> {
        let text = |found: &FoundRegion| (found.condition.clone(), side.text[found.range.clone()].to_owned());
        side.scan.tests().map(text).collect()
    };
    let has_tests = [old, new].iter().any(|side| side.scan.tests().next().is_some() || has_any(side.text, &MARKS));
    let is_same = old.scan.fault.is_some() && tests(old) == tests(new) && marks(old.text) == marks(new.text);
    let line = side.text[..fault].matches('\n').count() + 1;
    (has_tests && !is_same).then_some(line)
}

/// Returns the white space before an offset if it is the line's only text before the offset.
fn indent(text: &str, at: usize) -> &str {
    let begin = text[..at].trim_end_matches([' ', '\t']).len();
    let is_first = begin == 0 || text[..begin].ends_with(['\n', '\u{feff}']);
    if is_first { &text[begin..at] } else { "" }
}

fn line_break(text: &str) -> &'static str {
    let end = text.bytes().take(MAX_LINE).position(|byte| byte == b'\n').unwrap_or(0);
    if text[..end].ends_with('\r') { "\r\n" } else { "\n" }
}

/// Returns the range of the branch's file to remove with a region, and its replacement.
fn removed(branch: &Side<'_>, found: &FoundRegion) -> (Range<usize>, String) {
    let Range { start, end } = found.range.clone();
    let text = branch.text;
    if found.shape != Shape::Item && !branch.scan.empty_doc.is_empty() {
        return (start..end, branch.scan.empty_doc.to_owned());
    }
    let line_start = text[..start].trim_end_matches([' ', '\t']).len();
    let rest = text[end..].trim_start_matches([' ', '\t', '\r']);
    let is_alone =
        (line_start == 0 || text[..line_start].ends_with('\n')) && (rest.is_empty() || rest.starts_with('\n'));
    let line_end = text.len() - rest.len() + usize::from(!rest.is_empty());
    if !is_alone {
        return (start..end, String::new());
    }
    // If blank lines surround the region, remove one of them.
    let blank_before = text[..line_start].ends_with("\n\n") || text[..line_start].ends_with("\n\r\n");
    let next = text[line_end.min(text.len())..].trim_start_matches([' ', '\t', '\r']);
    if found.shape == Shape::Item && blank_before && (next.is_empty() || next.starts_with('\n')) {
        let before = text[..line_start].strip_suffix('\n').unwrap_or_default();
        return (before.strip_suffix('\r').unwrap_or(before).len()..line_end, String::new());
    }
    (line_start..line_end, String::new())
}

/// Applies edits in order; `None` if they overlap.
fn apply(text: &str, edits: &[Edit]) -> Option<String> {
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        if edit.range.start < at {
            return None;
        }
        result.push_str(&text[at..edit.range.start]);
        result.push_str(&edit.text);
        at = edit.range.end;
    }
    result.push_str(&text[at..]);
    Some(result)
}
