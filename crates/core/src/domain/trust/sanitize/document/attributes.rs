//! HTML elements and attributes: those that are displayed, those that hide their content, and those with text that people do not
//! see.

use html5ever::tokenizer::{Tag, TagKind};
use html5ever::{Attribute, QualName, ns};

use crate::domain::model::document::{Unseen, UnseenKind};

/// Elements whose content at least one forge does not display as text. Elements that are neither listed here nor known to a
/// document are removed by forges, and their content is displayed.
const HIDING: &[&str] = &[
    "applet",
    "area",
    "audio",
    "base",
    "basefont",
    // Shows its letters in another order.
    "bdo",
    "canvas",
    "datalist",
    "dialog",
    "embed",
    "frame",
    "frameset",
    "head",
    "iframe",
    "link",
    "map",
    "math",
    "meta",
    "meter",
    "noembed",
    "noframes",
    "noscript",
    "object",
    "optgroup",
    "option",
    "param",
    "plaintext",
    "portal",
    "progress",
    // Shown only by browsers that do not know `ruby`.
    "rp",
    "script",
    "select",
    "slot",
    "source",
    "style",
    "svg",
    "template",
    "textarea",
    "title",
    "track",
    "video",
    "xmp",
];

/// Attributes with text that is read out, displayed on hover, or used by scripts.
const SPEAKING: &[&str] =
    &["alt", "content", "label", "placeholder", "srcdoc", "summary", "title", "value", "abbr", "standby", "prompt"];

/// Attributes for layout and identification.
const STRUCTURAL: &[&str] = &[
    "align",
    "bgcolor",
    "border",
    "cellpadding",
    "cellspacing",
    "checked",
    "cite",
    "class",
    "color",
    "cols",
    "colspan",
    "compact",
    "datetime",
    "decoding",
    "dir",
    "disabled",
    "face",
    "for",
    "headers",
    "height",
    "href",
    "hreflang",
    "hspace",
    "id",
    "lang",
    "loading",
    "media",
    "name",
    "nowrap",
    "open",
    "rel",
    "reversed",
    "role",
    "rows",
    "rowspan",
    "rules",
    "scope",
    "size",
    "sizes",
    "span",
    "src",
    "start",
    "style",
    "tabindex",
    "target",
    "type",
    "valign",
    "vspace",
    "width",
    "xml:lang",
    "hidden",
    "popover",
    "inert",
    "itemprop",
    "itemscope",
    "itemtype",
    "frameborder",
    "allowfullscreen",
    "controls",
    "crossorigin",
    "referrerpolicy",
    "dynsrc",
    "lowsrc",
    "usemap",
    "ismap",
];

/// Maximum length of the value of an attribute for layout or identification, in bytes. A longer value is text, except for URLs
/// and styles.
const LONGEST_VALUE: usize = 60;
/// Maximum number of unknown attributes without a value. More of them may form a sentence. `Map<K extends Ord>` has two.
const BARE_ATTRIBUTES: usize = 2;

/// Whether an element by itself hides its content.
pub(super) fn element_hides(name: &QualName) -> bool {
    name.ns != ns!(html) || HIDING.binary_search(&&*name.local).is_ok()
}

/// Whether attributes hide the content of an element, or make it hard to see. Forges remove most of these attributes and display
/// the content, but that depends on the forge and its version.
pub(super) fn attributes_hide(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| hides(&attribute.name.local, &attribute.value.to_ascii_lowercase()))
}

/// Returns whether an element sets the color of its text, and whether it sets the background color. If it sets both, text and
/// background may have the same color, which cannot be determined from names of colors.
pub(super) fn paints(attributes: &[Attribute]) -> (bool, bool) {
    let declares = |names: &[&str]| {
        value(attributes, "style").is_some_and(|style| {
            let mut properties = style.split(';').filter_map(|one| Some(one.split_once(':')?.0.trim()));
            properties.any(|property| names.iter().any(|name| property.eq_ignore_ascii_case(name)))
        })
    };
    let has = |name: &str| value(attributes, name).is_some();
    (
        has("color") || declares(&["color", "-webkit-text-fill-color"]),
        has("bgcolor") || declares(&["background", "background-color", "background-image"]),
    )
}

/// Returns the value of an attribute; `None` if there is no such attribute.
pub(super) fn value<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a str> {
    attributes.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

fn hides(name: &str, value: &str) -> bool {
    let value = value.trim();
    match name {
        "hidden" | "popover" | "inert" => true,
        "aria-hidden" => value != "false",
        "style" => value.split(';').any(style_hides),
        "color" => is_faint(value),
        "class" => value.split_ascii_whitespace().any(|class| {
            let class = class.trim_start_matches("js-").trim_start_matches("u-");
            ["hidden", "sr-only", "d-none", "invisible", "show-on-focus", "visually-hidden", "hide"].contains(&class)
        }),
        "width" | "height" | "size" => matches!(value, "0" | "0px" | "0%" | "1" | "1px"),
        _ => false,
    }
}

/// Whether a CSS declaration makes text hard to see.
fn style_hides(declaration: &str) -> bool {
    let Some((property, value)) = declaration.split_once(':') else { return false };
    let (property, value) = (property.trim(), value.trim());
    let number = || {
        let end = value.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(value.len());
        value[..end].parse::<f64>().ok()
    };
    let below = |most: f64| number().is_some_and(|number| number < most);
    match property {
        "display" => value.starts_with("none"),
        "visibility" => value.starts_with("hidden") || value.starts_with("collapse"),
        "content-visibility" | "clip" | "clip-path" | "transform" | "filter" | "mask" | "z-index" | "scale" => {
            !matches!(value, "none" | "auto" | "1")
        }
        "opacity" => below(0.4),
        "font-size" | "line-height" | "font" | "zoom" => {
            let relative = value.contains("em") || value.contains('%') || property != "font-size";
            number().is_some_and(|size| {
                if value.contains('%') {
                    size < 50.0
                } else if relative {
                    size < 0.5
                } else {
                    size < 8.0
                }
            })
        }
        "color" | "-webkit-text-fill-color" => is_faint(value),
        "position" => matches!(value, "absolute" | "fixed"),
        "left" | "right" | "top" | "bottom" | "text-indent" | "margin" | "margin-left" | "margin-top"
        | "margin-right" | "letter-spacing" | "word-spacing" => {
            value.starts_with('-') || number().is_some_and(|offset| offset > 500.0)
        }
        "width" | "height" | "max-width" | "max-height" => below(2.0) && !value.starts_with("auto"),
        _ => false,
    }
}

/// Whether a color can hardly be distinguished from the background of the page.
fn is_faint(color: &str) -> bool {
    const FAINT: &[&str] = &[
        "white",
        "transparent",
        "rgba",
        "hsla",
        "ivory",
        "snow",
        "ghostwhite",
        "whitesmoke",
        "canvas",
        "rgb(2",
        "hsl(",
        "azure",
        "mintcream",
        "floralwhite",
        "seashell",
        "honeydew",
        "aliceblue",
        "lightyellow",
        "var(",
    ];
    // `#f00` and `#ff0000` are red, `#fff` and `#fefefe` are not.
    if let Some(hex) = color.strip_prefix('#') {
        let wide = hex.len() >= 6;
        let channel = |n: usize| if wide { hex.get(2 * n..2 * n + 1) } else { hex.get(n..=n) };
        let bright = |n| channel(n).is_some_and(|digit| digit == "f" || digit == "e");
        return (0..3).all(bright) || matches!(hex.len(), 4 | 8);
    }
    FAINT.iter().any(|faint| color.starts_with(faint))
}

/// Reports the texts in the attributes of a tag as unseen.
pub(super) fn report(tag: &Tag, unseen: &mut Unseen) {
    for attribute in &tag.attrs {
        let (name, value) = (&*attribute.name.local, attribute.value.trim());
        if says_something(&tag.name, name, value) || tag.kind == TagKind::EndTag && !value.is_empty() {
            unseen.add(UnseenKind::Attribute, value);
        }
    }
    let unknown = |name: &str| !STRUCTURAL.contains(&name) && !name.starts_with("data-footnote");
    let bare = || tag.attrs.iter().filter(|attribute| attribute.value.is_empty() && unknown(&attribute.name.local));
    let closing = tag.kind == TagKind::EndTag && bare().count() > 0;
    if tag.had_duplicate_attributes || closing || bare().count() > BARE_ATTRIBUTES {
        let names: Vec<&str> = bare().map(|attribute| &*attribute.name.local).collect();
        unseen.add(UnseenKind::Attribute, &format!("{} {}", tag.name, names.join(" ")));
    }
}

/// Whether the value of an attribute is text for people or programs.
fn says_something(element: &str, name: &str, value: &str) -> bool {
    let words = value.chars().any(char::is_alphanumeric);
    if !words || is_of_renderer(name, value) {
        return false;
    }
    match name {
        // The description of an image is part of the document.
        "alt" => element != "img",
        "value" | "start" => value.parse::<i64>().is_err(),
        "srcset" => !value.split(',').all(is_image_candidate),
        "href" | "src" | "style" | "cite" => false,
        _ if SPEAKING.contains(&name) || name.starts_with("aria-") && name != "aria-hidden" => true,
        _ if STRUCTURAL.contains(&name) => value.len() > LONGEST_VALUE,
        _ => true,
    }
}

/// Whether an attribute is one that the Markdown renderer generates.
fn is_of_renderer(name: &str, value: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '-');
    match name {
        "data-math-style" => matches!(value, "inline" | "display"),
        "data-footnote-backref-idx" => number(value),
        "aria-label" => value.strip_prefix("Back to reference ").is_some_and(number),
        "id" | "href" => ["fn-", "fnref-", "#fn-", "#fnref-"].iter().any(|prefix| value.starts_with(prefix)),
        _ => false,
    }
}

/// Whether a part of `srcset` is a URL with a size.
fn is_image_candidate(part: &str) -> bool {
    let mut words = part.split_ascii_whitespace();
    let address = words.next().unwrap_or_default();
    let is_address = address.starts_with("https://") || address.starts_with("http://") || address.contains(['/', '.']);
    let size =
        words.next().is_none_or(|size| size.ends_with(['x', 'w']) && size.starts_with(|c: char| c.is_ascii_digit()));
    is_address && size && words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hiding_elements_are_sorted() {
        assert!(HIDING.is_sorted());
    }

    #[test]
    fn styles_hide_only_what_is_hard_to_see() {
        for hidden in [
            "display: none",
            "visibility:hidden",
            "opacity:0",
            "font-size:0",
            "font-size: 1px",
            "color:#fff",
            "color: white",
            "position:absolute",
            "left:-9999px",
            "text-indent: -100em",
            "height:0",
            "color:#fefefe",
            "transform:scale(0)",
            "color:rgba(0,0,0,0)",
            "max-height:1px",
            "font-size:10%",
        ] {
            assert!(hides("style", hidden), "{hidden}");
        }
        for shown in [
            "width: 100%",
            "color: red",
            "color:#f00",
            "text-align:center",
            "font-size: 12px",
            "margin: 0 auto",
            "height: 300px",
            "font-size: 90%",
            "color:#24292f",
            "border: 1px solid white",
            "opacity: 0.9",
        ] {
            assert!(!hides("style", shown), "{shown}");
        }
    }
}
