//! What a model is told before anything is said: put together once for each prompt, from
//! files as they are then.

use std::sync::Arc;

use lillux::Hash;
use rye_protocol::{ErrorCode, ErrorInfo, ModelContext, PromptId, QueuedPrompt, ToolDefinition};

use super::Runner;
use crate::guides::{self, Role};
use crate::model::ModelInfo;
use crate::result::{self, SCHEMA};

/// Where a thread and a session keep the role that they have.
pub(crate) const ROLE: &str = "role";

/// What holds for a prompt.
#[derive(Debug, Clone)]
pub(super) struct Guidance {
    prompt: Option<PromptId>,
    pub(super) system: String,
    /// The model of the role, if the prompt names none.
    pub(super) model: Option<String>,
}

impl Runner {
    /// What holds for the prompt that runs; or why it must fail before anybody is asked.
    pub(super) async fn guidance(&mut self) -> Result<Arc<Guidance>, ErrorInfo> {
        let turn = self.machine.thread.turn.as_ref();
        let prompts = self.machine.prompts.iter();
        let mut prompts =
            prompts.filter(|prompt| turn.is_some_and(|turn| turn.prompt == prompt.id));
        let prompt = prompts.next().cloned();
        let id = prompt.as_ref().map(|prompt| prompt.id.clone());
        if let Some(known) = &self.guidance
            && known.prompt == id
        {
            return Ok(Arc::clone(known));
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
            .and_then(|prompt| prompt.metadata.get(SCHEMA));
        let more = schema.map(result::instruction);
        let (rules, more) = (rules.as_deref(), more.as_deref());
        let system = guides::system(&shared.system, role.as_ref(), rules, &skills, more);
        let named = prompt.as_ref().is_some_and(|prompt| prompt.model.is_some());
        let guidance = Arc::new(Guidance {
            prompt: id,
            system,
            model: role.and_then(|role| role.model).filter(|_| !named),
        });
        self.guidance = Some(Arc::clone(&guidance));
        Ok(guidance)
    }

    /// What the model is told beside the history, to be written down with its answer.
    pub(super) fn remember_prompt(&mut self, model: &str, info: ModelInfo, guidance: &Guidance) {
        let same = |(known, _): &(ModelContext, String)| {
            known.model == model
                && known.context_window == info.context_window
                && known.system == guidance.system
        };
        if self.prompted.as_ref().is_some_and(same) {
            return;
        }
        let tools = self.shared.tools.specs();
        let tools = tools.iter().map(|tool| ToolDefinition {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
        });
        let prompted = ModelContext {
            model: model.to_owned(),
            context_window: info.context_window,
            max_output: info.max_output,
            system: guidance.system.clone(),
            tools: tools.collect(),
        };
        let text = serde_json::to_string(&prompted).unwrap_or_default();
        self.prompted = Some((prompted, Hash::digest(text).to_hex()));
    }

    /// The role: the prompt's, else the thread's, else the session's.
    async fn role(&self, prompt: Option<&QueuedPrompt>) -> Result<Option<Role>, ErrorInfo> {
        // That of the thread is written with the prompt when it begins.
        let named = prompt.and_then(|prompt| prompt.role.clone());
        let Some(name) = named.or_else(|| self.shared.role.clone()) else {
            return Ok(None);
        };
        let bad = |why: String| ErrorInfo::new(ErrorCode::BadRole, why);
        let Some(guides) = &self.shared.guides else {
            return Err(bad(format!(
                "there is no role `{name}`: nobody has any here"
            )));
        };
        let role = guides.role(&name, &*self.shared.sandbox).await;
        role.map(Some).map_err(bad)
    }
}
