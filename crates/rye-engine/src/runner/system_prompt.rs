//! The system prompt: assembled once per prompt from the role, rules and skills on disk.

use std::sync::Arc;

use lillux::Hash;
use rye_protocol::{ErrorCode, ErrorInfo, ModelContext, PromptId, QueuedPrompt, ToolDefinition};

use super::Runner;
use crate::guides::{self, Role};
use crate::model::ModelInfo;
use crate::result;

/// The system prompt of one user prompt.
#[derive(Debug, Clone)]
pub(super) struct SystemPrompt {
    prompt: Option<PromptId>,
    pub(super) system: String,
    /// The role's model, if the prompt names none.
    pub(super) model: Option<String>,
}

impl Runner {
    /// The system prompt for the running prompt, or why the turn must fail.
    pub(super) async fn system_prompt(&mut self) -> Result<Arc<SystemPrompt>, ErrorInfo> {
        let turn = self.machine.thread.turn.as_ref();
        let prompts = self.machine.prompts.iter();
        let mut prompts =
            prompts.filter(|prompt| turn.is_some_and(|turn| turn.prompt == prompt.id));
        let prompt = prompts.next().cloned();
        let id = prompt.as_ref().map(|prompt| prompt.id.clone());
        if let Some(cached) = &self.system_prompt
            && cached.prompt == id
        {
            return Ok(Arc::clone(cached));
        }
        let role = self.role(prompt.as_deref()).await?;
        let (shared, sandbox) = (&self.shared, &*self.shared.sandbox);
        let (mut rules, mut skills) = (None, Vec::new());
        if let Some(guides) = &shared.guides {
            rules = guides.rules(sandbox).await;
            skills = guides.skills(sandbox).await;
        }
        let schema = prompt
            .as_ref()
            .and_then(|prompt| prompt.result_schema.as_ref());
        let instruction = schema.map(result::instruction);
        let (rules, schema) = (rules.as_deref(), instruction.as_deref());
        let system = guides::system_prompt(&shared.system, role.as_ref(), rules, &skills, schema);
        let has_model = prompt.as_ref().is_some_and(|prompt| prompt.model.is_some());
        let built = Arc::new(SystemPrompt {
            prompt: id,
            system,
            model: role.and_then(|role| role.model).filter(|_| !has_model),
        });
        self.system_prompt = Some(Arc::clone(&built));
        Ok(built)
    }

    /// Updates the model context (everything beside the history) that is stored with the answer.
    pub(super) fn record_model_context(
        &mut self,
        model: &str,
        info: ModelInfo,
        prompt: &SystemPrompt,
    ) {
        let same = |(known, _): &(ModelContext, String)| {
            known.model == model
                && known.context_window == info.context_window
                && known.system == prompt.system
        };
        if self.model_context.as_ref().is_some_and(same) {
            return;
        }
        let tools = self.shared.tools.specs();
        let tools = tools.iter().map(|tool| ToolDefinition {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
        });
        let context = ModelContext {
            model: model.to_owned(),
            context_window: info.context_window,
            max_output: info.max_output,
            system: prompt.system.clone(),
            tools: tools.collect(),
        };
        let text = serde_json::to_string(&context).unwrap_or_default();
        self.model_context = Some((context, Hash::digest(text).to_hex()));
    }

    /// The prompt's role, or else the session's.
    async fn role(&self, prompt: Option<&QueuedPrompt>) -> Result<Option<Role>, ErrorInfo> {
        // A thread's role is copied into the prompt when its turn starts.
        let named = prompt.and_then(|prompt| prompt.role.clone());
        let Some(name) = named.or_else(|| self.shared.role.clone()) else {
            return Ok(None);
        };
        let bad = |message: String| ErrorInfo::new(ErrorCode::BadRole, message);
        let Some(guides) = &self.shared.guides else {
            let message = format!("unknown role `{name}`: this engine has no roles");
            return Err(bad(message));
        };
        let role = guides.role(&name, &*self.shared.sandbox).await;
        role.map(Some).map_err(bad)
    }
}
