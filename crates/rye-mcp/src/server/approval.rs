//! ApprovalChannel through a client: what is approved is the bytes of a chain and the
//! parameters, not a name.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::PoisonError;

use lillux::{Hash, quote_block, sanitize_line};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationSchema, InputRequest, InputRequiredResult,
};
use rmcp::service::RequestContext;
use rye_executor::chain::Chain;
use rye_executor::{Executor, Request};
use serde_json::{Value, json};

use super::asked::has_forms;
use super::{Server, is_stateless};
use crate::gateway::{ApprovalChannel, CallDecision, Component, GatedCall, GatewayError};

/// How many questions may be open. The oldest is forgotten, and asked again.
const OPEN: usize = 256;

/// The question's name, where a client answers several.
const QUESTION: &str = "approval";

/// What a client is told if the person does not let a tool run.
pub(super) const DECLINED: &str = "the person declined to let it run";

/// Questions that were asked, by the word that the client gives back.
#[derive(Debug, Default)]
pub(super) struct Pending(VecDeque<(String, Question)>);

/// A question to a client that answers with its next call.
#[derive(Debug, Clone)]
struct Question {
    /// The call that was asked about.
    call: Hash,
    gated: GatedCall,
}

/// What a client answered to a question of ours.
#[derive(Debug, Clone, Copy)]
pub(super) enum Answered {
    /// To the chain of this hash.
    Yes(Hash),
    No,
}

/// What is asked about.
pub(super) struct Ask {
    pub(super) gated: GatedCall,
    /// What somebody ticks who approves.
    pub(super) tick: &'static str,
    /// What needs the approval, as words.
    pub(super) what: String,
    /// What a client is told if the person declines.
    pub(super) declined: &'static str,
}

/// What came of asking.
pub(super) enum Way {
    Answered(Answered),
    /// The client answers with its next call.
    Ask(CallToolResponse),
}

impl Server {
    /// What the client answers with this call, if it answers a question that is open and
    /// was about this very call. A question is answered once.
    pub(super) async fn approved(
        &self,
        project: &Path,
        call: &CallToolRequestParams,
        about: impl FnOnce() -> Hash,
    ) -> Result<Option<Answered>, GatewayError> {
        let Some((question, answer)) = self.answer_to(call) else {
            return Ok(None);
        };
        if question.call != about() {
            return Ok(None);
        }
        let Ok(answer) = serde_json::from_value::<ElicitResult>(answer) else {
            return Ok(None);
        };
        let answered = answered(&answer, question.gated.chain);
        self.record(project, question.gated, answered).await?;
        Ok(Some(answered))
    }

    /// Takes the open question that a call answers, and the answer.
    fn answer_to(&self, call: &CallToolRequestParams) -> Option<(Question, Value)> {
        let state = call.request_state.as_deref()?;
        let answer = call.input_responses.as_ref()?.get(QUESTION)?;
        let pending = self.shared.pending.lock();
        let question = pending
            .unwrap_or_else(PoisonError::into_inner)
            .take(state)?;
        Some((question, answer.clone()))
    }

    /// Records what the person at the client decided, before anything comes of it.
    async fn record(
        &self,
        project: &Path,
        gated: GatedCall,
        answered: Answered,
    ) -> Result<(), GatewayError> {
        let project = project.to_owned();
        let is_approved = matches!(answered, Answered::Yes(_));
        self.blocking(move |gateway| gateway.record_decision(&project, &gated, is_approved))
            .await
    }

    /// Returns when a person has approved exactly this, or gives the response that asks for
    /// the approval.
    pub(super) async fn need_approval(
        &self,
        call: &CallToolRequestParams,
        project: &Path,
        ask: Ask,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<CallToolResponse>, GatewayError> {
        let (chain, declined) = (ask.gated.chain, ask.declined);
        let about = || hash(project, &ask.gated.tool, &ask.gated.parameters);
        let answered = match self.approved(project, call, about).await? {
            Some(answered) => answered,
            None => match self.ask_for_approval(project, ask, context).await? {
                Way::Answered(answered) => answered,
                Way::Ask(response) => return Ok(Some(response)),
            },
        };
        match answered {
            Answered::Yes(approved) if approved == chain => Ok(None),
            Answered::Yes(_) => {
                let message = "it is not what was approved: a file has changed since";
                Err(GatewayError::new("approval_void", message))
            }
            Answered::No => Err(GatewayError::new("approval_declined", declined)),
        }
    }

    /// Asks about the run of a tool.
    pub(super) async fn ask_to_run(
        &self,
        project: &Path,
        executor: &Executor,
        request: &Request,
        why: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Way, GatewayError> {
        let chain = executor.chain(&request.tool).map_err(|error| {
            let refusal = GatewayError::new(error.code(), error.to_string());
            match error.hint() {
                Some(hint) => refusal.hint(hint),
                None => refusal,
            }
        })?;
        let links = chain.links.iter().chain(chain.named.values());
        let id = &request.tool.id;
        let gated = GatedCall {
            title: format!("Run {id} for an MCP client?"),
            tool: id.to_string(),
            parameters: request.parameters.clone(),
            chain: chain.hash,
            components: links
                .map(|link| Component {
                    name: link.id().to_string(),
                    hash: link.item.hash.to_hex(),
                })
                .collect(),
            question: question(&chain, request, why),
        };
        let ask = Ask {
            gated,
            tick: "Let it run",
            what: id.to_string(),
            declined: DECLINED,
        };
        self.ask_for_approval(project, ask, context).await
    }

    /// Asks the person at the client, or, where it cannot ask, one at another terminal.
    pub(super) async fn ask_for_approval(
        &self,
        project: &Path,
        ask: Ask,
        context: &RequestContext<RoleServer>,
    ) -> Result<Way, GatewayError> {
        let is_terminal = self.shared.gateway.approval_channel() == ApprovalChannel::Terminal;
        if is_terminal || !has_forms(context) {
            return self.ask_elsewhere(project, ask).await;
        }
        let form = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: ask.gated.question.clone(),
            requested_schema: schema(ask.tick)?,
        };
        if is_stateless(context) {
            let gated = ask.gated;
            let question = Question {
                call: hash(project, &gated.tool, &gated.parameters),
                gated,
            };
            let pending = self.shared.pending.lock();
            let state = pending
                .unwrap_or_else(PoisonError::into_inner)
                .add(question);
            let ask = InputRequest::Elicitation(ElicitRequest::new(form));
            let asks = BTreeMap::from([(QUESTION.to_owned(), ask)]);
            let ask = InputRequiredResult::new(Some(asks), Some(state));
            return Ok(Way::Ask(ask.into()));
        }
        let answer = tokio::select! {
            answer = context.peer.create_elicitation(form) => answer,
            () = context.ct.cancelled() => {
                return Err(GatewayError::new("cancelled", "the client cancelled it, and nothing was done"));
            }
        };
        match answer {
            Ok(answer) => {
                let answered = answered(&answer, ask.gated.chain);
                self.record(project, ask.gated, answered).await?;
                Ok(Way::Answered(answered))
            }
            // It said that it could.
            Err(_) => self.ask_elsewhere(project, ask).await,
        }
    }

    /// What somebody decided at another terminal, or the gate at which the call waits.
    async fn ask_elsewhere(&self, project: &Path, ask: Ask) -> Result<Way, GatewayError> {
        let Ask { gated, what, .. } = ask;
        let (project, hash) = (project.to_owned(), gated.chain);
        let decided = self.blocking(move |gateway| gateway.claim_decision(&project, &gated));
        let gate = match decided.await? {
            CallDecision::Approved => return Ok(Way::Answered(Answered::Yes(hash))),
            CallDecision::Denied => return Ok(Way::Answered(Answered::No)),
            CallDecision::Pending { gate } => gate,
        };
        let message = format!(
            "{what} needs a person's approval from a terminal: the call waits at gate {gate}, and \
             nothing has been done"
        );
        let hint = format!(
            "a person runs `rye gate approve {gate}` in a terminal; then make the same call again"
        );
        let mut refusal = GatewayError::new("approval_required", message).hint(hint);
        *refusal.details = json!({ "gate": gate });
        Err(refusal)
    }
}

impl Pending {
    /// Writes a question down under a word that nobody can guess.
    fn add(&mut self, question: Question) -> String {
        let mut bytes = [0; 16];
        // Without randomness the word fits no later answer, which is safe.
        let word = match getrandom::fill(&mut bytes) {
            Ok(()) => Hash::digest(bytes).to_string(),
            Err(_) => return String::new(),
        };
        if self.0.len() == OPEN {
            self.0.pop_front();
        }
        self.0.push_back((word.clone(), question));
        word
    }

    fn take(&mut self, word: &str) -> Option<Question> {
        let at = self.0.iter().position(|(other, _)| other == word)?;
        self.0.remove(at).map(|(_, question)| question)
    }
}

/// A call by its content.
pub(super) fn hash(project: &Path, tool: &str, parameters: &Value) -> Hash {
    let call = json!([project, tool, parameters]);
    Hash::digest(call.to_string().as_bytes())
}

fn answered(answer: &ElicitResult, chain: Hash) -> Answered {
    let approve = answer.content.as_ref().and_then(|it| it.get("approve"));
    if answer.action == ElicitationAction::Accept && approve == Some(&Value::Bool(true)) {
        Answered::Yes(chain)
    } else {
        Answered::No
    }
}

fn schema(tick: &str) -> Result<ElicitationSchema, GatewayError> {
    let schema = json!({
        "type": "object",
        "properties": {
            "approve": { "type": "boolean", "title": tick, "default": false },
        },
        "required": ["approve"],
    });
    serde_json::from_value(schema).map_err(|error| GatewayError::new("internal", error.to_string()))
}

/// What a person must know to decide.
fn question(chain: &Chain, request: &Request, why: Option<&str>) -> String {
    let tool = chain.tool();
    let signer = match &tool.item.signer {
        Some(signer) => {
            let owner = signer.owner.as_deref().unwrap_or("of an unnamed owner");
            format!("{} {}", signer.key.fingerprint(), sanitize_line(owner))
        }
        None => "nobody (RYE_DEV_MODE)".to_owned(),
    };
    let risk = tool.metadata.risk_level();
    let risk = risk.map_or("not stated", rye_items::metadata::RiskLevel::as_str);
    // The same call reads the same, in whatever order a client writes its parameters.
    let mut parameters = request.parameters.clone();
    parameters.sort_all_objects();
    let parameters = serde_json::to_string_pretty(&parameters).unwrap_or_default();
    let why = why.map_or_else(String::new, |why| format!("why it asks: {why}\n"));
    format!(
        "Run {}?\n\n{why}signed by: {signer}\nrisk: {risk}\nchain: {}\nhash: {}\nparameters:\n{}",
        request.tool.id,
        chain.ids().join(" → "),
        chain.hash,
        shown(&parameters),
    )
}

/// As much as a person reads, each line behind a bar.
pub(super) fn shown(text: &str) -> String {
    const MOST: usize = 4000;
    match text.char_indices().nth(MOST) {
        None => quote_block(text),
        Some((at, _)) => format!(
            "{}\n… ({} bytes in all)",
            quote_block(&text[..at]),
            text.len()
        ),
    }
}
