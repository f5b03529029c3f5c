//! Commands for loops: the same text as in a comment.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;

use super::extract::{ApiBody, ApiViewer};
use super::openapi::Operation;
use super::problem::ApiProblem;
use super::types::{ApiCommand, ApiCommandResult};
use super::visibility::{needs_write, visible_loop};
use super::{ApiResult, ApiRoute, answer};
use crate::domain::loops::command::{self, LoopCommand};
use crate::domain::loops::{Loop, LoopInput};
use crate::domain::model::ids::{AccountKind, LoopId, User, UserId};
use crate::engine::Engine;
use crate::store::{StoreError, loops};
use crate::web::{Viewer, WebState};

/// Maximum wait for the loop to process a command.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two looks for the answer.
const POLL: Duration = Duration::from_millis(50);

/// Returns the routes of commands.
pub(super) fn routes() -> Vec<ApiRoute> {
    let operation = Operation::post(
        "/loops/{id}/commands",
        "giveCommand",
        "Gives a loop a command and waits up to 5 s for its answer; the status is 202 if it is stored and not processed yet",
    );
    vec![ApiRoute::new(operation.body::<ApiCommand>().answers::<ApiCommandResult>(), post(give))]
}

async fn give(
    State(state): State<Arc<WebState>>,
    ApiViewer { viewer, .. }: ApiViewer,
    Path(id): Path<String>,
    ApiBody(ApiCommand { command }): ApiBody<ApiCommand>,
) -> ApiResult {
    let (row, right) = visible_loop(&state, &viewer, &id, true).await?;
    needs_write(right, &row.repo)?;
    let given = command_from_dashboard(&state.engine, &row.id, &viewer, &command).await?;
    let wanted = row.id.clone();
    let current = state.engine.store.read(move |c| loops::get(c, &wanted)).await?;
    let current = current.ok_or_else(|| ApiProblem::unknown("loop", &id))?;
    let status = if given.taken { StatusCode::OK } else { StatusCode::ACCEPTED };
    let result = ApiCommandResult {
        loop_id: row.id.to_string(),
        state: current.state,
        taken: given.taken,
        refused: given.refused,
        says: given.says,
    };
    answer(&state, status, &result)
}

/// Outcome of a command.
struct GivenAnswer {
    taken: bool,
    refused: bool,
    says: String,
}

/// Gives a loop the one command of a text and waits for its answer.
async fn command_from_dashboard(
    engine: &Engine,
    id: &LoopId,
    viewer: &Viewer,
    text: &str,
) -> Result<GivenAnswer, ApiProblem> {
    let command = understood(engine, text)?;
    let wanted = id.clone();
    let current = engine.store.read(move |c| loops::get(c, &wanted)).await?;
    let current = current.ok_or_else(|| ApiProblem::unknown("loop", id.as_str()))?;
    if !current.state.is_open() {
        return Err(ApiProblem::new(
            StatusCode::CONFLICT,
            format!("{id} is {}", current.state.words()),
            "set the label on the issue again to start a new loop",
        ));
    }
    let by = author(viewer, &current, &command)?;
    let input = LoopInput::Command { by, command, comment: None };
    let origin = format!("api/{}", uuid::Uuid::now_v7());
    let (key, told, now, of) = (origin.clone(), input.clone(), engine.clock.now(), id.clone());
    engine.store.write(move |c| loops::enqueue_input(c, &of, &key, &told, now)).await?;
    engine.wake.step.notify_one();
    match tokio::time::timeout(ANSWER_TIMEOUT, processed(engine, &origin)).await {
        Ok(processed) => processed?,
        Err(_) => {
            let says = "the command is stored; the loop will process it".to_owned();
            return Ok(GivenAnswer { taken: false, refused: false, says });
        }
    }
    let (of, before) = (id.clone(), current.version);
    let history = engine.store.read(move |c| loops::history(c, &of)).await?;
    let line = history.into_iter().find(|line| line.seq.unsigned_abs() > before && line.input == input);
    let says = line.and_then(|line| line.reasons.into_iter().next()).unwrap_or_default();
    Ok(GivenAnswer { taken: true, refused: was_refused(&input, &says), says })
}

/// Returns the one command of a text.
fn understood(engine: &Engine, text: &str) -> Result<LoopCommand, ApiProblem> {
    let invalid = |detail: String| {
        ApiProblem::invalid(detail, "send one command, such as `/ralph pause`; `/ralph help` lists them")
    };
    let mut commands = command::parse(text);
    let parsed = commands.pop().filter(|_| commands.is_empty());
    let parsed = parsed.ok_or_else(|| invalid("the text is not one command that begins with /ralph".into()))?;
    let command = parsed.map_err(|error| invalid(error.to_string()))?;
    let named = command.options().and_then(|options| options.backend.as_deref());
    if let Some(name) = named.filter(|name| !engine.backends.contains_key(*name)) {
        return Err(invalid(format!("there is no backend {name:?}")));
    }
    if matches!(&command, LoopCommand::Guide(guide) if guide.proposal.is_some()) {
        return Err(invalid("proposals are accepted at /memory/proposals/{number}/accept".into()));
    }
    Ok(command)
}

/// Returns the author of a command. The operator of the machine is unknown to the forge, whose permission pushes need, so that a
/// loop that the operator resumes stays on the authority of its person.
fn author(viewer: &Viewer, current: &Loop, command: &LoopCommand) -> Result<User, ApiProblem> {
    match &viewer.account {
        Some((forge, user)) if *forge == current.place.repo.forge => Ok(user.clone()),
        Some((forge, _)) => Err(ApiProblem::forbidden(
            format!("your account of {forge} cannot give commands on {}", current.place.repo.forge),
            format!("log in with {}", current.place.repo.forge),
        )),
        None if matches!(command, LoopCommand::Resume(_)) => Ok(current.authority.clone()),
        None => Ok(User { id: UserId(0), login: "the operator".into(), kind: AccountKind::User }),
    }
}

async fn processed(engine: &Engine, origin: &str) -> Result<(), StoreError> {
    loop {
        let key = origin.to_owned();
        if engine.store.read(move |c| loops::is_input_processed(c, &key)).await? {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Whether the loop refused a command.
fn was_refused(input: &LoopInput, reason: &str) -> bool {
    match input {
        LoopInput::Command { command: LoopCommand::Resume(_), .. } => !reason.ends_with("resumed it"),
        LoopInput::Command { command: LoopCommand::Pause(_), .. } => reason.contains("nothing to pause"),
        _ => false,
    }
}
