//! `ralph-bot audit`: shows logins to the dashboard, and changes that people made in the dashboard or through the API.

use clap::Args;
use ralph_types::failure::Failure;

use super::error::{CliError, CliResult};
use super::global::Global;
use super::{attach, block_on, load, moment, one_line, print, table};
use crate::config::{ConfigScope, Env};
use crate::domain::model::ids::Timestamp;
use crate::store::access_audit::{self, AccessRow};

/// Arguments of `audit`.
#[derive(Debug, Clone, Args)]
pub struct AuditArgs {
    /// Show only requests of this account; `operator` is the operator of the machine
    #[arg(long, value_name = "LOGIN")]
    pub login: Option<String>,
    /// Maximum number of rows, newest first
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
    /// Show only rows before this one, by its id
    #[arg(long, value_name = "ID")]
    pub before: Option<i64>,
}

/// Prints the newest rows of the audit.
///
/// # Errors
/// Fails on an invalid configuration or a missing database.
pub fn run(args: &AuditArgs, global: &Global, env: &Env) -> CliResult {
    let config = load(ConfigScope::Store, global, env)?;
    block_on(async {
        let store = attach(&config).await?;
        let (login, before, limit) = (args.login.clone(), args.before, args.limit as usize);
        let read = store.read(move |c| access_audit::newest_of(c, login.as_deref(), before, limit)).await;
        store.close().await;
        print(&shown(&read.map_err(failed)?, global.json)?)
    })
}

/// Formats rows as a table, or as one JSON object per line.
fn shown(rows: &[AccessRow], json: bool) -> Result<String, CliError> {
    if json {
        let lines = rows.iter().map(|row| serde_json::to_string(row).map(|line| line + "\n"));
        return lines.collect::<Result<String, _>>().map_err(failed);
    }
    let header = ["ID", "TIME", "WHO", "FROM", "VIA", "STATUS", "REQUEST"].map(str::to_owned);
    Ok(table(&std::iter::once(header).chain(rows.iter().map(cells)).collect::<Vec<_>>()))
}

fn cells(row: &AccessRow) -> [String; 7] {
    let login = one_line(&row.login);
    let who = match (&row.forge, row.account_id) {
        (Some(forge), Some(id)) => format!("{}:{login} ({id})", one_line(forge)),
        _ => login,
    };
    let via = match &row.token {
        Some(name) => format!("{} \"{}\"", row.via, one_line(name)),
        None => row.via.clone(),
    };
    let status = row.status.map_or_else(|| "-".to_owned(), |status| status.to_string());
    let request = format!("{} {}", one_line(&row.method), one_line(&row.path));
    [row.id.to_string(), moment(Timestamp(row.at)), who, one_line(&row.address), via, status, request]
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CliError {
    CliError::failed(Failure::of(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> AccessRow {
        AccessRow {
            id: 2,
            at: 1_800_000_000_000,
            forge: Some("work".into()),
            account_id: Some(7),
            login: "ann\u{1b}[2J".into(),
            address: "192.0.2.7".into(),
            via: "personal token".into(),
            token: Some("ci\nrow".into()),
            method: "POST".into(),
            path: "/api/v1/loops/r-1/commands".into(),
            status: Some(200),
        }
    }

    #[test]
    fn rows_are_printed_on_one_line_each_without_control_characters() {
        let operator = AccessRow {
            id: 1,
            forge: None,
            account_id: None,
            login: "operator".into(),
            via: "session".into(),
            token: None,
            path: "/logout".into(),
            status: None,
            ..row()
        };
        insta::assert_snapshot!(shown(&[row(), operator], false).expect("a table"), @r#"
        ID  TIME                  WHO               FROM       VIA                      STATUS  REQUEST
        2   2027-01-15 08:00:00Z  work:ann [2J (7)  192.0.2.7  personal token "ci row"  200     POST /api/v1/loops/r-1/commands
        1   2027-01-15 08:00:00Z  operator          192.0.2.7  session                  -       POST /logout
        "#);
    }

    #[test]
    fn json_has_a_line_for_each_row() {
        let text = shown(&[row(), row()], true).expect("JSON");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((lines.len(), &lines[0]["account_id"], &lines[0]["status"]), (2, &7.into(), &200.into()), "{text}");
    }
}
