//! The parsed graph: nodes, edges, hooks and limits, with their positions in the file.

use std::time::Duration;

use lillux::Hash;
use rye_protocol::NodeError;
use serde_json::Value;
use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::condition::Condition;
use crate::path::Scope;
use crate::permission::Permission;
use crate::template::Template;

/// A valid graph that can be run.
#[derive(Debug, Clone)]
pub struct Graph {
    /// Source text, for messages and journals.
    pub(crate) text: Vec<u8>,
    /// Hash of the source text, or of the signed content.
    pub(crate) hash: Hash,
    pub(crate) permissions: Vec<Permission>,
    pub(crate) start: usize,
    pub(crate) max_steps: u64,
    pub(crate) error_policy: ErrorPolicy,
    pub(crate) nodes: Vec<Node>,
    pub(crate) hooks: Vec<Hook>,
}

/// What happens after an error of a node without `on_error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorPolicy {
    Fail,
    Continue,
}

/// A node of a graph.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) at: usize,
    pub(crate) kind: NodeKind,
    pub(crate) assign: Vec<(String, usize, Template)>,
    pub(crate) next: Vec<Edge>,
    pub(crate) on_error: Option<usize>,
    pub(crate) retry: Retry,
    pub(crate) cache: bool,
}

/// What a node does.
#[derive(Debug, Clone, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum NodeKind {
    Action(Action),
    Foreach(Foreach),
    Gate,
    Return(Option<Template>),
    Decision(Decision),
}

/// A tool call.
#[derive(Debug, Clone)]
pub(crate) struct Action {
    pub(crate) at: usize,
    pub(crate) item: Template,
    pub(crate) params: Template,
}

/// A tool call for each item of a list.
#[derive(Debug, Clone)]
pub(crate) struct Foreach {
    pub(crate) over: Template,
    pub(crate) over_at: usize,
    pub(crate) variable: String,
    pub(crate) action: Action,
    /// Number of concurrent calls.
    pub(crate) concurrency: usize,
    pub(crate) collect: Option<(String, usize)>,
}

/// A question to a user.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) is_approval: bool,
    pub(crate) title: Template,
    pub(crate) body: Template,
    /// Ids and labels of the answers; empty for free text.
    pub(crate) actions: Vec<(String, String)>,
    pub(crate) expires_in: Option<Duration>,
}

/// An edge to another node.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub(crate) to: usize,
    pub(crate) when: Option<Condition>,
}

/// Retry policy of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Retry {
    pub(crate) max: u32,
    pub(crate) backoff: Duration,
}

impl Retry {
    /// Delay after this number of failed attempts.
    pub(crate) fn delay(self, failed: u32) -> Duration {
        const MAX_DELAY: Duration = Duration::from_mins(1);
        let doubled = self
            .backoff
            .saturating_mul(1 << failed.saturating_sub(1).min(16));
        doubled.min(MAX_DELAY)
    }
}

/// Event that triggers a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum HookEvent {
    GraphStarted,
    AfterStep,
    Error,
    Limit,
    GraphCompleted,
}

impl HookEvent {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A tool call that an event triggers.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    pub(crate) event: HookEvent,
    pub(crate) condition: Option<Condition>,
    pub(crate) action: Action,
}

/// Where an error of a node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorRoute {
    /// To the node that handles it.
    Handler(usize),
    /// To the next node, as without an error.
    Continue,
    /// The run fails.
    Fail,
}

impl Node {
    /// The first edge whose condition holds.
    pub(crate) fn edge(&self, scope: &Scope<'_>) -> Option<usize> {
        let holds = |edge: &&Edge| edge.when.as_ref().is_none_or(|when| when.holds(scope));
        self.next.iter().find(holds).map(|edge| edge.to)
    }
}

impl Graph {
    /// Where an error of a node leads.
    pub(crate) fn error_route(&self, node: &Node, error: &NodeError) -> ErrorRoute {
        match (node.on_error, self.error_policy) {
            _ if error.code == "not_permitted" => ErrorRoute::Fail,
            (Some(handler), _) => ErrorRoute::Handler(handler),
            // `on_error: continue` does not override a denied approval.
            (None, ErrorPolicy::Continue) if error.code != "denied" => ErrorRoute::Continue,
            (None, _) => ErrorRoute::Fail,
        }
    }

    /// Names of the nodes, in file order.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Index of a node by name.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }
}

/// The id of the tool that an action calls, unless it is an expression.
pub(crate) fn literal_item(action: &Action) -> Option<&str> {
    action.item.as_literal().and_then(Value::as_str)
}
