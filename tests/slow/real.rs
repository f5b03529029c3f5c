//! The program against parts that somebody else wrote: a GitHub, a Gitea, a coding agent, a browser.

mod agents;
mod claude;
mod emulate;
mod front;
mod gitea;
mod mirror;
mod pages;
mod place;
mod provider;
mod service;
