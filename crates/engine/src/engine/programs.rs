//! Programs that the service starts: their sandbox, network, scratch folder and the cookie that marks their processes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::domain::loops::Loop;
use crate::domain::model::ids::LoopId;
use crate::domain::trust::egress::Egress;
use crate::engine::settings::ProgramSettings;
use crate::process::sandbox::Network;
use crate::process::{self, EgressSettings, RefusedHosts};

/// Grace period of processes that outlive their run.
const SURVIVOR_GRACE: Duration = Duration::from_secs(1);

/// Settings of agents, checks and hooks as processes.
pub struct Programs {
    /// Random name of this installation. It is set in the environment of every process that the installation starts.
    pub instance: String,
    /// Sandbox, network and folders.
    pub settings: ProgramSettings,
}

impl Programs {
    /// Returns the path of a temporary folder of a loop.
    pub(super) fn scratch_of(&self, id: &LoopId, name: impl AsRef<Path>) -> PathBuf {
        self.settings.scratch.join(id.as_str()).join(name)
    }

    /// Returns the network access of agents; no access if single hosts are allowed but the helper program is unknown.
    pub(super) fn network(&self, refused: &RefusedHosts) -> Network {
        match (&self.settings.agent_egress, &self.settings.program) {
            (Egress::Everything, _) => Network::Host,
            (Egress::Only(hosts), Some(program)) => Network::Only(EgressSettings {
                hosts: hosts.clone(),
                helper: program.clone(),
                refused: refused.clone(),
            }),
            (Egress::Only(_), None) | (Egress::Nothing, _) => Network::None,
        }
    }

    /// Returns the common prefix of the cookies that identify the processes of a loop.
    pub(super) fn cookie_of(&self, id: &LoopId) -> String {
        format!("{}-{id}", self.instance)
    }

    /// Ends processes left by earlier runs of the loop.
    pub(in crate::engine) async fn end_processes(&self, current: &Loop) {
        let left = process::end_survivors(&self.cookie_of(&current.id), SURVIVOR_GRACE).await;
        if left > 0 {
            tracing::error!(loop_id = %current.id, left, "could not end the loop's processes");
        }
    }
}
