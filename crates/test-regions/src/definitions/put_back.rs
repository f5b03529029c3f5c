//! Puts the base's definitions back into the branch's files.

use std::collections::{HashMap, HashSet};

use super::names::{is_assignment, word};
use super::{VerdictDefinition, find, last};
use crate::language::SourceLanguage;
use crate::merge::{Edit, Judgement, MergePlan, Side};
use crate::scan::{mentions, squeezed, text_start, words};
use crate::{Reason, RegionKind, RegionName};

/// Maximum number of changed definitions that are restored.
const MAX_CHANGED: usize = 500;
/// Words of a task that asks for a comparison.
const COMPARES: [&str; 11] =
    ["equal", "==", "compar", "identical", "distinct", "duplicate", "unique", "hash", "sort", "newer", "older"];
/// Words before the name of a declared type.
const DECLARES: [&str; 16] = [
    "class",
    "struct",
    "type",
    "data",
    "newtype",
    "enum",
    "record",
    "object",
    "trait",
    "interface",
    "union",
    "actor",
    "module",
    "extension",
    "local",
    "package",
];
/// Types of languages and libraries whose comparison a program can change.
const CORE: [&str; 24] = [
    "String",
    "Integer",
    "Float",
    "Array",
    "Hash",
    "Object",
    "BasicObject",
    "NilClass",
    "TrueClass",
    "FalseClass",
    "Symbol",
    "Numeric",
    "Range",
    "Comparable",
    "Kernel",
    "Set",
    "Struct",
    "Time",
    "Exception",
    "Int",
    "Double",
    "Bool",
    "Number",
    "Error",
];

/// Comparisons by all fields, which replace a new comparison of a type that the base compared by identity.
const PYTHON_FIELDS: &str = "def __eq__(self, other): return type(self) is type(other) and self.__reduce_ex__(4)[:3] == other.__reduce_ex__(4)[:3]";
const RUBY_FIELDS: &str = "def ==(other); self.class == other.class && (respond_to?(:to_a) ? to_a == other.to_a : instance_variables.to_h { |name| [name, instance_variable_get(name)] } == other.instance_variables.to_h { |name| [name, other.instance_variable_get(name)] }); end";
/// Name of the base's order of Ruby, by which the base compared.
const RUBY_ORDER: &str = "base_order";
const RUBY_SAME: &str = "def eql?(other); self == other; end";
const JAVA_FIELDS: &str = "@Override public boolean equals(Object other) { if (other == null || other.getClass() != getClass()) return false; try { for (Class<?> type = getClass(); type != null && !type.getName().startsWith(\"java.\"); type = type.getSuperclass()) for (java.lang.reflect.Field field : type.getDeclaredFields()) { if (java.lang.reflect.Modifier.isStatic(field.getModifiers())) continue; field.setAccessible(true); if (!java.util.Objects.deepEquals(field.get(this), field.get(other))) return false; } return true; } catch (IllegalAccessException fault) { throw new AssertionError(fault); } }";
const KOTLIN_FIELDS: &str = "override fun equals(other: Any?): Boolean = other != null && other.javaClass == javaClass && javaClass.declaredFields.all { it.isAccessible = true; it.get(this) == it.get(other) }";

/// Definitions of one file in both versions.
struct FileDefinitions<'p> {
    file: usize,
    language: SourceLanguage,
    base: &'p Side<'p>,
    branch: &'p Side<'p>,
    old: Vec<VerdictDefinition>,
    new: Vec<VerdictDefinition>,
}

impl<'p> FileDefinitions<'p> {
    fn of(file: usize, plan: &'p MergePlan<'p>) -> Option<Self> {
        let (base, branch) = plan.sides.as_ref()?;
        let language = SourceLanguage::of(plan.path, branch.text).or(SourceLanguage::of(plan.path, base.text))?;
        let old = find(language, base.text, &base.scan);
        let new = find(language, branch.text, &branch.scan);
        Some(Self { file, language, base, branch, old, new })
    }
}

/// Plans the edits that give the branch's files the base's definitions. A definition of a type that is new in the branch stays, as
/// does one that the text of the task asks for.
pub(crate) fn put_back(plans: &mut [MergePlan<'_>], task: &str) {
    let mut edits: Vec<(usize, Edit)> = Vec::new();
    let mut not_judged: Vec<(usize, RegionName)> = Vec::new();
    {
        let of = |(file, plan)| FileDefinitions::of(file, plan);
        let files: Vec<FileDefinitions<'_>> = plans.iter().enumerate().filter_map(of).collect();
        let change = ChangedDefinitions { files: &files, task: &task.to_lowercase() };
        change.edits(&mut edits, &mut not_judged);
    }
    for (file, name) in not_judged {
        plans[file].not_judged.push((name, Reason::Ambiguous));
    }
    for (file, edit) in edits {
        plans[file].definitions.push(edit);
    }
}

struct ChangedDefinitions<'p> {
    files: &'p [FileDefinitions<'p>],
    /// Text of the task in lower case.
    task: &'p str,
}

impl ChangedDefinitions<'_> {
    /// Adds the edits, and the definitions beyond the maximum number to restore.
    fn edits(&self, edits: &mut Vec<(usize, Edit)>, not_judged: &mut Vec<(usize, RegionName)>) {
        // Texts of the base's definitions by type, name and text without white space, each with its file and offset.
        let mut equal: HashMap<(&str, &str, String), Vec<(usize, usize, &str)>> = HashMap::new();
        for file in self.files.iter().rev() {
            for one in file.old.iter().rev() {
                let text = &file.base.text[one.range.clone()];
                equal.entry((&one.of, &one.name, squeezed(text))).or_default().push((file.file, one.range.start, text));
            }
        }
        let mut changed = Vec::new();
        for (file, one) in self.files.iter().flat_map(|file| file.new.iter().map(move |one| (file, one))) {
            let text = squeezed(&file.branch.text[one.range.clone()]);
            let same = equal.get_mut(&(one.of.as_str(), one.name.as_str(), text)).and_then(Vec::pop);
            if same.is_none() {
                changed.push((file, one));
            }
        }
        let mut known: HashMap<(&str, &str), Vec<(usize, usize, &str)>> = HashMap::new();
        for ((of, name, _), texts) in equal {
            known.entry((of, name)).or_default().extend(texts);
        }
        known.values_mut().for_each(|texts| texts.sort_unstable());
        let rest = changed.split_off(changed.len().min(MAX_CHANGED));
        not_judged.extend(rest.into_iter().map(|(file, one)| (file.file, one.region_name())));
        for (file, one) in changed {
            let text = &file.branch.text[one.range.clone()];
            let old = known.get_mut(&(one.of.as_str(), one.name.as_str())).and_then(|texts| {
                let at = texts.iter().position(|(other, ..)| *other == file.file).unwrap_or(0);
                (!texts.is_empty()).then(|| texts.remove(at).2)
            });
            if self.is_asked_for(one) {
                continue;
            }
            let (text, judgement) = match old {
                // What takes the place of a built-in name at the base is program code.
                Some(_) if one.of.is_empty() => continue,
                // Ruby's `case` uses it.
                _ if one.name == "===" && !is_core(one) => continue,
                Some(old) if is_renamed(old, text, file.branch.text) => continue,
                _ if one.name == "<=>" && file.language == SourceLanguage::Ruby && !is_core(one) => {
                    // `Comparable` derives the equality from the order. The order itself stays.
                    let has_own =
                        self.files.iter().flat_map(|file| &file.new).any(|own| own.of == one.of && own.name == "==");
                    if has_own || !file.branch.text.contains("include Comparable") || !self.is_old(file, &one.of) {
                        continue;
                    }
                    let order = |old: &str| {
                        let old = old.replacen("<=>", RUBY_ORDER, 1);
                        format!("{old}\ndef ==(other); {RUBY_ORDER}(other) == 0; end")
                    };
                    (format!("{text}\n{}", old.map_or(RUBY_FIELDS.to_owned(), order)), Judgement::Replaced)
                }
                Some(old) => (old.to_owned(), Judgement::Replaced),
                None if !self.is_old(file, &one.of) => continue,
                None => match self.stand_in(file, one) {
                    Some(text) => (text, Judgement::Removed),
                    None => continue,
                },
            };
            if judgement == Judgement::Removed {
                self.derive(file, one, edits);
            }
            edits.push((file.file, Edit { range: one.range.clone(), text, name: one.region_name(), judgement }));
        }
    }

    /// Whether the text of the task asks for a definition.
    fn is_asked_for(&self, one: &VerdictDefinition) -> bool {
        let name = one.name.to_lowercase();
        if one.of.is_empty() {
            return mentions(self.task, &name);
        }
        let is_named = name.len() > 2 && mentions(self.task, &name);
        let of = one.of.to_lowercase();
        !of.is_empty()
            && self.task.contains(&of)
            && (is_named || COMPARES.iter().any(|compares| self.task.contains(compares)))
    }

    /// Whether the base has a type, as far as the changed files show.
    fn is_old(&self, file: &FileDefinitions<'_>, of: &str) -> bool {
        if file.language == SourceLanguage::Lua {
            // A metatable is local.
            return of.is_empty() || mentions(file.base.text, of);
        }
        of.is_empty()
            || CORE.contains(&of)
            || self.files.iter().any(|file| mentions(file.base.text, of))
            || !self.files.iter().any(|file| declares(file.branch.text, of))
    }

    /// Returns the base's declaration of a type, as far as its body.
    fn declaration(&self, of: &str) -> &str {
        let items = self.files.iter().flat_map(|file| file.base.scan.items.iter().map(move |item| (file, item)));
        let found = items.into_iter().find(|(_, item)| last(&item.path).split(' ').any(|part| part == of));
        found.map_or("", |(file, item)| &file.base.text[item.range.clone()])
    }

    /// Returns the text that replaces a new definition in the run with the base's tests; `None` if the definition
    /// stays, because the base could not compare the values.
    fn stand_in(&self, file: &FileDefinitions<'_>, one: &VerdictDefinition) -> Option<String> {
        let text = &file.branch.text[one.range.clone()];
        let declaration = self.declaration(&one.of);
        let header = &declaration[..declaration.find(['{', '\n']).unwrap_or(declaration.len())];
        let is_core = is_core(one);
        let had_own = || self.files.iter().any(|file| file.old.iter().any(|old| old.of == one.of));
        let removed = |is_removed: bool| is_removed.then(String::new);
        match file.language {
            SourceLanguage::Rust => removed(one.name == "PartialEq" && (derives(declaration) || had_own())),
            SourceLanguage::Haskell => {
                let head = text.strip_prefix("instance ")?.lines().next()?.split(" where").next()?;
                derives(declaration).then(|| format!("deriving instance {}", head.trim()))
            }
            SourceLanguage::Cpp => removed(is_core || had_own()),
            SourceLanguage::Swift => {
                let conforms =
                    |line: &str| ["Equatable", "Hashable", "Comparable"].iter().any(|name| line.contains(name));
                let is_line = |line: &str| mentions(line, &one.of) && conforms(line);
                removed(is_core || had_own() || self.files.iter().any(|file| file.base.text.lines().any(is_line)))
            }
            SourceLanguage::CSharp => removed(mentions(header, "record") || had_own()),
            SourceLanguage::Go => {
                let calls = |file: &FileDefinitions<'_>| file.branch.text.contains(".Equal(");
                removed(is_core || !self.files.iter().any(calls))
            }
            SourceLanguage::Python if text == "False" => {
                (mentions(declaration, &one.name) && !one.name.is_empty()).then(|| "True".to_owned())
            }
            SourceLanguage::Python => {
                let start = declaration.split(':').next().unwrap_or_default();
                let bases = start.split_once('(').map_or("", |(_, bases)| bases.trim_end_matches(')').trim());
                let is_plain = start.starts_with("class") && ["", "object", "ABC", "abc.ABC"].contains(&bases);
                let is_function = text.starts_with("def __eq__");
                Some(if is_plain && is_function { PYTHON_FIELDS } else { "pass" }.to_owned())
            }
            SourceLanguage::Ruby => {
                let is_plain = header.contains("class ") && !header.contains('<') && !is_core;
                Some(match one.name.as_str() {
                    "==" if is_plain => RUBY_FIELDS.to_owned(),
                    "eql?" if is_plain => RUBY_SAME.to_owned(),
                    _ => String::new(),
                })
            }
            SourceLanguage::Jvm if one.name == "equals" => {
                let is_structural = ["record", "data", "case"].iter().any(|word| mentions(header, word));
                Some(match text {
                    _ if is_structural || text.contains("def equals") => String::new(),
                    text if text.contains("fun equals") => KOTLIN_FIELDS.to_owned(),
                    _ => JAVA_FIELDS.to_owned(),
                })
            }
            _ => Some(String::new()),
        }
    }

    /// Adds the derived comparison that a removed definition replaced.
    fn derive(&self, file: &FileDefinitions<'_>, one: &VerdictDefinition, edits: &mut Vec<(usize, Edit)>) {
        let mut add = |file: usize, at: usize, text: String| {
            let edit = Edit { range: at..at, text, name: one.region_name(), judgement: Judgement::Restored };
            edits.push((file, edit));
        };
        match file.language {
            SourceLanguage::Haskell => {
                let start = text_start(file.branch.text);
                add(file.file, start, "{-# LANGUAGE StandaloneDeriving #-}\n".to_owned());
            }
            SourceLanguage::Rust if derives(self.declaration(&one.of)) => {
                for other in self.files {
                    let text = other.branch.text;
                    let items = other.branch.scan.items.iter().filter(|item| last(&item.path) == one.of);
                    for item in items.filter(|item| !derives(&text[item.range.clone()])) {
                        let indent =
                            &text[text[..item.range.start].trim_end_matches([' ', '\t']).len()..item.range.start];
                        add(other.file, item.range.start, format!("#[derive(PartialEq)]\n{indent}"));
                    }
                }
            }
            _ => {}
        }
    }
}

impl VerdictDefinition {
    pub fn region_name(&self) -> RegionName {
        let anchor = crate::scan::join(&self.of, &self.name);
        RegionName { kind: RegionKind::Definition, anchor, number: 0 }
    }
}

/// Whether a definition changes a type or a name of the language.
fn is_core(one: &VerdictDefinition) -> bool {
    one.of.is_empty() || CORE.contains(&one.of.as_str())
}

/// Whether a declaration of Rust or Haskell derives the comparison.
fn derives(declaration: &str) -> bool {
    let rust = || {
        let text = &declaration[..declaration.find('{').unwrap_or(declaration.len()).min(declaration.len())];
        text.split("derive(").skip(1).any(|list| list.split(')').next().is_some_and(|list| mentions(list, "PartialEq")))
    };
    let haskell = || declaration.split("deriving").skip(1).any(|list| mentions(list, "Eq"));
    rust() || haskell()
}

/// Whether a text declares a type.
fn declares(text: &str, of: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let is_word = |at: usize| !text[at + of.len()..].starts_with(is_part) && !text[..at].ends_with(is_part);
    text.match_indices(of).filter(|(at, _)| is_word(*at)).any(|(at, _)| {
        let rest = &text[at + of.len()..];
        let before = text[..at].trim_end();
        let start = before.rfind(|c: char| !c.is_alphanumeric()).map_or(0, |at| at + 1);
        let is_declared = DECLARES.contains(&before.get(start..).unwrap_or_default());
        is_declared || is_assignment(rest.trim_start_matches(['*', ' ']))
    })
}

/// Whether a definition differs only by new names, and the old names no longer occur in the file.
fn is_renamed(old: &str, new: &str, file: &str) -> bool {
    let (old, new) = (parts(old), parts(new));
    let known: HashSet<&str> = words(file).collect();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut back: HashMap<&str, &str> = HashMap::new();
    old.len() == new.len()
        && old.iter().zip(&new).all(|(old, new)| {
            let is_name = |part: &str| part.starts_with(|c: char| c.is_alphabetic() || c == '_');
            let is_same = old == new || is_name(old) && is_name(new) && !known.contains(old);
            is_same && *names.entry(old).or_insert(new) == *new && *back.entry(new).or_insert(old) == *old
        })
}

/// Splits code into words and signs.
fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = word(rest).len().max(c.len_utf8());
        parts.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    parts
}
