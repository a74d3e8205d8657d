//! The system prompt: assembled once per prompt from the role, rules and skills on disk.

use std::sync::Arc;

use lillux::Hash;
use rye_protocol::{ErrorCode, ErrorInfo, ModelContext, PromptId, QueuedPrompt, ToolDefinition};

use super::Runner;
use crate::guides::{self, Role};
use crate::model::{ModelFamily, ModelInfo};
use crate::result;

/// The system prompt of one user prompt.
#[derive(Debug, Clone)]
pub(super) struct SystemPrompt {
    prompt: Option<PromptId>,
    family: ModelFamily,
    system: String,
    /// Facts about the workspace, at the end of the prompt.
    environment: String,
    /// The role's model, if the prompt names none.
    pub(super) model: Option<String>,
}

impl SystemPrompt {
    /// The complete text for the model.
    pub(super) fn text(&self) -> String {
        match (self.system.as_str(), self.environment.as_str()) {
            (system, "") => system.to_owned(),
            ("", environment) => environment.to_owned(),
            (system, environment) => format!("{system}\n\n{environment}"),
        }
    }
}

impl Runner {
    /// The system prompt for the running prompt and a model, or why the turn must fail.
    pub(super) async fn system_prompt(
        &mut self,
        model: &str,
    ) -> Result<Arc<SystemPrompt>, ErrorInfo> {
        let family = self.shared.setup.models.family(model);
        let turn = self.machine.thread.turn.as_ref();
        let prompts = self.machine.prompts.iter();
        let mut prompts =
            prompts.filter(|prompt| turn.is_some_and(|turn| turn.prompt == prompt.id));
        let prompt = prompts.next().cloned();
        let id = prompt.as_ref().map(|prompt| prompt.id.clone());
        if let Some(cached) = &self.system_prompt
            && cached.prompt == id
            && cached.family == family
        {
            return Ok(Arc::clone(cached));
        }
        let role = self.role(prompt.as_deref()).await?;
        let (shared, sandbox) = (&self.shared, &*self.shared.sandbox);
        let (mut instructions, mut skills) = (Vec::new(), Vec::new());
        let mut base = None;
        if let Some(guides) = &shared.setup.guides {
            base = guides.base_prompt(family);
            instructions = guides.instructions(sandbox).await;
            skills = guides.skills(sandbox).await;
        }
        let session = shared.data();
        let base = session.system.as_deref().or(base.as_deref());
        let base = base.unwrap_or(&shared.setup.system);
        let schema = prompt
            .as_ref()
            .and_then(|prompt| prompt.result_schema.as_ref());
        let instruction = schema.map(result::instruction);
        let schema = instruction.as_deref();
        let system = guides::system_prompt(base, role.as_ref(), &instructions, &skills, schema);
        let environment = self.environment().await;
        let has_model = prompt.as_ref().is_some_and(|prompt| prompt.model.is_some());
        let built = Arc::new(SystemPrompt {
            prompt: id,
            family,
            system,
            environment,
            model: role.and_then(|role| role.model).filter(|_| !has_model),
        });
        self.system_prompt = Some(Arc::clone(&built));
        Ok(built)
    }

    /// Facts about the workspace. They are collected once, so that the start of the request stays
    /// the same and the provider can cache it.
    async fn environment(&mut self) -> String {
        if self.environment.is_none() {
            let found = match &self.shared.setup.guides {
                Some(guides) => guides.environment(&*self.shared.sandbox).await,
                None => None,
            };
            self.environment = Some(found.unwrap_or_default());
        }
        self.environment.clone().unwrap_or_default()
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
                && known.environment == prompt.environment
        };
        if self.model_context.as_ref().is_some_and(same) {
            return;
        }
        let tools = self.shared.tools.specs(prompt.family);
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
            environment: prompt.environment.clone(),
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
        let Some(guides) = &self.shared.setup.guides else {
            let message = format!("unknown role `{name}`: this engine has no roles");
            return Err(bad(message));
        };
        let role = guides.role(&name, &*self.shared.sandbox).await;
        role.map(Some).map_err(bad)
    }
}
