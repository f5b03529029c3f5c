//! /ralph commands: extraction from Markdown, grammar, one table of usage and permission.
