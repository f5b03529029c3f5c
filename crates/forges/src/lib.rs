//! GitHub, Gitea and Forgejo, and the forge of `ralph-bot local`.

pub mod forge;

use ralph_core::domain;
#[cfg(test)]
use ralph_core::property_cases;
use ralph_host::net;
use ralph_host::process;
use ralph_types::clock;
