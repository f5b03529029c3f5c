//! Tables of what is a command and what is none.
