//! The service with third-party parts: a GitHub server, a Gitea server, coding agents, a browser.

mod agents;
mod assistants;
mod claude;
mod emulate;
mod front;
mod gitea;
mod mirror;
mod pages;
mod place;
mod provider;
mod resumed;
mod second_opinion;
mod service;
