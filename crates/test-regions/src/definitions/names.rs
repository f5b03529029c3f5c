//! Built-in names that tests rely on, by language, and statements that give them another meaning.

use crate::language::SourceLanguage;

/// Names of Python that a module may export again.
const PYTHON: [&str; 8] = ["AssertionError", "isinstance", "len", "sorted", "repr", "str", "bool", "tuple"];
/// Functions and classes of a file that shadow built-in ones. Names that ordinary programs also define are left out.
pub(super) const SHADOWS: [(SourceLanguage, &[&str]); 7] = [
    (SourceLanguage::Python, &PYTHON),
    (
        SourceLanguage::Cpp,
        &[
            "strcmp",
            "strncmp",
            "strcasecmp",
            "memcmp",
            "wcscmp",
            "strlen",
            "fabs",
            "abort",
            "exit",
            "_exit",
            "__assert",
            "__assert_fail",
            "__assert_rtn",
        ],
    ),
    (SourceLanguage::Nim, &["doAssert", "assert", "doAssertRaises"]),
    (
        SourceLanguage::Php,
        &["assert", "strcmp", "in_array", "strlen", "is_array", "is_null", "var_export", "json_encode"],
    ),
    (SourceLanguage::Ruby, &["raise", "fail", "exit", "abort"]),
    (
        SourceLanguage::Jvm,
        &["check", "require", "error", "assert", "assertEquals", "assertTrue", "assertFalse", "assertNull"],
    ),
    (SourceLanguage::Swift, &["XCTAssertEqual", "XCTAssertTrue", "XCTAssert", "assert", "precondition", "fatalError"]),
];

/// Names of Go that a package may declare again.
const GO: [&str; 7] = ["panic", "recover", "len", "true", "false", "nil", "error"];
/// Functions of JavaScript that assertions use, and objects whose functions they use.
const JAVASCRIPT: [&str; 15] = [
    "Object.is",
    "Object.keys",
    "Object.entries",
    "Object.getPrototypeOf",
    "JSON.stringify",
    "JSON.parse",
    "Array.isArray",
    "Number.isNaN",
    "Array.prototype",
    "Object.prototype",
    "String.prototype",
    "Number.prototype",
    "Map.prototype",
    "Set.prototype",
    "Error.prototype",
];
const JAVASCRIPT_GLOBALS: [&str; 12] = [
    "assert",
    "expect",
    "Error",
    "Object",
    "JSON",
    "Array",
    "String",
    "Number",
    "Map",
    "Set",
    "process",
    "structuredClone",
];
const LUA: [&str; 8] = ["assert", "error", "os.exit", "rawequal", "pcall", "xpcall", "type", "tostring"];
const PERL: [&str; 4] = ["*CORE::GLOBAL::", "*Test::", "*main::", "*{\"CORE::GLOBAL::"];

/// Whether a macro of C with this name changes the meaning of assertions.
pub(crate) fn is_built_in_of_c(name: &str) -> bool {
    name == "assert" || SHADOWS[1].1.contains(&name)
}

/// Returns the identifier at the start of a text.
pub(super) fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Whether a text starts with the sign of an assignment.
pub(super) fn is_assignment(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('=') && !["==", "=>", "=~"].iter().any(|sign| text.starts_with(sign))
}

/// Returns the type and the name if a line starts a definition that is not an item. An empty type means a built-in name, or for
/// the class around the line.
pub(super) fn line_definition(language: SourceLanguage, line: &str) -> Option<(String, String)> {
    let text = line.trim();
    let is_top = !line.starts_with([' ', '\t']);
    let shadow = |name: &str| Some((String::new(), name.to_owned()));
    match language {
        SourceLanguage::Python => python(text, is_top),
        SourceLanguage::Go if is_top => {
            let rest = ["func ", "var ", "const ", "type "].iter().find_map(|start| text.strip_prefix(start));
            if let Some(name) = rest.map(word).filter(|name| GO.contains(name)) {
                return shadow(name);
            }
            let (receiver, rest) = text.strip_prefix("func (")?.split_once(')')?;
            let of = receiver.split('[').next()?.rsplit([' ', '*']).next()?;
            rest.trim_start().starts_with("Equal(").then(|| (of.to_owned(), "Equal".to_owned()))
        }
        SourceLanguage::JavaScript => {
            let global = ["globalThis.", "global.", "window."].iter().find_map(|start| text.strip_prefix(start));
            if let Some(rest) = global {
                let name = word(rest);
                let is_known = JAVASCRIPT_GLOBALS.contains(&name) && is_assignment(&rest[name.len()..]);
                return shadow(name).filter(|_| is_known);
            }
            let object = JAVASCRIPT.iter().find(|object| text.starts_with(**object))?;
            let rest = text[object.len()..].trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_'));
            shadow(object).filter(|_| is_assignment(rest))
        }
        SourceLanguage::Lua => {
            let function = text.strip_prefix("function ");
            let rest = function.unwrap_or(text);
            let rest = rest.strip_prefix("_G.").unwrap_or(rest);
            let sets = |rest: &str| if function.is_some() { rest.starts_with('(') } else { is_assignment(rest) };
            if let Some(name) = LUA.iter().find(|name| rest.strip_prefix(**name).is_some_and(sets)) {
                return shadow(name).filter(|_| is_top || text.contains("_G."));
            }
            let at = text.find("__eq").filter(|at| is_assignment(&text[at + 4..]))?;
            Some((last_word(text[..at].trim_end_matches('.')), "__eq".to_owned()))
        }
        SourceLanguage::Perl => {
            let text = text.strip_prefix("local ").unwrap_or(text);
            let start = PERL.iter().find(|start| text.starts_with(**start))?;
            let (name, _) = text[start.len()..].split_once('=').filter(|(_, rest)| !rest.starts_with(['=', '~']))?;
            shadow(name.trim())
        }
        SourceLanguage::Julia if is_top => {
            let rest = text.strip_prefix("function ").unwrap_or(text);
            let starts = ["Base.:(==)(", "Base.:==(", "Base.isequal(", "==("];
            let start = starts.into_iter().find(|start| rest.starts_with(start))?;
            let of = rest[start.len()..].split("::").nth(1)?;
            Some((word(of).to_owned(), start.trim_end_matches('(').to_owned()))
        }
        _ => None,
    }
}

/// Returns the type and the name if a line of Python sets a comparison or a built-in name.
fn python(text: &str, is_top: bool) -> Option<(String, String)> {
    if let Some(rest) = ["builtins.", "__builtins__."].iter().find_map(|start| text.strip_prefix(start)) {
        let name = word(rest);
        let is_known = is_built_in(name) && is_assignment(&rest[name.len()..]);
        return is_known.then(|| (String::new(), name.to_owned()));
    }
    if let Some(rest) = text.strip_prefix("setattr(") {
        let (of, rest) = rest.split_once(',')?;
        let name = word(rest.trim_start().trim_start_matches(['"', '\'']));
        return match of.trim() {
            "builtins" | "__builtins__" => is_built_in(name).then(|| (String::new(), name.to_owned())),
            of => ["__eq__", "__ne__"].contains(&name).then(|| (last_word(of), name.to_owned())),
        };
    }
    let name = word(text);
    if is_top && PYTHON.contains(&name) && is_assignment(&text[name.len()..]) {
        return Some((String::new(), name.to_owned()));
    }
    let at = text.find("__eq__").or_else(|| text.find("__ne__"))?;
    let (of, end) = (&text[..at], at + "__eq__".len());
    let is_target = of.is_empty() || of.ends_with('.') && of.chars().all(|c| c.is_alphanumeric() || "._".contains(c));
    let of = last_word(of.trim_end_matches('.'));
    (is_target && is_assignment(&text[end..])).then(|| (of, text[at..end].to_owned()))
}

fn is_built_in(name: &str) -> bool {
    const MORE: [&str; 20] = [
        "type", "abs", "all", "any", "round", "min", "max", "sum", "print", "range", "exit", "quit", "hash", "id",
        "int", "float", "list", "dict", "set", "getattr",
    ];
    PYTHON.contains(&name) || name.ends_with("Error") || MORE.contains(&name)
}

fn last_word(path: &str) -> String {
    path.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(path).to_owned()
}
