//! `ralph-bot loops`: the same as the comments, from the shell.

use clap::{Args, Subcommand};

use crate::config::quantity::Duration;

/// Arguments of `loops`; lists where no subcommand is given.
#[derive(Debug, Clone, Args)]
pub struct LoopsArgs {
    /// What to do with loops.
    #[command(subcommand)]
    pub command: Option<LoopsCommand>,
}

/// What can be done with loops.
#[derive(Debug, Clone, Subcommand)]
pub enum LoopsCommand {
    /// List the open loops
    List(ListArgs),
    /// Show one loop
    Show(ShowArgs),
    /// Pause a loop after its running iteration
    Pause(PauseArgs),
    /// Let a loop go on
    Resume(ResumeArgs),
    /// End a loop
    Abort(AbortArgs),
}

/// Arguments of `loops list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Also loops that ended
    #[arg(long)]
    pub all: bool,
}

/// Arguments of `loops show`.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// The loop's id
    pub id: String,
    /// Every event with its reason
    #[arg(long)]
    pub audit: bool,
}

/// Arguments of `loops pause`.
#[derive(Debug, Clone, Args)]
pub struct PauseArgs {
    /// The loop's id
    pub id: String,
    /// Stop the agent instead of waiting for it
    #[arg(long)]
    pub now: bool,
    /// Why
    pub reason: Vec<String>,
}

/// Arguments of `loops resume`.
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// The loop's id
    pub id: String,
    /// Most iterations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: Option<u32>,
    /// Running time, such as 90m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Money, in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub budget: Option<f64>,
    /// What the next prompt should say
    pub guidance: Vec<String>,
}

/// Arguments of `loops abort`.
#[derive(Debug, Clone, Args)]
pub struct AbortArgs {
    /// The loop's id
    pub id: String,
    /// Why
    pub reason: Vec<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    Duration::parse(text).ok_or_else(|| "expected a duration such as 90s, 30m or 2h".to_owned())
}

fn dollars(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|usd: &f64| usd.is_finite() && *usd > 0.0);
    amount.ok_or_else(|| "expected an amount in US dollars such as 5 or 2.50".to_owned())
}
