//! Sources of drawings: separates the parts that forges render from those that people do not see.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::domain::model::document::{DrawnKind, Unseen, UnseenKind};

/// TeX commands that hide, move or shrink text, or that define other commands.
static TEX_HIDES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x) \\ (?: color | textcolor | colorbox | fcolorbox | definecolor | pagecolor
        | h?phantom | vphantom | smash | tiny | scriptscriptstyle | scriptsize
        | [rl]lap | math[rlc]lap | clap | [hv]space | [hmv]?skip | mskip | m?kern | raise | lower | raisebox | moveleft | moveright
        | class | cssId | style | bbox | require | unicode | href | html\w* | data | ref | label | tag
        | (?:re)?newcommand | (?:re)?newenvironment | DeclareMathOperator | g?def | [ex]def | let | mathchoice | toggle | texttip | mathtip ) (?:[^A-Za-z]|$)
        | (?:^|[^\\])%",
    )
});
/// Mermaid styles and markup that hide text.
static MERMAID_HIDES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?ix) display\s*: \s*none | visibility\s*:\s*(?:hidden|collapse) | opacity\s*:\s*0?(?:\.[0-3]\d*)?(?:[^\d.]|$)
        | font-size\s*:\s*0*[0-5](?:\.\d+)?(?:px|pt|em|[^\d.]|$) | color\s*:\s*transparent | <!-- | <\s*(?:span|div|font|p|svg|img|script|style|template|details|sub|sup)\b
        | \b(?:style|hidden|title|alt|class)\s*=\s*["'] | themeCSS | fill-opacity | transform\s*: "#,
    )
});
/// White text in a Mermaid style.
static MERMAID_WHITE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:^|[^-\w])color\s*:\s*(?:white|#fff(?:fff)?\b|#f[a-f]f[a-f]f[a-f]|ivory|snow|rgba?\()")
});
/// Fill color in a Mermaid style that is dark enough for white text.
static MERMAID_DARK: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)(?:fill|background)\s*:\s*(?:#[0-9a-d]|[a-eg-hj-rt-v]\w+)"));
/// Lines of an STL model in text form.
static STL_LINE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)^\s*(?:(solid|endsolid)\b.*|facet\s+normal(?:\s+[-+.\de]+)*|outer\s+loop|vertex(?:\s+[-+.\de]+)*|endloop|endfacet)\s*$",
    )
});

/// Members of GeoJSON and TopoJSON objects that are rendered, or displayed on a click.
const MAP_MEMBERS: [&str; 13] = [
    "type",
    "features",
    "geometry",
    "geometries",
    "coordinates",
    "properties",
    "bbox",
    "id",
    "objects",
    "arcs",
    "transform",
    "scale",
    "translate",
];

fn pattern(source: &str) -> Regex {
    Regex::new(source).expect("a constant pattern")
}

/// Returns the part of a drawing's source that is rendered. `None` if no part is rendered, or if this cannot be determined.
/// Reports the drawing, and the parts that are not rendered.
pub(super) fn source(kind: DrawnKind, source: &str, unseen: &mut Unseen) -> Option<String> {
    let drawn = match kind {
        DrawnKind::Formula => (!TEX_HIDES.is_match(source)).then(|| source.trim().to_owned()),
        DrawnKind::Mermaid => mermaid(source, unseen),
        DrawnKind::GeoJson | DrawnKind::TopoJson => map(source, unseen),
        DrawnKind::Stl => Some(stl(source, unseen)),
    };
    match drawn {
        Some(drawn) => {
            unseen.add(UnseenKind::Drawn, &drawn);
            Some(drawn)
        }
        None => {
            unseen.add(UnseenKind::Undrawn, source);
            None
        }
    }
}

/// Returns a diagram without comments, directives, tooltips and descriptions for screen readers.
fn mermaid(source: &str, unseen: &mut Unseen) -> Option<String> {
    if MERMAID_HIDES.is_match(source) {
        return None;
    }
    let mut remaining: Vec<&str> = Vec::new();
    let (mut in_braces, mut in_directive) = (false, false);
    for line in source.lines() {
        let trimmed = line.trim_start();
        let lower = trimmed.to_ascii_lowercase();
        let white = MERMAID_WHITE.is_match(trimmed) && !MERMAID_DARK.is_match(trimmed);
        let starts = |words: &[&str]| words.iter().any(|word| lower.starts_with(word));
        if white {
            return None;
        }
        in_directive |= trimmed.contains("%%{");
        let hidden = in_braces
            || in_directive
            || trimmed.contains("%%")
            || starts(&["acctitle", "accdescr", "click ", "link ", "links ", "callback "]);
        in_braces = (in_braces || lower.starts_with("accdescr") && trimmed.contains('{')) && !trimmed.contains('}');
        in_directive &= !trimmed.contains("}%%");
        match trimmed.find("%%").filter(|_| !in_directive && !starts(&["acc", "click ", "link", "callback "])) {
            Some(at) if hidden && !trimmed[..at].trim().is_empty() => {
                unseen.add(UnseenKind::Undrawn, &trimmed[at..]);
                remaining.push(&line[..line.len() - trimmed.len() + at]);
            }
            _ if hidden => unseen.add(UnseenKind::Undrawn, trimmed),
            _ => remaining.push(line),
        }
    }
    Some(remaining.join("\n").trim_end().to_owned())
}

/// Returns a map without members that are not rendered; `None` if it cannot be parsed.
fn map(source: &str, unseen: &mut Unseen) -> Option<String> {
    let mut value: Value = serde_json::from_str(source).ok()?;
    let mut open = vec![&mut value];
    let mut removed = false;
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                let before = members.len();
                members.retain(|name, _| MAP_MEMBERS.contains(&name.as_str()));
                removed |= members.len() < before;
                for (name, value) in members.iter_mut() {
                    match name.as_str() {
                        // Names of layers and properties are free.
                        "objects" => {
                            open.extend(value.as_object_mut().into_iter().flat_map(|layers| layers.values_mut()))
                        }
                        "properties" => {}
                        _ => open.push(value),
                    }
                }
            }
            Value::Array(values) => open.extend(values),
            _ => {}
        }
    }
    if removed {
        unseen.add(UnseenKind::Undrawn, source);
        return serde_json::to_string_pretty(&value).ok();
    }
    Some(source.trim().to_owned())
}

/// Returns a model without names and notes.
fn stl(source: &str, unseen: &mut Unseen) -> String {
    let mut remaining: Vec<&str> = Vec::new();
    for line in source.lines().filter(|line| !line.trim().is_empty()) {
        let named = STL_LINE.captures(line).map(|found| found.get(1).map(|word| word.as_str()));
        match named {
            Some(Some(word)) => {
                if line.trim().len() > word.len() {
                    unseen.add(UnseenKind::Undrawn, line);
                }
                remaining.push(word);
            }
            Some(None) => remaining.push(line),
            None => unseen.add(UnseenKind::Undrawn, line),
        }
    }
    remaining.join("\n")
}
