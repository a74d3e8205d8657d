//! Sends prompts and aborts to the session in the order in which the user issued them.

use rye_engine::store::StoreError;
use rye_engine::{Prompt, Session};
use tokio::sync::mpsc;

use crate::effects::{EffectResult, error_result};

/// A request to the engine that must be sent in order.
pub(crate) enum OutboxCommand {
    Prompt(Box<Prompt>),
    /// Stops the thread with this key.
    Abort(String),
}

/// Sends everything in the queue, one after the other, so that an abort never stops a prompt
/// that was sent after it.
pub(crate) async fn run(
    session: Session,
    mut queue: mpsc::UnboundedReceiver<OutboxCommand>,
    results: mpsc::UnboundedSender<EffectResult>,
) {
    while let Some(command) = queue.recv().await {
        let result = match command {
            OutboxCommand::Prompt(prompt) => Some(send(&session, *prompt).await),
            OutboxCommand::Abort(thread) => abort(&session, &thread)
                .await
                .unwrap_or_else(|error| Some(error_result(&error))),
        };
        if let Some(result) = result {
            let _ = results.send(result);
        }
    }
}

async fn send(session: &Session, prompt: Prompt) -> EffectResult {
    let text = prompt.content.clone();
    let thread = prompt.thread.clone().unwrap_or_default();
    match session.prompt(prompt).await {
        Ok(prompt) => EffectResult::PromptQueued(thread, prompt),
        Err(error) => EffectResult::PromptFailed {
            thread,
            text,
            error: error.to_string(),
        },
    }
}

/// Aborts a thread. The abort would drop its queued prompts, so they are returned as a draft.
async fn abort(session: &Session, key: &str) -> Result<Option<EffectResult>, StoreError> {
    let mut drafts = Vec::new();
    let threads = session.threads();
    if let Some(thread) = threads.iter().find(|view| view.key == key) {
        for prompt in session.waiting_prompts(&thread.id).await? {
            let prompt = session.withdraw_prompt(&thread.id, &prompt.id).await?;
            drafts.extend(prompt.map(|prompt| prompt.content));
        }
    }
    session.abort(Some(key)).await?;
    Ok((!drafts.is_empty()).then(|| EffectResult::Draft(drafts.join("\n\n"))))
}
