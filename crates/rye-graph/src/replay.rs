//! Replays a recorded run: walks through the graph again with the recorded results of its nodes,
//! and compares the state and the next node after each step with the recorded ones.

use std::collections::BTreeMap;

use rye_protocol::{Entry, EntryKind, NodeError, RunEvent};
use serde_json::{Map, Value, json};

use crate::definition::{ErrorRoute, Graph, Node, NodeKind};
use crate::path::{Path, Root, Scope};
use crate::template::Template;
use crate::walk::LAST_ERROR;

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GraphReplay {
    /// Number of compared steps.
    pub steps: usize,
    /// Number of steps whose recorded state was used, because their result was too long to record
    /// or depends on the time.
    pub not_computed: usize,
    /// Differences from the record.
    pub differences: Vec<StepDifference>,
}

/// A difference between a recorded step and its replay.
#[derive(Debug, Clone, PartialEq)]
pub struct StepDifference {
    /// Number of the step.
    pub step: u64,
    /// The node.
    pub node: String,
    /// What differs: a key of the state, the output, or the next node.
    pub subject: String,
    /// The recorded value.
    pub recorded: Value,
    /// The computed value.
    pub computed: Value,
}

/// Replays the run that these entries record; `None` if the graph has not started or its text
/// cannot be parsed.
pub fn replay(entries: &[Entry]) -> Option<GraphReplay> {
    let mut rewalk: Option<Rewalk> = None;
    for entry in entries {
        let EntryKind::Run { events } = &entry.kind else {
            continue;
        };
        for event in events {
            match (&mut rewalk, event) {
                (None, RunEvent::Started(started)) => {
                    rewalk = Some(Rewalk {
                        graph: parse(&started.text)?,
                        state: started.state.clone(),
                        inputs: started.inputs.clone(),
                        expected: Expected::Node(Some(started.start.clone())),
                        items: BTreeMap::new(),
                        replay: GraphReplay::default(),
                    });
                }
                (Some(rewalk), event) => rewalk.apply(event)?,
                (None, _) => {}
            }
        }
    }
    Some(rewalk?.replay)
}

fn parse(text: &str) -> Option<Graph> {
    Graph::parse(text.as_bytes()).ok()?.graph
}

/// The node of the next step.
enum Expected {
    /// This node, or none because the run has ended.
    Node(Option<String>),
    /// After an error that no node handles, the user chooses.
    Any,
}

/// A run that is walked again.
struct Rewalk {
    graph: Graph,
    state: Map<String, Value>,
    inputs: Value,
    expected: Expected,
    /// Results of the items of the current foreach.
    items: BTreeMap<usize, Value>,
    replay: GraphReplay,
}

/// A recorded step.
struct Recorded<'a> {
    step: u64,
    node: &'a str,
    set: &'a Map<String, Value>,
    error: Option<&'a NodeError>,
    output: Option<&'a Value>,
    result: Option<&'a Value>,
    next: Option<&'a str>,
    fatal: bool,
}

impl Rewalk {
    /// Applies an event; `None` if a changed graph cannot be parsed.
    fn apply(&mut self, event: &RunEvent) -> Option<()> {
        match event {
            RunEvent::Resumed {
                changed,
                node,
                state,
            } => {
                if let Some(changed) = changed {
                    self.graph = parse(&changed.text)?;
                }
                if node.is_some() {
                    self.expected = Expected::Node(node.clone());
                }
                self.state.extend(state.clone());
            }
            RunEvent::Begin { .. } => self.items.clear(),
            RunEvent::ItemEnd {
                index,
                result,
                error,
                ..
            } => {
                let failed =
                    |error: &NodeError| json!({ "error": error.message, "code": error.code });
                let value = error.as_ref().map_or_else(|| result.clone(), failed);
                self.items.insert(*index, value);
            }
            RunEvent::Step {
                step,
                node,
                set,
                error,
                output,
                result,
                is_result_omitted,
                next,
                fatal,
                ..
            } => self.compare(&Recorded {
                step: *step,
                node,
                set,
                error: error.as_ref(),
                output: output.as_ref(),
                result: Some(result).filter(|_| !is_result_omitted),
                next: next.as_deref(),
                fatal: *fatal,
            }),
            _ => {}
        }
        Some(())
    }

    fn compare(&mut self, recorded: &Recorded<'_>) {
        self.replay.steps += 1;
        if let Expected::Node(expected) = &self.expected
            && expected.as_deref() != Some(recorded.node)
        {
            let expected = json!(expected);
            self.differs(recorded, "node", json!(recorded.node), expected);
        }
        self.expected = if recorded.fatal {
            Expected::Any
        } else {
            Expected::Node(recorded.next.map(str::to_owned))
        };
        let items = std::mem::take(&mut self.items);
        let Some(index) = self.graph.index(recorded.node) else {
            self.state.extend(recorded.set.clone());
            return self.differs(recorded, "node", json!(recorded.node), Value::Null);
        };
        let node = self.graph.nodes[index].clone();
        let items = Value::Array(items.into_values().collect());
        let result = match &node.kind {
            NodeKind::Gate | NodeKind::Return(_) => Some(Value::Null),
            NodeKind::Foreach(_) => Some(items.clone()),
            NodeKind::Action(_) | NodeKind::Decision(_) => recorded.result.cloned(),
        };
        let mut set = self.computed_set(&node, recorded, result.as_ref());
        if let NodeKind::Foreach(foreach) = &node.kind
            && let Some((name, _)) = &foreach.collect
            && recorded.set.contains_key(name)
        {
            set.insert(name.clone(), items);
        }
        for name in recorded.set.keys().chain(set.keys()) {
            let [was, is] = [recorded.set.get(name), set.get(name)];
            if was != is && !self.is_reported(recorded.step, name) {
                let value = |value: Option<&Value>| value.cloned().unwrap_or_default();
                let subject = format!("state.{name}");
                self.differs(recorded, &subject, value(was), value(is));
            }
        }
        self.compare_output(&node, recorded);
        self.state.extend(recorded.set.clone());
        self.compare_route(&node, recorded, result.as_ref());
    }

    fn is_reported(&self, step: u64, name: &str) -> bool {
        let subject = format!("state.{name}");
        let mut differences = self.replay.differences.iter();
        differences.any(|it| it.step == step && it.subject == subject)
    }

    /// The state values that the node sets. Values that cannot be computed are the recorded ones.
    fn computed_set(
        &mut self,
        node: &Node,
        recorded: &Recorded<'_>,
        result: Option<&Value>,
    ) -> Map<String, Value> {
        if let Some(error) = recorded.error {
            let last = json!({ "node": node.name, "error": error.message, "code": error.code });
            return Map::from_iter([(LAST_ERROR.to_owned(), last)]);
        }
        let Some(result) = result else {
            self.replay.not_computed += usize::from(!node.assign.is_empty());
            return recorded.set.clone();
        };
        let scope = Scope::new(&self.state, &self.inputs).with_result(result);
        let mut uses_time = false;
        let set = node.assign.iter().map(|(name, _, template)| {
            let value = if reads_clock(template) {
                uses_time = true;
                recorded.set.get(name).cloned().unwrap_or_default()
            } else {
                template.render(&scope)
            };
            (name.clone(), value)
        });
        let set = set.collect();
        self.replay.not_computed += usize::from(uses_time);
        set
    }

    fn compare_output(&mut self, node: &Node, recorded: &Recorded<'_>) {
        let NodeKind::Return(template) = &node.kind else {
            return;
        };
        if recorded.error.is_some() || template.as_ref().is_some_and(reads_clock) {
            return;
        }
        let computed = if let Some(template) = template {
            template.render(&Scope::new(&self.state, &self.inputs))
        } else {
            let mut state = self.state.clone();
            state.retain(|name, _| !name.starts_with('_'));
            Value::Object(state)
        };
        let recorded_output = recorded.output.cloned().unwrap_or_default();
        if computed != recorded_output {
            self.differs(recorded, "output", recorded_output, computed);
        }
    }

    fn compare_route(&mut self, node: &Node, recorded: &Recorded<'_>, result: Option<&Value>) {
        let route = recorded
            .error
            .map(|error| self.graph.error_route(node, error));
        let scope = Scope::new(&self.state, &self.inputs);
        let computed = match (route, result) {
            (Some(ErrorRoute::Fail), _) => Err(()),
            (Some(ErrorRoute::Handler(handler)), _) => Ok(Some(handler)),
            (Some(ErrorRoute::Continue), _) => Ok(node.edge(&scope.with_result(&Value::Null))),
            (None, Some(result)) => Ok(node.edge(&scope.with_result(result))),
            // Without the result, the next node cannot be computed.
            (None, None) => return,
        };
        if node.next.iter().any(|edge| {
            let mut paths = Vec::new();
            if let Some(when) = &edge.when {
                when.paths(&mut paths);
            }
            paths.iter().any(|(_, path)| is_clock(path))
        }) {
            return;
        }
        let name = |index: Option<usize>| index.map(|index| self.graph.nodes[index].name.clone());
        let computed = match computed {
            Ok(next) => json!(name(next)),
            Err(()) => json!("(the run fails)"),
        };
        let was = if recorded.fatal {
            json!("(the run fails)")
        } else {
            json!(recorded.next)
        };
        if computed != was {
            self.differs(recorded, "next node", was, computed);
        }
    }

    fn differs(&mut self, step: &Recorded<'_>, subject: &str, recorded: Value, computed: Value) {
        self.replay.differences.push(StepDifference {
            step: step.step,
            node: step.node.to_owned(),
            subject: subject.to_owned(),
            recorded,
            computed,
        });
    }
}

fn is_clock(path: &Path) -> bool {
    matches!(path.root, Root::Now | Root::Timestamp)
}

/// Whether the value of a template depends on the time.
fn reads_clock(template: &Template) -> bool {
    let mut paths = Vec::new();
    template.paths(&mut paths);
    paths.iter().any(|(_, path)| is_clock(path))
}
