//! `ralph-bot channels`: lists the channels for notices, and sends a test notice to them.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use ralph_types::failure::Failure;
use serde_json::json;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{block_on, load, one_line, print, table};
use crate::app;
use crate::channels::{Channel, NoticeDelivery, SendOutcome};
use crate::clock::Clock;
use crate::config::{ChannelConfig, Config, ConfigScope, Env};
use crate::domain::model::settings::did_you_mean;
use crate::domain::report::notice::{Notice, Occasion, level_name};
use crate::domain::trust::outbound::OutboundFilter;

/// Time limit of one notice.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `channels`; the default is `list`.
#[derive(Debug, Clone, Args)]
pub struct ChannelsArgs {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Option<ChannelsCommand>,
}

/// Subcommands of `channels`.
#[derive(Debug, Clone, Subcommand)]
pub enum ChannelsCommand {
    /// Show the configured channels
    List,
    /// Send a test notice; incidents and messages that can be changed are then shown as resolved
    Test(TestArgs),
}

/// Arguments of `channels test`.
#[derive(Debug, Clone, Args)]
pub struct TestArgs {
    /// Names of channels [default: all]
    pub names: Vec<String>,
}

/// Lists channels, or sends a test notice to them.
///
/// # Errors
/// Fails on an invalid configuration, or a channel that is not configured.
pub fn run(args: &ChannelsArgs, global: &Global, env: &Env) -> CliResult {
    match &args.command {
        None | Some(ChannelsCommand::List) => list(&load(ConfigScope::Service, global, env)?, global.json),
        Some(ChannelsCommand::Test(args)) => {
            let config = load(ConfigScope::Service, global, env)?;
            block_on(test(&config, &args.names, global.json))
        }
    }
}

fn levels(channel: &ChannelConfig) -> Vec<&'static str> {
    channel.levels.iter().map(|level| level_name(*level)).collect()
}

fn list(config: &Config, as_json: bool) -> CliResult {
    if as_json {
        let line = |channel: &ChannelConfig| {
            let line = json!({ "channel": channel.name, "kind": channel.kind.as_str(), "levels": levels(channel) });
            format!("{line}\n")
        };
        return print(&config.channels.iter().map(line).collect::<String>());
    }
    let header = ["CHANNEL", "KIND", "LEVELS"].map(str::to_owned);
    let row =
        |channel: &ChannelConfig| [channel.name.clone(), channel.kind.as_str().to_owned(), levels(channel).join(", ")];
    print(&table(&std::iter::once(header).chain(config.channels.iter().map(row)).collect::<Vec<_>>()))
}

async fn test(config: &Config, names: &[String], as_json: bool) -> CliResult {
    for name in names {
        if !config.channels.iter().any(|channel| channel.name == *name) {
            let near = did_you_mean(name, config.channels.iter().map(|channel| channel.name.as_str()));
            return Err(CliError::usage(format!("no channel {} is configured{near}", one_line(name))));
        }
    }
    let mut all_arrived = true;
    for channel in config.channels.iter().filter(|one| names.is_empty() || names.contains(&one.name)) {
        let result = match app::channel(channel, &OutboundFilter::default()) {
            Ok(sender) => test_one(&sender).await,
            Err(problem) => Err(problem),
        };
        let arrived = result.is_ok();
        all_arrived &= arrived;
        let detail = &result.unwrap_or_else(|problem| format!("{problem:#}"));
        print(&if as_json {
            format!("{}\n", json!({ "channel": channel.name, "delivered": arrived, "detail": detail }))
        } else {
            format!("{} {}: {}\n", if arrived { "ok  " } else { "FAIL" }, channel.name, one_line(detail))
        })?;
    }
    Ok(if all_arrived { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Sends a test notice, and then its resolution if the channel shows resolutions.
async fn test_one(channel: &Channel) -> Result<String, Failure> {
    let now = Clock::System.now();
    let delivery = uuid::Uuid::now_v7().simple().to_string();
    let mut posted = None;
    let mut done = Vec::new();
    for occasion in [Occasion::Raised, Occasion::Resolved] {
        if occasion == Occasion::Resolved && !channel.audience().kind.shows_resolution() {
            break;
        }
        let notice = Notice::test(occasion, now);
        let sending = NoticeDelivery {
            notice: &notice,
            delivery: &delivery,
            answer: None,
            posted: posted.as_ref(),
            again: false,
        };
        match channel.send(sending, PATIENCE, now).await {
            SendOutcome::Delivered { status, posted: message, how } => {
                posted = message.or(posted);
                done.push(if how.is_empty() { format!("status {status}") } else { format!("status {status}, {how}") });
            }
            SendOutcome::Nothing { why } => done.push(why.to_owned()),
            SendOutcome::Retry { why, .. } | SendOutcome::Rejected { why } => return Err(why.into()),
        }
    }
    Ok(format!("delivered to {} ({})", channel.host(), done.join("; ")))
}
