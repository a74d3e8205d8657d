//! A graph, read: nodes, edges, hooks, limits, each with its place in the file.

use std::time::Duration;

use lillux::Hash;
use serde_json::Value;

use crate::condition::Condition;
use crate::permission::Permission;
use crate::template::Template;

/// A graph that can be walked.
#[derive(Debug, Clone)]
pub struct Graph {
    /// Its text, for messages.
    pub(crate) text: Vec<u8>,
    /// The hash of its text.
    pub(crate) hash: Hash,
    pub(crate) description: Option<String>,
    pub(crate) permissions: Vec<Permission>,
    pub(crate) start: usize,
    pub(crate) max_steps: u64,
    pub(crate) policy: Policy,
    pub(crate) nodes: Vec<Node>,
    pub(crate) hooks: Vec<Hook>,
}

/// What an error does that no node sees to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Fail,
    Continue,
}

/// A place in the program.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) at: usize,
    pub(crate) kind: Kind,
    pub(crate) assign: Vec<(String, usize, Template)>,
    pub(crate) next: Vec<Edge>,
    pub(crate) on_error: Option<usize>,
    pub(crate) retry: Retry,
    pub(crate) cache: bool,
}

/// What happens at a node.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Action(Action),
    Foreach(Foreach),
    Gate,
    Return(Option<Template>),
    Decision(Decision),
}

impl Kind {
    /// Its name in files.
    pub(crate) fn as_str(&self) -> &'static str {
        match self {
            Self::Action(_) => "action",
            Self::Foreach(_) => "foreach",
            Self::Gate => "gate",
            Self::Return(_) => "return",
            Self::Decision(_) => "decision",
        }
    }
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(crate) struct Action {
    pub(crate) at: usize,
    pub(crate) item: Template,
    pub(crate) params: Template,
}

/// The same call for each of a list.
#[derive(Debug, Clone)]
pub(crate) struct Foreach {
    pub(crate) over: Template,
    pub(crate) over_at: usize,
    pub(crate) variable: String,
    pub(crate) action: Action,
    /// How many at a time.
    pub(crate) at_once: usize,
    pub(crate) collect: Option<(String, usize)>,
}

/// A question to a person.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub(crate) is_approval: bool,
    pub(crate) title: Template,
    pub(crate) body: Template,
    /// Ids and labels; none is free text.
    pub(crate) actions: Vec<(String, String)>,
    pub(crate) expires_in: Option<Duration>,
}

/// A way on.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub(crate) to: usize,
    pub(crate) when: Option<Condition>,
}

/// How often a call is tried again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Retry {
    pub(crate) max: u32,
    pub(crate) backoff: Duration,
}

impl Retry {
    /// How long to wait before an attempt, the second being the first that waits.
    pub(crate) fn pause(self, failed: u32) -> Duration {
        const LONGEST: Duration = Duration::from_mins(1);
        let doubled = self
            .backoff
            .saturating_mul(1 << failed.saturating_sub(1).min(16));
        doubled.min(LONGEST)
    }
}

/// When a hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    GraphStarted,
    AfterStep,
    Error,
    Limit,
    GraphCompleted,
}

impl Moment {
    pub(crate) const ALL: [(&str, Self); 5] = [
        ("graph_started", Self::GraphStarted),
        ("after_step", Self::AfterStep),
        ("error", Self::Error),
        ("limit", Self::Limit),
        ("graph_completed", Self::GraphCompleted),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, moment)| *moment == self);
        found.map_or("", |(name, _)| name)
    }
}

/// An action beside the program.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    pub(crate) moment: Moment,
    pub(crate) condition: Option<Condition>,
    pub(crate) action: Action,
}

impl Graph {
    /// The hash of its text.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// What it says it is for.
    pub fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// The text it was read from.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The names of its nodes, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }
}

/// The id of the tool that an action calls, where it is known beforehand.
pub(crate) fn fixed_item(action: &Action) -> Option<&str> {
    action.item.as_plain().and_then(Value::as_str)
}
