//! Approval of calls through the MCP client or at a terminal.
//!
//! An approval covers the bytes of all files of a chain and the parameters, not a name.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use lillux::{Hash, quote_block, sanitize_line};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationSchema, InputRequest, InputRequiredResult,
};
use rmcp::service::RequestContext;
use rye_executor::chain::Chain;
use rye_executor::{Executor, Request};
use rye_items::Item;
use serde_json::{Value, json};

use super::elicitation::supports_forms;
use super::{Server, is_stateless};
use crate::gateway::{
    ApprovalChannel, CallDecision, CallEnd, Component, GatedCall, GatewayError, GatewayResult,
};

/// Maximum number of pending approvals. The oldest is dropped and has to be requested again.
const MAX_PENDING: usize = 256;

/// Key of the approval among the input requests of a result.
const APPROVAL_KEY: &str = "approval";

/// Message for a denied run of a tool.
pub(super) const RUN_DENIED: &str = "the user denied the run";

/// Approval requests in progress, by the request state that the client sends back.
#[derive(Debug, Default)]
pub(super) struct PendingApprovals(VecDeque<(String, PendingApproval)>);

/// An approval request that the client answers with its next call.
#[derive(Debug, Clone)]
struct PendingApproval {
    /// Hash of the project, tool and parameters.
    call_hash: Hash,
    call: GatedCall,
}

/// Answer to an approval request.
pub(super) enum ApprovalAnswer {
    Approved(ApprovedCall),
    Denied,
}

/// An approved call, whose result has to be recorded.
pub(super) struct ApprovedCall {
    /// The call is approved for the chain with this hash.
    pub(super) chain: Hash,
    /// Id of the record.
    record: String,
}

impl ApprovalAnswer {
    /// The approved call; an error with this message if the user denied it.
    pub(super) fn into_approved(self, denied_message: &str) -> Result<ApprovedCall, GatewayError> {
        match self {
            Self::Approved(call) => Ok(call),
            Self::Denied => Err(GatewayError::new("approval_declined", denied_message)),
        }
    }
}

/// Result of requiring an approval.
pub(super) enum RequiredApproval {
    Approved(ApprovedCall),
    /// The response that asks the client; it answers with its next call.
    InputRequired(CallToolResponse),
}

/// A request for approval.
pub(super) struct ApprovalRequest {
    pub(super) call: GatedCall,
    /// Title of the checkbox in the form.
    pub(super) checkbox: &'static str,
    /// What needs the approval, for messages.
    pub(super) subject: String,
    /// Message if the user denies the request.
    pub(super) denied_message: &'static str,
}

/// Result of requesting an approval.
pub(super) enum ApprovalStep {
    Answered(ApprovalAnswer),
    /// The response that asks the client; it answers with its next call.
    InputRequired(CallToolResponse),
}

impl Server {
    /// The answer that a call carries, if it answers a pending approval of this very call. Each
    /// pending approval can be answered once.
    pub(super) async fn pending_answer(
        &self,
        project: &Path,
        call: &CallToolRequestParams,
        call_hash: impl FnOnce() -> Hash,
    ) -> Result<Option<ApprovalAnswer>, GatewayError> {
        let Some((pending, answer)) = self.take_pending(call) else {
            return Ok(None);
        };
        if pending.call_hash != call_hash() {
            return Ok(None);
        }
        let Ok(answer) = serde_json::from_value::<ElicitResult>(answer) else {
            return Ok(None);
        };
        let answer = self.record_decision(project, pending.call, is_approval(&answer));
        Ok(Some(answer.await?))
    }

    /// Removes the pending approval that a call answers, and returns it with the answer.
    fn take_pending(&self, call: &CallToolRequestParams) -> Option<(PendingApproval, Value)> {
        let state = call.request_state.as_deref()?;
        let answer = call.input_responses.as_ref()?.get(APPROVAL_KEY)?;
        let approval = self.shared.pending.lock().remove(state)?;
        Some((approval, answer.clone()))
    }

    /// Records the user's decision at the client before acting on it.
    async fn record_decision(
        &self,
        project: &Path,
        call: GatedCall,
        is_approved: bool,
    ) -> Result<ApprovalAnswer, GatewayError> {
        let (project, chain) = (project.to_owned(), call.chain);
        let recorded =
            self.run_blocking(move |gateway| gateway.record_decision(&project, &call, is_approved));
        let record = recorded.await?;
        Ok(if is_approved {
            ApprovalAnswer::Approved(ApprovedCall { chain, record })
        } else {
            ApprovalAnswer::Denied
        })
    }

    /// Records the result of an approved call.
    pub(super) async fn record_result(
        &self,
        project: &Path,
        call: ApprovedCall,
        end: CallEnd,
        result: Value,
    ) {
        let project = project.to_owned();
        let recorded = self.run_blocking(move |gateway| {
            gateway.record_result(&project, &call.record, end, &result)
        });
        if let Err(error) = recorded.await {
            // The call has run: the client needs its result more than this error.
            tracing::warn!(code = error.code, "the result of a call was not recorded");
        }
    }

    /// Runs an approved call of the gateway and records its result.
    pub(super) async fn run_approved(
        &self,
        project: &Path,
        call: ApprovedCall,
        work: impl FnOnce(&dyn crate::Gateway) -> GatewayResult + Send + 'static,
    ) -> GatewayResult {
        let outcome = self.run_blocking(work).await;
        let (end, result) = match &outcome {
            Ok(reply) => (CallEnd::Completed, reply.value.clone()),
            Err(error) => (CallEnd::Failed, error.to_value()),
        };
        self.record_result(project, call, end, result).await;
        outcome
    }

    /// Obtains the approval of exactly this request. Returns a response if the client has to be
    /// asked first.
    pub(super) async fn require_approval(
        &self,
        call: &CallToolRequestParams,
        project: &Path,
        request: ApprovalRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<RequiredApproval, GatewayError> {
        let (chain, denied_message) = (request.call.chain, request.denied_message);
        let hash = || call_hash(project, &request.call.tool, &request.call.parameters);
        let answer = match self.pending_answer(project, call, hash).await? {
            Some(answer) => answer,
            None => match self.request_approval(project, request, context).await? {
                ApprovalStep::Answered(answer) => answer,
                ApprovalStep::InputRequired(response) => {
                    return Ok(RequiredApproval::InputRequired(response));
                }
            },
        };
        let approved = answer.into_approved(denied_message)?;
        if approved.chain == chain {
            return Ok(RequiredApproval::Approved(approved));
        }
        let message = "a file has changed since the approval";
        let error = GatewayError::new("approval_void", message);
        let recorded = self.record_result(project, approved, CallEnd::Failed, error.to_value());
        recorded.await;
        Err(error)
    }

    /// Requests approval for the run of a tool.
    pub(super) async fn request_run_approval(
        &self,
        project: &Path,
        executor: &Executor,
        request: &Request,
        why: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ApprovalStep, GatewayError> {
        let id = &request.tool.id;
        let title = format!("Run {id} for an MCP client?");
        let call = gated_run(executor, request, title, why)?;
        let approval = ApprovalRequest {
            call,
            checkbox: "Approve the run",
            subject: id.to_string(),
            denied_message: RUN_DENIED,
        };
        self.request_approval(project, approval, context).await
    }

    /// Requests approval through a form of the client, or at a terminal if it has no forms.
    pub(super) async fn request_approval(
        &self,
        project: &Path,
        request: ApprovalRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<ApprovalStep, GatewayError> {
        let is_terminal = self.shared.gateway.approval_channel() == ApprovalChannel::Terminal;
        if is_terminal || !supports_forms(context) {
            return self.request_terminal_approval(project, request).await;
        }
        let form = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: request.call.question.clone(),
            requested_schema: approval_schema(request.checkbox)?,
        };
        if is_stateless(context) {
            let call = request.call;
            let approval = PendingApproval {
                call_hash: call_hash(project, &call.tool, &call.parameters),
                call,
            };
            let state = self.shared.pending.lock().add(approval);
            let request = InputRequest::Elicitation(ElicitRequest::new(form));
            let requests = BTreeMap::from([(APPROVAL_KEY.to_owned(), request)]);
            let result = InputRequiredResult::new(Some(requests), Some(state));
            return Ok(ApprovalStep::InputRequired(result.into()));
        }
        let answer = tokio::select! {
            answer = context.peer.create_elicitation(form) => answer,
            () = context.ct.cancelled() => {
                return Err(GatewayError::new("cancelled", "the client cancelled the call; nothing was done"));
            }
        };
        match answer {
            Ok(answer) => {
                let answer = self.record_decision(project, request.call, is_approval(&answer));
                Ok(ApprovalStep::Answered(answer.await?))
            }
            // The client advertises forms but does not support them.
            Err(_) => self.request_terminal_approval(project, request).await,
        }
    }

    /// The user's decision at a terminal; an error that names the gate if there is none yet.
    async fn request_terminal_approval(
        &self,
        project: &Path,
        request: ApprovalRequest,
    ) -> Result<ApprovalStep, GatewayError> {
        let ApprovalRequest { call, subject, .. } = request;
        let (project, chain) = (project.to_owned(), call.chain);
        let decision = self.run_blocking(move |gateway| gateway.claim_decision(&project, &call));
        let (gate, short) = match decision.await? {
            CallDecision::Approved { record } => {
                let approved = ApprovedCall { chain, record };
                return Ok(ApprovalStep::Answered(ApprovalAnswer::Approved(approved)));
            }
            CallDecision::Denied => return Ok(ApprovalStep::Answered(ApprovalAnswer::Denied)),
            CallDecision::Pending { gate, short } => (gate, short),
        };
        let message =
            format!("{subject} needs approval at a terminal; the call waits at gate {short}");
        let hint = format!(
            "ask the user to run `rye gate approve {short}` in a terminal, then repeat the call"
        );
        let mut error = GatewayError::new("approval_required", message).with_hint(hint);
        *error.details = json!({ "gate": gate });
        Err(error)
    }
}

impl PendingApprovals {
    /// Adds an approval under a random request state.
    fn add(&mut self, approval: PendingApproval) -> String {
        let mut bytes = [0; 16];
        // Without randomness, no later answer matches, which is safe.
        let state = match getrandom::fill(&mut bytes) {
            Ok(()) => Hash::digest(bytes).to_string(),
            Err(_) => return String::new(),
        };
        if self.0.len() == MAX_PENDING {
            self.0.pop_front();
        }
        self.0.push_back((state.clone(), approval));
        state
    }

    fn remove(&mut self, state: &str) -> Option<PendingApproval> {
        let index = self.0.iter().position(|(other, _)| other == state)?;
        self.0.remove(index).map(|(_, approval)| approval)
    }
}

/// Hash that identifies a call by its content.
pub(super) fn call_hash(project: &Path, tool: &str, parameters: &Value) -> Hash {
    let call = json!([project, tool, parameters]);
    Hash::digest(call.to_string().as_bytes())
}

fn is_approval(answer: &ElicitResult) -> bool {
    let approve = answer
        .content
        .as_ref()
        .and_then(|content| content.get("approve"));
    answer.action == ElicitationAction::Accept && approve == Some(&Value::Bool(true))
}

fn approval_schema(checkbox: &str) -> Result<ElicitationSchema, GatewayError> {
    let schema = json!({
        "type": "object",
        "properties": {
            "approve": { "type": "boolean", "title": checkbox, "default": false },
        },
        "required": ["approve"],
    });
    serde_json::from_value(schema).map_err(|error| GatewayError::new("internal", error.to_string()))
}

/// The call that a person has to approve so that a request may run.
pub fn gated_run(
    executor: &Executor,
    request: &Request,
    title: String,
    why: Option<&str>,
) -> Result<GatedCall, GatewayError> {
    let chain = executor.chain(&request.tool).map_err(|error| {
        let refused = GatewayError::new(error.code(), error.to_string());
        match error.hint() {
            Some(hint) => refused.with_hint(hint),
            None => refused,
        }
    })?;
    let links = chain.links.iter().chain(chain.named.values());
    Ok(GatedCall {
        title,
        tool: request.tool.id.to_string(),
        parameters: request.parameters.clone(),
        chain: chain.hash,
        components: links
            .map(|link| Component {
                name: link.id().to_string(),
                hash: link.item.hash.to_hex(),
                signed_by: signed_by(&link.item),
            })
            .collect(),
        question: run_question(&chain, request, why),
    })
}

/// Key and owner of the signature of an item.
fn signed_by(item: &Item) -> Option<String> {
    let signer = item.signer.as_ref()?;
    let key = signer.key.fingerprint();
    Some(match &signer.owner {
        Some(owner) => format!("{key} {owner}"),
        None => key.to_string(),
    })
}

/// The question to the user about the run of a tool.
fn run_question(chain: &Chain, request: &Request, why: Option<&str>) -> String {
    let tool = chain.tool();
    let signer = match &tool.item.signer {
        Some(signer) => {
            let owner = signer.owner.as_deref().unwrap_or("(unnamed owner)");
            format!("{} {}", signer.key.fingerprint(), sanitize_line(owner))
        }
        None => "no one (RYE_DEV_MODE)".to_owned(),
    };
    let risk = tool.metadata.risk_level();
    let risk = risk.map_or("unknown", rye_items::metadata::Risk::as_str);
    // Sort the parameters, so that the same call always gives the same text.
    let mut parameters = request.parameters.clone();
    parameters.sort_all_objects();
    let parameters = serde_json::to_string_pretty(&parameters).unwrap_or_default();
    let why = why.map_or_else(String::new, |why| format!("reason: {why}\n"));
    format!(
        "Run {}?\n\n{why}signed by: {signer}\nrisk: {risk}\nchain: {}\nhash: {}\nparameters:\n{}",
        request.tool.id,
        chain.ids().join(" → "),
        chain.hash,
        quoted_excerpt(&parameters),
    )
}

/// Quotes the beginning of a text, each line after a bar.
pub(super) fn quoted_excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 4000;
    match text.char_indices().nth(MAX_CHARS) {
        None => quote_block(text),
        Some((at, _)) => format!(
            "{}\n… ({} bytes in total)",
            quote_block(&text[..at]),
            text.len()
        ),
    }
}
