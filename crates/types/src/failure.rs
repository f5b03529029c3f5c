//! Error for people: failed action, values, remedy and cause.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Error for a person, in the manner of PostgreSQL's messages. Code that must react to a failure uses a separate type.
///
/// `{}` prints the primary message, the detail and the hint; `{:#}` also prints the causes:
/// `cannot read /etc/ralph.yml: Permission denied; run as the service's user`.
#[derive(Debug, Clone)]
pub struct Failure {
    primary: String,
    detail: Option<String>,
    hint: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failure {
    /// Creates a failure with a primary message: the failed action, in lower case, without a period. The past tense means that a
    /// retry may succeed ("could not reach the forge"), the present tense that it cannot ("the token lacks the scope").
    pub fn new(primary: impl Into<String>) -> Self {
        Self { primary: primary.into(), detail: None, hint: None, source: None }
    }

    /// Adds the values that explain the primary message.
    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// Adds what to do, as an instruction.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Removes the hint, for a caller with another remedy.
    #[must_use]
    pub fn without_hint(self) -> Self {
        Self { hint: None, ..self }
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.primary)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        let mut cause = self.source().filter(|_| f.alternate());
        while let Some(error) = cause {
            // A failure prints its own causes before its hint.
            if let Some(failure) = error.downcast_ref::<Self>() {
                write!(f, ": {failure:#}")?;
                break;
            }
            write!(f, ": {error}")?;
            cause = error.source();
        }
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
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
}
