//! Texts as the forge displays them.

use crate::domain::lifecycle::effect::WorkEffect;
use crate::domain::loops::{ForgeInput, Loop, LoopInput};
use crate::domain::model::document::Document;
use crate::domain::model::ids::RepoRef;
use crate::domain::trust::sanitize::document;
use crate::engine::context::ServiceContext;
use crate::engine::forges::account::ForgeAccount;
use crate::engine::receipt::EffectError;
use crate::forge::ForgeError;
use crate::store::loops;

/// Wait until the input with a page has been processed, in milliseconds.
const STORED_WAIT_MS: i64 = 1_000;

/// Returns the HTML that the forge renders from a text in a repository; `None` if the text has no markup. `html` is the HTML that
/// the forge returned with the text.
///
/// # Errors
/// The forge does not render the text. The caller tries again later; no text is guessed.
pub(in crate::engine) async fn page_of(
    account: &ForgeAccount,
    repo: &RepoRef,
    source: &str,
    html: Option<String>,
) -> Result<Option<String>, ForgeError> {
    match html {
        Some(html) => Ok(Some(html)),
        None if document::has_markup(source) => account.forge.render(repo, source).await.map(Some),
        None => Ok(None),
    }
}

/// Returns the document of a text in a repository.
///
/// # Errors
/// The forge does not render the text.
pub(in crate::engine) async fn document_of(
    account: &ForgeAccount,
    repo: &RepoRef,
    source: &str,
    html: Option<String>,
) -> Result<Document, ForgeError> {
    let html = page_of(account, repo, source, html).await?;
    Ok(document::read(source, html.as_deref()))
}

/// Fails if a work effect reads a task that was stored without its page, after asking the forge for the page and storing it. The
/// effect is then retried.
pub(in crate::engine) async fn page_is_stored(
    context: &ServiceContext,
    account: &ForgeAccount,
    repo: &RepoRef,
    effect: &WorkEffect,
    current: &Loop,
) -> Result<(), EffectError> {
    let reads = matches!(
        effect,
        WorkEffect::Prepare { .. }
            | WorkEffect::Check { .. }
            | WorkEffect::Plan { .. }
            | WorkEffect::Agent { .. }
            | WorkEffect::SecondOpinion { .. }
    );
    if !reads || !current.state.is_open() || !current.task.text.lacks_page() {
        return Ok(());
    }
    let later = |after_ms, why| Err(EffectError::Retry { after_ms, ambiguous: false, why });
    let html = match account.forge.render(repo, current.task.text.body()).await {
        Ok(html) => html,
        Err(error) => return later(None, error.to_string()),
    };
    let (id, key, now) = (current.id.clone(), format!("page/{}", current.id), context.clock.now());
    let input = LoopInput::Forge(ForgeInput::Rendered { html });
    context.store.write(move |c| loops::enqueue_input(c, &id, &key, &input, now)).await?;
    context.wake.step.notify_one();
    later(Some(STORED_WAIT_MS), "the forge rendered the task's text".to_owned())
}
