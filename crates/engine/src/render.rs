//! Renders views as Markdown, with escaping, a size limit, a marker and a footer.
//!
//! Templates escape every value by default; only the filters in `filters` add Markdown around values.

mod chart;
mod filters;
mod marker;
mod size;
mod templates;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use crate::domain::knowledge::prompt::PromptView;
use crate::domain::model::settings::did_you_mean;
use crate::domain::report::view::{EscalationSeverity, EscalationView, PullView, View};
use crate::domain::trust::outbound::{self, BodyText, Outbound, OutboundFilter, TitleText};

pub use filters::capital;
pub use marker::{Marker, MarkerKey, find_marker};

/// Maximum size of a posted text, in bytes; all forges accept more.
pub const MAX_BYTES: usize = 60_000;

/// Names of the prompt templates: for an iteration, and for a planning run.
const PROMPT: &str = "prompt/iteration.md";
const PLAN_PROMPT: &str = "prompt/plan.md";

/// Error of a template.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Syntax error in an operator's template.
    #[error("template {name} is not valid")]
    Invalid { name: String, source: minijinja::Error },
    /// Unknown name of an operator's template. `near` suggests a similar name, `known` lists all names.
    #[error("there is no template {name}{near}; known templates: {known}")]
    Unknown { name: String, near: String, known: String },
    /// Failure to render a template with its values.
    #[error("could not render template {name}")]
    Failed { name: String, source: Box<dyn std::error::Error + Send + Sync> },
}

/// Renderer of views to Markdown.
#[derive(Debug)]
pub struct Renderer {
    /// Built-in templates with the operator's replacements.
    chosen: Environment<'static>,
    /// Built-in templates only, used if an operator's template fails.
    built_in: Environment<'static>,
    /// Filter that masks secrets in values and in the text.
    outbound: OutboundFilter,
}

impl Renderer {
    /// Loads the built-in templates and the operator's `overrides` (pairs of name, such as `comment/status.md`, and text).
    ///
    /// # Errors
    /// The first override with an unknown name or an invalid template.
    pub fn new(overrides: Vec<(String, String)>, outbound: OutboundFilter) -> Result<Self, RenderError> {
        let built_in = templates::environment()?;
        let mut chosen = built_in.clone();
        for (name, text) in overrides {
            if !templates::ALL.iter().any(|(known, _)| *known == name) {
                let known: Vec<&str> = templates::ALL.iter().map(|(known, _)| *known).collect();
                let near = did_you_mean(&name, known.iter().copied());
                return Err(RenderError::Unknown { name, near, known: known.join(", ") });
            }
            chosen.add_template_owned(name.clone(), text).map_err(|source| RenderError::Invalid { name, source })?;
        }
        Ok(Self { chosen, built_in, outbound })
    }

    /// Returns the filter that masks secrets.
    pub fn outbound(&self) -> &OutboundFilter {
        &self.outbound
    }

    /// Renders a view with its footer, in at most `MAX_BYTES` minus the size of a marker. Shortens outputs first, then lists
    /// and tables; Markdown blocks remain complete.
    pub fn render(&self, view: &View) -> String {
        let name = templates::of(view);
        let Ok(context) = serde_json::to_value(view) else {
            return unrenderable(view);
        };
        // Escaping changes the form of secrets.
        let context = self.outbound.masked_json(context);
        for limits in size::LEVELS {
            let shrunk = size::shrink(context.clone(), limits);
            if size::is_hopeless(&shrunk) {
                continue;
            }
            let text = self.fill(name, &shrunk).unwrap_or_else(|_| unrenderable(view));
            if text.len() + marker::MAX_BYTES <= MAX_BYTES {
                return text;
            }
        }
        unrenderable(view)
    }

    /// Renders a view as a comment or body, with the marker for finding the text later.
    pub fn comment(&self, view: &View, marker: &Marker) -> Outbound<BodyText> {
        self.outbound.body(&format!("{}\n\n{}\n", self.render(view), marker.text()))
    }

    /// Returns a pull request's title: the issue's title without mentions and references.
    pub fn pull_title(&self, view: &PullView) -> Outbound<TitleText> {
        let title = outbound::title(&self.outbound.masked(&view.title));
        self.outbound.title(&if title.is_empty() { format!("Work on issue {}", view.closes) } else { title })
    }

    /// Returns an escalation issue's title: the required action, the loop's issue, and the cause.
    pub fn escalation_title(&self, view: &EscalationView) -> Outbound<TitleText> {
        let action = match view.severity {
            EscalationSeverity::Critical => "ralph needs a decision on",
            EscalationSeverity::Emergency => "ralph stopped work on",
        };
        let issue: String = view.issue.text.chars().filter(char::is_ascii_digit).collect();
        let headline = outbound::title(&self.outbound.masked(&view.headline));
        self.outbound.title(&format!("{action} #{issue}: {headline}"))
    }

    /// Renders the prompt of an iteration or a planning run. Removes invisible characters and the prompt's tags from every
    /// value.
    ///
    /// # Errors
    /// Neither the operator's template nor the built-in one can render the view.
    pub fn prompt(&self, view: &PromptView) -> Result<String, RenderError> {
        let name = if view.planning { PLAN_PROMPT } else { PROMPT };
        let failed = |error: serde_json::Error| RenderError::Failed { name: name.into(), source: error.into() };
        self.fill(name, &serde_json::to_value(view).map_err(failed)?)
    }

    fn fill(&self, name: &str, context: &serde_json::Value) -> Result<String, RenderError> {
        let context = value(context);
        let filled = |environment: &Environment<'_>| environment.get_template(name)?.render(&context);
        filled(&self.chosen)
            .or_else(|error| {
                tracing::warn!(
                    name,
                    error = format!("{error:#}"),
                    "could not render the operator's template; using the built-in one"
                );
                filled(&self.built_in)
            })
            .map(|text| tidy(&text))
            .map_err(|error| RenderError::Failed { name: name.to_owned(), source: error.into() })
    }
}

/// Converts JSON to a value for templates.
pub fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(*flag),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Value::from(whole),
            (None, float) => Value::from(float.unwrap_or_default()),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => items.iter().map(value).collect(),
        serde_json::Value::Object(map) => Value::from_pairs(map.iter().map(|(name, item)| (name.clone(), value(item)))),
    }
}

/// Returns a replacement text for a view that cannot be rendered. Tests render every built-in template.
fn unrenderable(view: &View) -> String {
    format!("The service could not render the text `{}`. Its log has the reason.", view.kind())
}

/// Collapses empty lines outside code fences and removes trailing whitespace.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fence: Option<usize> = None;
    for line in text.trim().lines() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        match fence {
            Some(length) if ticks >= length && line.len() == ticks => fence = None,
            None if ticks >= 3 => fence = Some(ticks),
            _ => {}
        }
        let line = if fence.is_some() { line } else { line.trim_end() };
        if fence.is_none() && line.is_empty() && (out.is_empty() || out.ends_with("\n\n")) {
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out.trim_end().to_owned()
}

/// Returns an environment with all settings and filters but no templates.
fn configured() -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) =
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()
    {
        environment.set_syntax(syntax);
    }
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|name| {
        if name.starts_with("prompt/") {
            AutoEscape::Custom("prompt".into())
        } else {
            AutoEscape::Custom("people".into())
        }
    });
    environment.set_formatter(|out, state, value| {
        let text = match (value.as_str(), value.is_safe()) {
            (Some(text), true) => text.to_owned(),
            (Some(text), false) if matches!(state.auto_escape(), AutoEscape::Custom(sort) if sort == "prompt") => {
                filters::frame(text)
            }
            (Some(text), false) => outbound::inline(text),
            (None, _) if value.is_undefined() => {
                return Err(Error::new(ErrorKind::UndefinedError, "a name of the template has no value"));
            }
            (None, _) if value.is_none() => String::new(),
            (None, _) => value.to_string(),
        };
        out.write_str(&text).map_err(|_| Error::new(ErrorKind::WriteFailure, "no room"))
    });
    filters::register(&mut environment);
    environment
}
