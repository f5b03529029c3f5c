//! Tokens of a language that are compared with changed lines.

/// Tokens of a language as patterns. An empty pattern matches nothing.
pub(super) struct Tokens {
    /// Extensions of file names.
    pub extensions: &'static [&'static str],
    /// Prefixes of lines that are only a comment.
    pub comments: &'static [&'static str],
    /// Start of a function or class. Its name is the first capture group that matches.
    pub function: &'static str,
    /// Ends the process with success.
    pub exit: &'static str,
    /// Program code that checks whether it runs in a test.
    pub asks_for_tests: &'static str,
    /// Introduces a value that equals every other value, or a library of test doubles, into program code.
    pub any_value: &'static str,
    /// Program code that changes the meaning of an assertion, a runner or an exit.
    pub assertion_api: &'static str,
    /// Ends the process immediately, so that the runner executes no handler and prints no report.
    pub hard_exit: &'static str,
    /// Start of code that runs automatically, at the end of the process or before a test.
    pub exit_hook: &'static str,
    /// Names of files in which runners look for tests. Compared in lower case, except for the JVM and PHP.
    pub collected: &'static str,
}
