//! Runs hooks: programs of the operator that receive the loop as JSON and print a verdict.

use std::path::Path;
use std::time::Duration;

use failpoint::kill_point;
use schemars::JsonSchema;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::remove_folder;
use crate::config::HookProgram;
use crate::domain::loops::{Loop, WorkOutcome};
use crate::domain::model::hook::{HookEvent, HookObjection, read_verdict};
use crate::domain::model::ids::RepoRef;
use crate::engine::receipt::{EffectError, Receipt};
use crate::engine::work::Verification;
use crate::process::sandbox::{Network, SandboxView, ScratchHome};
use crate::process::{self, Cookie, ProcessEnd, ProcessLimits, ProcessSpec, Sandbox, Stdin, private};

/// Maximum number of output bytes that are read.
const OUTPUT_BYTES: usize = 64 * 1024;
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// Input of a hook, as JSON on standard input. Later versions may add fields.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HookRequest<'a> {
    /// Version of this format.
    pub version: u32,
    /// Id of this run of the hook. A run whose outcome was lost is repeated with the same id.
    pub run: String,
    /// Event for which the service calls the hook.
    pub event: HookEvent,
    /// Name of the hook.
    pub hook: &'a str,
    /// Name of the forge.
    pub forge: &'a str,
    /// Repository, `owner/name`.
    pub repository: String,
    /// Number of the issue.
    pub issue: u64,
    /// Address of the issue's page.
    pub issue_url: &'a str,
    /// Title of the task.
    pub title: &'a str,
    /// Id of the loop.
    #[serde(rename = "loop")]
    pub loop_id: &'a str,
    /// State of the loop.
    pub state: &'a str,
    /// Reason of the state.
    pub why: &'a str,
    /// Branch of the loop.
    pub branch: &'a str,
    /// Branch that the loop started from.
    pub base_branch: &'a str,
    /// Commit that the loop started from.
    pub base: Option<&'a str>,
    /// Newest commit of the loop.
    pub head: Option<&'a str>,
    /// Number of the current or last iteration; 0 before the first.
    pub iteration: u32,
    /// Maximum number of iterations; null if unlimited.
    pub max_iterations: Option<u32>,
    /// Cost of the loop so far, in US dollars.
    pub cost_usd: f64,
    /// Completion of the task, in percent.
    #[schemars(range(max = 100))]
    pub completion_percent: u8,
    /// Summary of the agent's last report.
    pub summary: &'a str,
    /// Files that the branch changes.
    pub files: Vec<&'a str>,
    /// Results of the newest checks.
    pub checks: Vec<HookCheck<'a>>,
}

/// Result of a check.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HookCheck<'a> {
    /// Name of the hook.
    pub name: &'a str,
    /// Command of the hook.
    pub command: &'a str,
    /// Whether it passed.
    pub passed: bool,
    /// Reason of a failure.
    pub why: &'a str,
}

impl<'a> HookRequest<'a> {
    /// Describes a loop to a hook.
    /// `occasion` distinguishes the runs of a hook: the ticket of the work or, after the loop's end, the loop's
    /// version.
    pub fn of(current: &'a Loop, event: HookEvent, hook: &'a str, occasion: u64) -> Self {
        let last = current.current();
        let checks = current.latest_checks().map(|report| report.outcomes.as_slice()).unwrap_or_default();
        let files = current.branch_stat().map(|stat| stat.files.as_slice()).unwrap_or_default();
        Self {
            version: 1,
            run: format!("{}/{}/{occasion}/{hook}", current.id.as_str(), event.as_str()),
            event,
            hook,
            forge: current.issue.repo.forge.as_str(),
            repository: current.issue.repo.full_name(),
            issue: current.issue.issue.0,
            issue_url: &current.task.url,
            title: current.task.text.title(),
            loop_id: current.id.as_str(),
            state: current.state.as_str(),
            why: &current.why,
            branch: &current.branch.name,
            base_branch: &current.branch.base_branch,
            base: current.branch.base.as_ref().map(|sha| sha.as_str()),
            head: current.branch.head.as_ref().map(|sha| sha.as_str()),
            iteration: last.map_or(0, |last| last.number),
            max_iterations: current.limits.iterations.count(),
            cost_usd: current.spent.cost.usd(),
            completion_percent: current.completion().whole_percent(),
            summary: last.map_or("", |last| last.report.summary.as_str()),
            files: files.iter().map(|file| file.path.as_str()).collect(),
            checks: checks
                .iter()
                .map(|o| HookCheck { name: &o.name, command: &o.command, passed: o.holds, why: &o.why })
                .collect(),
        }
    }
}

impl Verification {
    /// Runs the hooks of an event in order until one of them objects. After an interruption, all hooks run again with
    /// the same ids.
    pub(super) async fn hooks(
        &self,
        repo: &RepoRef,
        current: &Loop,
        (ticket, event): (u64, HookEvent),
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        let mut objection = None;
        for name in current.settings.policy.hook_names(event) {
            objection = self.hook(repo, current, (event, name, ticket), cancel).await?;
            if objection.is_some() {
                break;
            }
        }
        let text = objection.as_ref().map_or_else(|| "no objection".to_owned(), |one| format!("{one:?}"));
        Ok(Receipt::outcome(text, ticket, WorkOutcome::HooksAnswered { event, objection }))
    }

    /// Runs the hooks after a loop stopped working; their verdicts are ignored.
    pub(super) async fn hooks_after_end(
        &self,
        repo: &RepoRef,
        current: &Loop,
        version: u64,
        cancel: &CancellationToken,
    ) -> Result<Receipt, EffectError> {
        let event = HookEvent::AfterEnd;
        let mut said = Vec::new();
        for name in current.settings.policy.hook_names(event) {
            let objection = self.hook(repo, current, (event, name, version), cancel).await?;
            if let Some(HookObjection::Broken { problem, .. }) = objection {
                tracing::warn!(loop_id = %current.id, hook = name, problem, "a hook after the end of a loop failed");
                said.push(format!("{name}: {problem}"));
            }
        }
        Ok(Receipt::text(if said.is_empty() { "hooks ran".to_owned() } else { said.join("; ") }))
    }

    async fn hook(
        &self,
        repo: &RepoRef,
        current: &Loop,
        (event, name, occasion): (HookEvent, &str, u64),
        cancel: &CancellationToken,
    ) -> Result<Option<HookObjection>, EffectError> {
        let broken = |problem: String| Ok(Some(HookObjection::Broken { hook: name.to_owned(), problem }));
        let Some(hook) = self.hooks.iter().find(|hook| hook.event == event && hook.name == name) else {
            return broken("the operator's file no longer contains it".to_owned());
        };
        let scratch = self.programs.scratch_of(&current.id, "hook");
        remove_folder(&scratch);
        if let Err(error) = private::create_folder(&scratch.join("tmp")) {
            return broken(format!("could not create its folder {}: {error}", scratch.display()));
        }
        let view = self.workspaces.agent_view(&current.id, repo);
        let tree = if view.tree.is_dir() { view.tree } else { scratch.clone() };
        let input = serde_json::to_vec(&HookRequest::of(current, event, name, occasion)).unwrap_or_default();
        kill_point("K40");
        let finished = process::run(self.hook_spec(current, hook, (&tree, &scratch), input), cancel, None).await;
        kill_point("K41");
        remove_folder(&scratch);
        let finished = match finished {
            Ok(finished) => finished,
            Err(error) => return broken(format!("could not start it: {error}")),
        };
        let last = finished.stderr.text().lines().last().map(|line| format!(": {line}")).unwrap_or_default();
        match finished.ended {
            ProcessEnd::Exited(0) => {}
            ProcessEnd::Cancelled => return Err(EffectError::Stopped { why: "the hook was stopped".into() }),
            ProcessEnd::Exited(code) => return broken(format!("exit code {code}{last}")),
            ProcessEnd::ResourceLimit(reason) => return broken(reason),
            ProcessEnd::Signalled(signal) => return broken(format!("signal {signal}{last}")),
            _ => return broken(format!("it ran for longer than {} s", hook.timeout.as_secs())),
        }
        let output = finished.stdout.text();
        // No step needs a verdict after the end.
        Ok(if event == HookEvent::AfterEnd { None } else { read_verdict(name, &output) })
    }

    fn hook_spec(
        &self,
        current: &Loop,
        hook: &HookProgram,
        (tree, scratch): (&Path, &Path),
        input: Vec<u8>,
    ) -> ProcessSpec {
        let (program, args) = hook.command.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
        let mut spec = ProcessSpec::new(program, tree).args(args.iter().cloned());
        spec.env = self.checks.env.clone();
        spec = spec.env("HOME", scratch).env("TMPDIR", scratch.join("tmp"));
        spec.stdin = Stdin::Bytes(input);
        spec.limits = ProcessLimits { wall: hook.timeout, idle: None, grace: GRACE, keep_bytes: OUTPUT_BYTES };
        if hook.sandbox && self.programs.settings.sandbox.on {
            let mut read_only = self.checks.read_only.clone();
            read_only.push(tree.to_owned());
            read_only.push(program.into());
            spec.sandbox = Sandbox::of(SandboxView {
                writable: Vec::new(),
                read_only,
                home: ScratchHome::Folder(scratch.to_owned()),
                network: Network::None,
                settings: self.programs.settings.sandbox.settings.clone(),
            });
        }
        spec.cookie = Some(Cookie::new(&self.programs.instance, current.id.as_str(), 0));
        spec.secrets = self.checks.masker.clone();
        spec
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Env;
    use crate::domain::lifecycle::samples;
    use crate::domain::model::hook::HookVerdict;

    #[test]
    fn requests_match_their_schema() {
        let schema = schemars::schema_for!(HookRequest<'static>).to_value();
        let current = samples::fresh();
        for event in HookEvent::ALL {
            let request = serde_json::to_value(HookRequest::of(&current, event, "gate", 7)).expect("JSON");
            jsonschema::validate(&schema, &request).expect("valid");
            assert_eq!(request["event"], event.as_str());
            assert_eq!(request["run"], format!("r-42-k7m2qa/{}/7/gate", event.as_str()));
            assert_eq!((&request["loop"], &request["version"]), (&"r-42-k7m2qa".into(), &1.into()));
        }
    }

    #[test]
    fn page_has_the_schemas() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("docs/reference/hooks.md");
        let mut page = std::fs::read_to_string(&path).expect("a page");
        let schemas = [
            ("input", schemars::schema_for!(HookRequest<'static>).to_value()),
            ("verdict", schemars::schema_for!(HookVerdict).to_value()),
        ];
        for (name, schema) in schemas {
            let schema = serde_json::to_string_pretty(&schema).expect("JSON");
            let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
            let (before, rest) = page.split_once(&begin).expect("the first marker");
            let (_, after) = rest.split_once(&end).expect("the second marker");
            page = format!("{before}{begin}```json\n{schema}\n```\n{end}{after}");
        }
        if Env::of_process().get("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).expect("written");
        }
        let written = std::fs::read_to_string(&path).expect("a page");
        assert!(written == page, "docs/reference/hooks.md is out of date; run the tests with UPDATE_DOCS=1");
    }
}
