//! `ralph-bot memory proposals`: lists and answers proposals of conventions.

use clap::{Args, Subcommand};

use super::reflections::BY;
use super::{MemoryShell, failed};
use crate::cli::{CliError, CliResult, one_line, print};
use crate::domain::knowledge::memory::{Proposal, ProposalState};
use crate::process::Masker;
use crate::store::memory::{StepMemory, proposals};

/// Arguments of `memory proposals`; the default is a list.
#[derive(Debug, Clone, Args)]
pub struct ProposalsArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Option<ProposalsCommand>,
    /// List answered proposals too
    #[arg(long)]
    pub all: bool,
}

/// Subcommands of `memory proposals`.
#[derive(Debug, Clone, Subcommand)]
pub enum ProposalsCommand {
    /// Make a proposal a convention of its repository
    Accept(AcceptProposalArgs),
    /// Never propose this remark again
    Reject(RejectProposalArgs),
}

/// Arguments of `memory proposals accept`.
#[derive(Debug, Clone, Args)]
pub struct AcceptProposalArgs {
    /// Number of the proposal
    pub number: u64,
    /// Text of the convention [default: the remark]
    #[arg(long)]
    pub text: Option<String>,
}

/// Arguments of `memory proposals reject`.
#[derive(Debug, Clone, Args)]
pub struct RejectProposalArgs {
    /// Number of the proposal
    pub number: u64,
}

impl MemoryShell<'_> {
    pub(super) async fn proposals(&self, args: &ProposalsArgs) -> CliResult {
        match &args.command {
            None => self.list_proposals(args.all).await,
            Some(ProposalsCommand::Accept(args)) => self.accept_proposal(args).await,
            Some(ProposalsCommand::Reject(args)) => self.reject_proposal(args.number).await,
        }
    }

    async fn list_proposals(&self, all: bool) -> CliResult {
        let found = self.read(move |c| proposals::proposals(c, all)).await?;
        if self.json {
            return print(&format!("{}\n", serde_json::to_value(&found).map_err(failed)?));
        }
        if found.is_empty() {
            return print("no proposals; a review remark that recurs becomes one\n");
        }
        print(&found.iter().map(line).collect::<String>())
    }

    pub(super) async fn accept_proposal(&self, args: &AcceptProposalArgs) -> CliResult {
        let (number, settings, now) = (args.number, self.settings.clone(), self.now);
        let text = args.text.as_deref().map(one_line).filter(|text| !text.trim().is_empty());
        // Only text that looks like a secret is masked; this process knows no tokens.
        let memory = StepMemory { settings, masker: Masker::default() };
        let accepted = self.write(move |c| {
            let Some(proposal) = proposals::proposal(c, number)? else { return Ok(None) };
            let text = text.unwrap_or_else(|| proposal.text.clone());
            memory.keep_rule(c, &proposal.repository, &text, &proposal.loop_id, now)?;
            proposals::answer(c, number, ProposalState::Accepted, BY, now)?;
            Ok(Some((text, proposal.repository)))
        });
        let (text, repository) = accepted.await?.ok_or_else(|| unknown(number))?;
        if self.json {
            return print(&format!("{}\n", serde_json::json!({ "accepted": number, "rule": text })));
        }
        print(&format!("later loops of {} get the rule: {}\n", one_line(&repository.to_string()), one_line(&text)))
    }

    async fn reject_proposal(&self, number: u64) -> CliResult {
        let now = self.now;
        if !self.write(move |c| proposals::answer(c, number, ProposalState::Rejected, BY, now)).await? {
            return Err(unknown(number));
        }
        if self.json {
            return print(&format!("{}\n", serde_json::json!({ "rejected": number })));
        }
        print(&format!("{number} is not proposed again; `ralph-bot memory forget p-{number}` lets it recur\n"))
    }
}

/// Formats a proposal as a line.
fn line(proposal: &Proposal) -> String {
    let by = proposal.decided_by.as_deref().map_or(String::new(), |by| format!(" by {}", one_line(by)));
    format!(
        "{}  {}{by}  {}  in {} loops  {}\n",
        proposal.number,
        proposal.state.as_str(),
        one_line(&proposal.repository.to_string()),
        proposal.loops,
        one_line(&proposal.text),
    )
}

fn unknown(number: u64) -> CliError {
    CliError::failed(format!("there is no proposal {number}; `ralph-bot memory proposals --all` lists them"))
}
