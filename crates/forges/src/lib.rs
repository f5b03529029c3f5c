//! GitHub, Gitea and Forgejo, and the forge of `ralph-bot local`.

pub mod forge;

use ralph_core::domain;
use ralph_host::net;
use ralph_host::process;
use ralph_types::clock;
