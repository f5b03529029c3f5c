//! Error for people: failed action, values, remedy and cause.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Error for a person, in the manner of PostgreSQL's messages. Code that must react to a failure uses a separate type.
///
/// `{}` prints the primary message, the detail and the hint; `{:#}` also prints the causes:
/// `cannot read /etc/ralph.yml: Permission denied; run as the service's user`. It skips a cause whose text is already
/// printed, because many errors of libraries repeat their cause.
#[derive(Debug, Clone)]
pub struct Failure(Box<FailureParts>);

#[derive(Debug, Clone)]
struct FailureParts {
    primary: String,
    detail: Option<String>,
    hint: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Creates a failure with a primary message: the failed action, in lower case, without a period. The past tense means that a
    /// retry may succeed ("could not reach the forge"), the present tense that it cannot ("the token lacks the scope").
    pub fn new(primary: impl Into<String>) -> Self {
        Self(Box::new(FailureParts { primary: primary.into(), detail: None, hint: None, source: None }))
    }

    /// Creates a failure with an error's text as the primary message, and the error as the cause. Returns a failure as it is.
    pub fn of(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        match error.into().downcast::<Self>() {
            Ok(failure) => *failure,
            Err(error) => Self::new(error.to_string()).caused_by(error),
        }
    }

    /// Adds the values that explain the primary message.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }

    /// Adds a remedy, as an instruction.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Removes the hint, for a caller with another remedy.
    #[must_use]
    pub fn without_hint(mut self) -> Self {
        self.0.hint = None;
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.primary.clone();
        if let Some(detail) = &self.0.detail {
            text = format!("{text}: {detail}");
        }
        let mut cause = self.source().filter(|_| f.alternate());
        while let Some(error) = cause {
            let failure = error.downcast_ref::<Self>();
            let message = failure.map_or_else(|| error.to_string(), |failure| format!("{failure:#}"));
            if !text.contains(&message) {
                text = format!("{text}: {message}");
            }
            // A failure prints its own causes before its hint.
            cause = error.source().filter(|_| failure.is_none());
        }
        f.write_str(&text)?;
        match &self.0.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

impl From<String> for Failure {
    fn from(primary: String) -> Self {
        Self::new(primary)
    }
}

impl From<&str> for Failure {
    fn from(primary: &str) -> Self {
        Self::new(primary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternate_form_adds_causes_before_the_hint() {
        let inner = Failure::new("the disk is full").with_detail("/data").caused_by(fmt::Error);
        let cause = Failure::new("could not write the draft").caused_by(inner);
        let problem = Failure::new("could not store the secret").with_hint("free some space").caused_by(cause);
        assert_eq!(problem.to_string(), "could not store the secret; free some space");
        assert_eq!(
            format!("{problem:#}"),
            "could not store the secret: could not write the draft: the disk is full: /data: \
             an error occurred when formatting an argument; free some space"
        );
        assert_eq!(problem.source().map(ToString::to_string).as_deref(), Some("could not write the draft"));
    }

    #[test]
    fn printed_causes_are_not_repeated() {
        let cause = std::io::Error::other("the disk is full");
        let problem = Failure::new("could not store the secret").caused_by(Failure::of(cause));
        assert_eq!(format!("{problem:#}"), "could not store the secret: the disk is full");
        let deepest = problem.source().and_then(Error::source);
        assert!(deepest.is_some_and(|cause| cause.is::<std::io::Error>()), "{deepest:?}");
    }
}
