//! Prompts of the editor: sending them, and responding when their turns have ended.

use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{PromptResponse, StopReason};
use agent_client_protocol::{Error, ErrorCode};
use rye_engine::Prompt;
use rye_engine::protocol::{
    Author, Entry, EntryKind, ErrorInfo, IncompleteReason, Message, PromptId, Role, Synthetic,
    TurnEnd,
};
use rye_engine::store::StoreError;

use super::SessionTask;
use crate::content::PromptContent;
use crate::failure::{store_error, turn_error};
use crate::history::is_compaction_next;
use crate::slash_command::SlashCommand;
use crate::transcript::note;

/// Name of the interface, for the record of prompts and decisions.
pub(super) const CHANNEL: &str = "acp";

/// A prompt whose end the editor waits for.
pub(super) struct PendingPrompt {
    /// Id of the prompt, or of the one that it was merged into or that continues it.
    pub(super) id: PromptId,
    responder: Responder<PromptResponse>,
    incomplete: Option<IncompleteReason>,
    error: Option<ErrorInfo>,
    /// How its turn ended, while a compaction follows after which the agent may continue.
    compacting_after: Option<TurnEnd>,
}

impl PendingPrompt {
    pub(super) fn new(id: PromptId, responder: Responder<PromptResponse>) -> Self {
        Self {
            id,
            responder,
            incomplete: None,
            error: None,
            compacting_after: None,
        }
    }

    fn respond(self, reason: TurnEnd) {
        let stop_reason = match reason {
            TurnEnd::Abort | TurnEnd::Withdrawn => StopReason::Cancelled,
            TurnEnd::Limit => StopReason::MaxTurnRequests,
            TurnEnd::Error => {
                let error = match &self.error {
                    Some(error) => turn_error(error),
                    None => Error::new(ErrorCode::INTERNAL_ERROR, "the turn failed"),
                };
                let _ = self.responder.respond_with_error(error);
                return;
            }
            TurnEnd::EndTurn | TurnEnd::Merged => match self.incomplete {
                Some(IncompleteReason::OutputLimit) => StopReason::MaxTokens,
                Some(IncompleteReason::Refused) => StopReason::Refusal,
                None => StopReason::EndTurn,
            },
        };
        let _ = self.responder.respond(PromptResponse::new(stop_reason));
    }
}

impl SessionTask {
    /// Sends a prompt to the engine.
    pub(super) async fn prompt(
        &mut self,
        content: PromptContent,
        responder: Responder<PromptResponse>,
    ) {
        let command = SlashCommand::parse(&content.text);
        if let Some(question) = self.question.take_if(|_| !matches!(command, Some(Ok(_)))) {
            return self.answer(question, content.text, responder).await;
        }
        if let Some(command) = command {
            return self.run_command(command, responder).await;
        }
        let prompt = Prompt {
            attachments: content.attachments,
            ..Prompt::from(content.text)
        };
        self.submit(prompt, responder).await;
    }

    /// Sends a prompt with what the user chose for the session.
    pub(super) async fn submit(&mut self, prompt: Prompt, responder: Responder<PromptResponse>) {
        // Before it is sent, so that the end is not missed.
        let id = PromptId::new();
        self.prompts.push(PendingPrompt::new(id.clone(), responder));
        let prompt = Prompt {
            id: Some(id.clone()),
            author: Some(Author {
                name: self.user_name(),
                channel: Some(CHANNEL.to_owned()),
            }),
            model: self.settings.chosen_model(),
            role: self.role.clone(),
            thread: Some(self.thread_key.clone()),
            ..prompt
        };
        if let Err(error) = self.engine().submit(&self.id, prompt).await
            && let Some(refused) = self.take_prompt(&id)
        {
            let _ = refused.responder.respond_with_error(store_error(error));
        }
    }

    /// Name of the user, for the record.
    pub(super) fn user_name(&self) -> String {
        if let Some(caller) = &self.caller {
            return caller.name.clone();
        }
        let name = self.project.context.user_name();
        name.unwrap_or_else(|_| "unknown".to_owned())
    }

    pub(super) fn is_own_prompt(&self, id: Option<&PromptId>) -> bool {
        id.is_some_and(|id| self.prompts.iter().any(|prompt| prompt.id == *id))
    }

    fn take_prompt(&mut self, id: &PromptId) -> Option<PendingPrompt> {
        let at = self.prompts.iter().position(|prompt| prompt.id == *id)?;
        Some(self.prompts.remove(at))
    }

    /// Responds to a prompt before its turn has ended, because the next prompt answers a question.
    pub(super) fn suspend_prompt(&mut self, id: &PromptId) {
        if let Some(prompt) = self.take_prompt(id) {
            prompt.respond(TurnEnd::EndTurn);
        }
    }

    /// Notes what an entry means for the prompts that the editor waits for.
    pub(super) fn on_prompt_entry(&mut self, entry: &Entry) {
        let EntryKind::Message(message) = &entry.kind else {
            return;
        };
        if message.role == Role::User && message.synthetic != Some(Synthetic::Review) {
            self.on_next_prompt(entry, message);
        }
        let mut prompts = self.prompts.iter_mut();
        let own = prompts.find(|prompt| entry.prompt.as_ref() == Some(&prompt.id));
        if let (Some(prompt), Role::Assistant) = (own, message.role) {
            prompt.incomplete = message.incomplete;
        }
    }

    /// A turn begins: the continuation of a prompt after a compaction, or another prompt, which
    /// means that there is no continuation.
    fn on_next_prompt(&mut self, entry: &Entry, message: &Message) {
        let is_continuation = message.synthetic == Some(Synthetic::CompactionContinue);
        let is_waiting = |prompt: &PendingPrompt| prompt.compacting_after.is_some();
        let waiting: Vec<_> = self.prompts.extract_if(.., |it| is_waiting(it)).collect();
        for mut prompt in waiting {
            match (&entry.prompt, prompt.compacting_after.take()) {
                (Some(id), _) if is_continuation => {
                    prompt.id = id.clone();
                    self.prompts.push(prompt);
                }
                (_, reason) => prompt.respond(reason.unwrap_or(TurnEnd::EndTurn)),
            }
        }
    }

    /// Notes the error of a prompt. Returns whether the editor waits for it.
    pub(super) fn on_prompt_error(&mut self, error: &ErrorInfo) -> bool {
        let mut prompts = self.prompts.iter_mut();
        let own = prompts.find(|prompt| error.ids.prompt.as_ref() == Some(&prompt.id));
        own.map(|prompt| prompt.error = Some(error.clone()))
            .is_some()
    }

    /// A prompt has ended.
    pub(super) async fn on_turn_end(
        &mut self,
        prompt: &PromptId,
        reason: TurnEnd,
        merged_into: Option<PromptId>,
        sequence: Option<u64>,
    ) {
        let mut prompts = self.prompts.iter_mut();
        let Some(own) = prompts.find(|it| it.id == *prompt) else {
            return;
        };
        if let Some(into) = merged_into {
            own.id = into;
            return;
        }
        if reason == TurnEnd::Limit
            && let Some(error) = &own.error
        {
            let text = error.message.clone();
            self.send(note(&text));
        }
        let compacts = match sequence {
            Some(number) if reason == TurnEnd::EndTurn => {
                let store = self.engine().store();
                is_compaction_next(&**store, &self.id, number)
                    .await
                    .unwrap_or(false)
            }
            _ => false,
        };
        if compacts {
            let mut prompts = self.prompts.iter_mut();
            if let Some(own) = prompts.find(|it| it.id == *prompt) {
                own.compacting_after = Some(reason);
            }
        } else if let Some(own) = self.take_prompt(prompt) {
            own.respond(reason);
        }
    }

    /// Responds to prompts that wait for the continuation after a compaction, if the thread has
    /// nothing to do after an event.
    pub(super) async fn end_compacted_prompts(&mut self, sequence: Option<u64>) {
        let is_waiting = |prompt: &PendingPrompt| prompt.compacting_after.is_some();
        if !self.prompts.iter().any(is_waiting) {
            return;
        }
        let Ok(Some(snapshot)) = self.engine().snapshot(&self.id).await else {
            return;
        };
        let mut threads = snapshot.threads.iter();
        let thread = threads.find(|thread| Some(&thread.id) == self.thread.as_ref());
        let is_busy = thread.is_some_and(|it| it.turn.is_some() || it.compaction.is_some());
        let mut prompts = snapshot.prompts.iter();
        let has_prompts = prompts.any(|it| Some(&it.thread) == self.thread.as_ref());
        // More events follow otherwise.
        if is_busy || has_prompts || sequence != Some(snapshot.sequence) {
            return;
        }
        let ended: Vec<_> = self.prompts.extract_if(.., |it| is_waiting(it)).collect();
        for prompt in ended {
            let reason = prompt.compacting_after.unwrap_or(TurnEnd::EndTurn);
            prompt.respond(reason);
        }
    }

    /// Responds to all prompts that they were cancelled.
    pub(super) fn cancel_prompts(&mut self) {
        for prompt in self.prompts.drain(..) {
            prompt.respond(TurnEnd::Abort);
        }
    }

    /// Responds to all prompts with an error of the store.
    pub(super) fn fail_prompts(&mut self, error: &StoreError) {
        for prompt in self.prompts.drain(..) {
            let error = store_error(error.clone());
            let _ = prompt.responder.respond_with_error(error);
        }
    }
}
