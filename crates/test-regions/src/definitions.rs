//! Definitions that decide whether assertions pass: how the values of a type compare, and names that take the place of built-in
//! ones.

mod names;
mod put_back;

use std::ops::Range;

use crate::language::SourceLanguage;
use crate::scan::{Covered, FileScan, ProgramItem};
use names::{SHADOWS, is_assignment, line_definition, word};

pub(crate) use names::is_built_in_of_c;
pub(crate) use put_back::put_back;

/// Maximum number of lines that are searched for the start or the end of a block.
const MAX_BLOCK: usize = 500;
/// Maximum length of the text that is searched for the name of a definition, in bytes.
const MAX_HEADER: usize = 600;

/// Definition in a program file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerdictDefinition {
    /// Type whose values it compares. Empty if the definition shadows a built-in name.
    pub of: String,
    /// Name of the function, operator or trait.
    pub name: String,
    pub range: Range<usize>,
}

/// Returns the definitions of a file outside tests, in source order.
pub(crate) fn find(language: SourceLanguage, source: &str, scan: &FileScan) -> Vec<VerdictDefinition> {
    let mut found: Vec<VerdictDefinition> = Vec::new();
    let has_namespace = language == SourceLanguage::Php && source.contains("namespace ");
    for item in scan.items.iter().skip(1) {
        let start = code_start(source, scan, item);
        let text = &source[start..item.range.end];
        let is_visible = |header: &str| match language {
            SourceLanguage::Php => has_namespace && header.starts_with("function "),
            _ => is_visible(language, header),
        };
        if let Some((of, name)) = of_item(language, source, item, text, &is_visible) {
            found.push(VerdictDefinition { of, name, range: start..item.range.end });
        }
    }
    let innermost = Innermost::of(&scan.items[1..]);
    let covered = Covered::by(scan.tests().map(|test| test.range.clone()));
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        let start = at + line.len() - line.trim_start().len();
        if let Some((of, name)) = line_definition(language, line) {
            let is_in_class = of.is_empty() && language == SourceLanguage::Python && name.starts_with("__");
            let of = if is_in_class { innermost.class_around(source, start).unwrap_or_default().0 } else { of };
            found.push(VerdictDefinition { of, name, range: start..statement_end(language, source, start) });
        }
        if let Some(value) = excluded_value(language, line)
            && let Some((of, class)) = innermost.class_around(source, start)
        {
            let name = field_before(&source[class..at + line.len()]);
            found.push(VerdictDefinition { of, name, range: at + value.start..at + value.end });
        }
        at += line.len();
    }
    found.sort_by_key(|one| (one.range.start, usize::MAX - one.range.end));
    let mut end = 0;
    found.retain(|one| {
        let is_inside = one.range.start < end;
        end = end.max(one.range.end);
        !is_inside && !covered.contains(one.range.start)
    });
    found
}

/// Returns the start of an item after its documentation.
fn code_start(source: &str, scan: &FileScan, item: &ProgramItem) -> usize {
    let doc = scan.found.partition_point(|found| found.range.start < item.range.start);
    let docs = scan.found[doc..].iter().take_while(|found| found.range.start == item.range.start);
    let start = docs.map(|doc| doc.range.end).filter(|end| *end < item.range.end).max().unwrap_or(item.range.start);
    start + source[start..item.range.end].len() - source[start..item.range.end].trim_start().len()
}

/// Innermost item at each offset: offsets at which it changes, and the item from there on.
struct Innermost<'s>(Vec<(usize, Option<&'s ProgramItem>)>);

impl<'s> Innermost<'s> {
    fn of(items: &'s [ProgramItem]) -> Self {
        let mut sorted: Vec<&ProgramItem> = items.iter().collect();
        sorted.sort_by_key(|item| (item.range.start, usize::MAX - item.range.end));
        let mut changes = Vec::new();
        let mut open: Vec<&ProgramItem> = Vec::new();
        for item in sorted {
            Self::close(&mut open, &mut changes, item.range.start);
            changes.push((item.range.start, Some(item)));
            open.push(item);
        }
        Self::close(&mut open, &mut changes, usize::MAX);
        Self(changes)
    }

    /// Closes the items that end up to an offset.
    fn close(open: &mut Vec<&'s ProgramItem>, changes: &mut Vec<(usize, Option<&'s ProgramItem>)>, to: usize) {
        while let Some(item) = open.pop_if(|item| item.range.end <= to) {
            changes.push((item.range.end, open.last().copied()));
        }
    }

    /// Returns the name and the start of the innermost class of Python around an offset.
    fn class_around(&self, source: &str, at: usize) -> Option<(String, usize)> {
        let next = self.0.partition_point(|(start, _)| *start <= at);
        let item = self.0[next.checked_sub(1)?].1?;
        let is_class = source[item.range.clone()].starts_with(['c', '@']);
        is_class.then(|| (last(&item.path).to_owned(), item.range.start))
    }
}

/// Returns the range of the value with which a line of Python leaves a field or class out of comparisons.
fn excluded_value(language: SourceLanguage, line: &str) -> Option<Range<usize>> {
    let is_python = language == SourceLanguage::Python && !line.trim_start().starts_with('#');
    let names = ["compare", "eq", "cmp"].into_iter().filter(|_| is_python);
    names.flat_map(|name| line.match_indices(name).map(move |(at, _)| (at, at + name.len()))).find_map(
        |(start, end)| {
            let value = line[end..].trim_start().strip_prefix('=')?.trim_start();
            let at = line.len() - value.len();
            let is_name = line[..start].ends_with(['(', ',', ' ', '\t']) || start == 0;
            (is_name && word(value) == "False").then(|| at..at + "False".len())
        },
    )
}

/// Returns the field or decorator to which the last line of a class belongs.
fn field_before(class: &str) -> String {
    let field = |line: &str| {
        let line = line.trim_start();
        let name = word(line.strip_prefix('@').unwrap_or(line));
        let rest = line.trim_start_matches('@')[name.len()..].trim_start();
        (line.starts_with('@') || rest.starts_with(':') || is_assignment(rest) && !rest.contains("False,"))
            .then(|| name.to_owned())
    };
    class.lines().rev().take(MAX_BLOCK).find_map(field).unwrap_or_default()
}

/// Returns the last name of a path.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

/// Returns the type and the name if an item is such a definition.
fn of_item(
    language: SourceLanguage,
    source: &str,
    item: &ProgramItem,
    text: &str,
    is_visible: &dyn Fn(&str) -> bool,
) -> Option<(String, String)> {
    let header = &text[..(0..=text.len().min(MAX_HEADER)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)];
    let name = last(&item.path);
    let parent = last(&item.parent).to_owned();
    let is_method = !parent.is_empty();
    let shadows = SHADOWS.iter().filter(|(of, _)| *of == language).flat_map(|(_, names)| *names);
    if !is_method && shadows.into_iter().any(|shadow| *shadow == name) && is_visible(header) {
        return Some((String::new(), name.to_owned()));
    }
    // One argument besides the object itself.
    let is_alone = || header.split(')').next().is_some_and(|start| !start.contains(','));
    match language {
        SourceLanguage::Python if is_method && ["__eq__", "__ne__"].contains(&name) => Some((parent, name.to_owned())),
        SourceLanguage::D if is_method && name == "opEquals" => Some((parent, name.to_owned())),
        SourceLanguage::Jvm if is_method && name == "equals" && is_alone() => Some((parent, name.to_owned())),
        SourceLanguage::Jvm if is_method && header.contains("def ==") => Some((parent, "==".to_owned())),
        SourceLanguage::CSharp if is_method && name == "Equals" && is_alone() => Some((parent, name.to_owned())),
        SourceLanguage::Ruby => {
            let rest = header.strip_prefix("def ")?.trim_start();
            let rest = rest.strip_prefix("self.").unwrap_or(rest);
            let name = ["===", "==", "<=>", "!=", "eql?", "equal?"].into_iter().find(|name| rest.starts_with(name))?;
            let of = if is_method { parent } else { assigned_class(&source[..item.range.start])? };
            Some((of, name.to_owned()))
        }
        SourceLanguage::Rust => {
            let (of_trait, of) = item.path.rsplit_once("impl ")?.1.split_once(" for ")?;
            let (of_trait, other) = of_trait.split_once('<').unwrap_or((of_trait, ""));
            let of = word(last(of.split('<').next().unwrap_or(of)));
            let is_same = ["", "Self", of].contains(&word(last(other)));
            (last(of_trait) == "PartialEq").then(|| {
                let name = if is_same { "PartialEq".to_owned() } else { format!("PartialEq<{other}") };
                (of.to_owned(), name)
            })
        }
        SourceLanguage::Haskell => {
            let head = header.strip_prefix("instance ")?.split(" where").next()?.lines().next()?;
            let of = head.rsplit("=>").next()?.trim().strip_prefix("Eq ")?;
            Some((word(of.trim_start_matches('(')).to_owned(), "Eq".to_owned()))
        }
        SourceLanguage::Nim => {
            let rest = header.split_once("`==`").filter(|(start, _)| !start.contains('\n'))?.1;
            Some((first_type(rest)?, "==".to_owned()))
        }
        SourceLanguage::Swift => {
            let rest = header.split_once("func ==").filter(|(start, _)| !start.contains('{'))?.1;
            Some((if is_method { parent } else { first_type(rest)? }, "==".to_owned()))
        }
        SourceLanguage::Cpp | SourceLanguage::CSharp => {
            let (start, rest) = header.split_once("operator")?;
            let name = ["<=>", "==", "!="].into_iter().find(|name| rest.trim_start().starts_with(name))?;
            let is_member = is_method && !rest.split(')').next().is_some_and(|start| start.contains(','));
            let of = if is_member { parent } else { first_type(rest)? };
            (!start.contains(['{', ';', '='])).then(|| (of, name.to_owned()))
        }
        SourceLanguage::OCaml => {
            let rest = header.strip_prefix("let ")?;
            let rest = rest.strip_prefix("rec ").unwrap_or(rest).trim_start();
            let name =
                ["(=)", "( = )", "(<>)", "( <> )", "(==)", "( == )"].into_iter().find(|n| rest.starts_with(n))?;
            Some((String::new(), name.to_owned()))
        }
        _ => None,
    }
}

/// Whether other files see a function with the name of a built-in one.
fn is_visible(language: SourceLanguage, header: &str) -> bool {
    match language {
        SourceLanguage::Cpp => header.split(['{', ';', '=']).next().is_some_and(|start| {
            start.contains('(') && !start.contains("static ") && header[start.len()..].starts_with('{')
        }),
        SourceLanguage::Jvm => header.contains("fun "),
        SourceLanguage::Swift => header.contains("func "),
        SourceLanguage::Ruby => header.starts_with("def "),
        SourceLanguage::Python => ["def ", "class "].iter().any(|start| header.starts_with(start)),
        _ => true,
    }
}

/// Returns the class whose block is open at the end of a text, as in `Money = Struct.new(:cents) do`.
fn assigned_class(before: &str) -> Option<String> {
    let indent = before.len() - before.trim_end_matches([' ', '\t']).len();
    let is_outer = |line: &&str| !line.trim().is_empty() && line.len() - line.trim_start().len() < indent;
    let mut lines = before.lines().rev().skip(usize::from(indent > 0)).take(MAX_BLOCK);
    let line = lines.find(is_outer)?.trim_start();
    let name = word(line);
    (is_assignment(&line[name.len()..]) && line.contains(" do")).then(|| name.to_owned())
}

/// Returns the type of the first parameter, which follows its name or, as in C++, precedes it.
fn first_type(parameters: &str) -> Option<String> {
    let (_, inside) = parameters.split_once('(')?;
    let inside = inside.split(')').next()?;
    let typed = inside.replace("::", "\u{0}");
    let text = match typed.split_once(':') {
        Some((_, typed)) => typed.split([',', ';']).next()?.to_owned(),
        None => typed.split([',', '&', '*', '<']).next()?.to_owned(),
    };
    let modifiers = ["const", "struct", "class", "var", "ref", "ptr", "lent", "sink", "borrowing", "inout"];
    let mut words = text.split_whitespace().filter(|word| !modifiers.contains(word));
    let of = word(words.next()?.rsplit('\u{0}').next()?);
    (!of.is_empty()).then(|| of.to_owned())
}

/// Returns the end of a statement that starts at an offset: its brackets are closed, and so is its block.
fn statement_end(language: SourceLanguage, source: &str, start: usize) -> usize {
    let indent = start - source[..start].trim_end_matches([' ', '\t']).len();
    let has_end = matches!(language, SourceLanguage::Lua | SourceLanguage::Julia);
    let first = source[start..].lines().next().unwrap_or_default();
    let opens = has_end && mentions_start(first);
    let (mut at, mut depth) = (start, 0_isize);
    for line in source[start..].split_inclusive('\n').take(MAX_BLOCK) {
        let text = line.trim_end();
        for c in text.chars() {
            depth += isize::from("([{".contains(c)) - isize::from(")]}".contains(c));
        }
        let end = at + text.len();
        at += line.len();
        let is_end = text.trim_start().starts_with("end") && text.len() - text.trim_start().len() <= indent;
        if depth <= 0 && (!opens || end > start + first.len() && is_end) {
            return end;
        }
    }
    start + first.trim_end().len()
}

/// Whether a line opens a block that the word `end` closes on another line.
fn mentions_start(line: &str) -> bool {
    line.contains("function") && !line.trim_end().ends_with("end")
}
