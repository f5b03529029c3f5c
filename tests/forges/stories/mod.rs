//! The stories, by subject.

mod commands;
mod events;
mod existing_pulls;
mod labels;
mod network;
mod people;
mod pulls;
mod repositories;
mod seen;
