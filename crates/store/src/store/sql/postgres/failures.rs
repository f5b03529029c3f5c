//! Errors of the server and of the connection.

use std::path::PathBuf;

use postgres::error::SqlState;

use crate::domain::model::database::DatabaseHost;
use crate::store::{StoreError, failure, unusable};

/// Whether the connection is lost after an error, or leads to a server that no longer accepts writes.
pub(super) fn is_lost(error: &postgres::Error) -> bool {
    let Some(state) = error.code() else {
        return error.is_closed() || is_io(error);
    };
    state.code().starts_with("08")
        || matches!(
            *state,
            SqlState::ADMIN_SHUTDOWN
                | SqlState::CRASH_SHUTDOWN
                | SqlState::CANNOT_CONNECT_NOW
                | SqlState::READ_ONLY_SQL_TRANSACTION
                | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        )
}

fn is_io(error: &postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

/// Classifies an error by the server's code.
pub(super) fn classified(error: &postgres::Error) -> StoreError {
    let detail = reason(error);
    let Some(state) = error.code() else {
        // Without an answer of the server, the connection was lost. Otherwise, a value did not have the expected type.
        return if is_lost(error) { StoreError::Busy } else { StoreError::Bug { detail: detail.into() } };
    };
    match state {
        _ if state.code().starts_with("23") => StoreError::Duplicate { detail: detail.into() },
        &SqlState::DISK_FULL => StoreError::Full { path: PathBuf::new() },
        &SqlState::INSUFFICIENT_PRIVILEGE => unusable(detail),
        &SqlState::QUERY_CANCELED => StoreError::TooSlow,
        &SqlState::T_R_SERIALIZATION_FAILURE
        | &SqlState::T_R_DEADLOCK_DETECTED
        | &SqlState::LOCK_NOT_AVAILABLE
        | &SqlState::READ_ONLY_SQL_TRANSACTION
        | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => StoreError::Busy,
        _ => match &state.code()[..2] {
            // The connection, the server's resources, or an operator's intervention.
            "08" | "53" | "57" => StoreError::Busy,
            "58" | "XX" | "F0" => failure(detail),
            _ => StoreError::Bug { detail: detail.into() },
        },
    }
}

/// Returns the reason why a server could not be used, for the operator.
pub(super) fn not_connected(host: &DatabaseHost, has_password: bool, error: &postgres::Error) -> String {
    let why = reason(error);
    match error.code() {
        Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => format!(
            "the server {host} rejects the login ({why}); correct the user in `database`, or its password in \
             `database_password_env`, `database_password_file` or the password file of libpq"
        ),
        Some(_) => format!("the server {host} refuses the connection: {why}"),
        // The server asks for a password, or does not answer as expected.
        None if !has_password && !is_io(error) => {
            format!("could not use the server {host} without a password: {why}")
        }
        None => format!("could not use the server {host}: {why}"),
    }
}

/// Returns the reason of an error, which its `Display` does not contain.
pub(super) fn reason(error: &postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(answer), _) => answer.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
