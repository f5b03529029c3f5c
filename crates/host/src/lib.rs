//! Access to the machine: processes, sandbox, egress proxy, HTTP clients and servers.

pub mod net;
pub mod process;

use ralph_core::domain;
use ralph_types::clock;
