//! Built-in templates, by the names for an operator's overrides.

use minijinja::Environment;

use super::{RenderError, configured};
use crate::domain::report::view::View;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../templates/", $name)))),*]
    };
}

/// Name and text of every template.
pub(super) const ALL: &[(&str, &str)] = embedded![
    "parts.md",
    "comment/status.md",
    "comment/iteration.md",
    "comment/needs_criteria.md",
    "comment/needs_confirm.md",
    "comment/plan.md",
    "comment/who_may.md",
    "comment/reply.md",
    "comment/waiting.md",
    "comment/help.md",
    "comment/completion.md",
    "comment/repository_file_error.md",
    "issue/escalation.md",
    "pull/body.md",
    "prompt/images.md",
    "prompt/iteration.md",
    "prompt/plan.md",
];

/// Returns the name of a view's template.
pub(super) fn of(view: &View) -> &'static str {
    match view {
        View::Status(_) => "comment/status.md",
        View::Iteration(_) => "comment/iteration.md",
        View::NeedsCriteria(_) => "comment/needs_criteria.md",
        View::NeedsConfirm(_) => "comment/needs_confirm.md",
        View::Plan(_) => "comment/plan.md",
        View::WhoMay(_) => "comment/who_may.md",
        View::Reply(_) => "comment/reply.md",
        View::Waiting(_) => "comment/waiting.md",
        View::Help(_) => "comment/help.md",
        View::Completion(_) => "comment/completion.md",
        View::RepositoryFileError(_) => "comment/repository_file_error.md",
        View::Escalation(_) => "issue/escalation.md",
        View::Pull(_) => "pull/body.md",
    }
}

/// Returns an environment with all built-in templates.
pub(super) fn environment() -> Result<Environment<'static>, RenderError> {
    let mut environment = configured();
    for (name, text) in ALL {
        environment
            .add_template(name, text)
            .map_err(|source| RenderError::Invalid { name: (*name).to_owned(), source })?;
    }
    Ok(environment)
}
