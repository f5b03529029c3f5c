//! Operator file and repository file: the only reader of files and environment.
