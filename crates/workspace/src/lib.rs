//! Mirrors, work trees and checks of repositories.

pub mod checks;
pub mod workspace;

use ralph_core::domain;
use ralph_host::process;
use ralph_types::clock;
