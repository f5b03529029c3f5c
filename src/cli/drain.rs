//! `ralph-bot drain`: lets a host finish its work and accept no more.

use std::time::Duration;

use clap::Args;
use ralph_types::failure::Failure;

use crate::app;
use crate::cli::{CliError, CliResult, Global, attach, block_on, load, print};
use crate::clock::Clock;
use crate::config::{ConfigScope, Env};
use crate::domain::model::host::ListedHost;
use crate::store::{StoreError, hosts};

/// Time between two looks at the work that is left.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// Name of another host; this host by default
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Take work again; a restart of the service does that as well
    #[arg(long)]
    pub end: bool,
}

/// Marks a host as draining and waits until it has no work, or ends draining.
///
/// # Errors
/// Fails on an invalid configuration, and if the host is unknown or two hosts have its name.
pub fn run(args: &DrainArgs, global: &Global, env: &Env) -> CliResult {
    let config = load(ConfigScope::Store, global, env)?;
    block_on(async {
        let store = attach(&config).await?;
        let failed = |error: StoreError| CliError::failed(Failure::of(error));
        let listed = store.read(|c| hosts::all(c, Clock::System.now())).await.map_err(failed)?;
        let own = app::host::id(&config).map_err(CliError::failed)?;
        let is_meant = |one: &&ListedHost| match &args.host {
            Some(name) => one.host.name == *name,
            None => own.as_ref() == Some(&one.host.id),
        };
        let meant: Vec<_> = listed.iter().filter(is_meant).map(|one| one.host.clone()).collect();
        let [host] = &meant[..] else {
            let which = args.host.as_deref().map_or("this host".to_owned(), |name| format!("the host `{name}`"));
            let why = match meant.len() {
                0 => format!("{which} executes no work; `ralph-bot serve` adds it to the list of hosts"),
                _ => format!("several hosts have this name; run the command on {which} without `--host`"),
            };
            return Err(CliError::failed(why));
        };
        let id = host.id.clone();
        let draining = !args.end;
        store.write(move |c| hosts::set_draining(c, &id, draining)).await.map_err(failed)?;
        if args.end {
            return print(&format!("{} accepts work again\n", host.name));
        }
        print(&format!("{} accepts no new work\n", host.name))?;
        let mut shown = None;
        loop {
            let drained = host.clone();
            let left =
                store.read(move |c| hosts::unfinished(c, &drained, Clock::System.now())).await.map_err(failed)?;
            if left == 0 {
                return print(&format!("{} has no work\n", host.name));
            }
            if shown.replace(left) != Some(left) {
                print(&format!("{left} left\n"))?;
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    })
}
