//! A record, looked at line by line.

use std::collections::{BTreeMap, BTreeSet};

use lillux::Hash;
use lillux::cas::Cas;
use lillux::keys::{PublicKey, Signature};
use rye_protocol::{Gate, GateId, GateStatus, Resolution};
use serde_json::{Map, Value};

use super::{Finding, FindingKind, VerifyReport};
use crate::event::{Event, NodeOutcome};
use crate::model::{Graph, Kind};
use crate::record::replay::EMPTY;
use crate::record::{JOURNAL, TrustPolicy, Written, line_hash};

/// What is known after so many lines.
pub(super) struct Check<'c> {
    run: &'c str,
    trust: &'c dyn TrustPolicy,
    store: Option<Cas>,
    verdict: VerifyReport,
    /// As many bytes as there are lines.
    length: usize,
    hash: String,
    seq: u64,
    state: Map<String, Value>,
    graph: Option<Graph>,
    /// Keys that were asked for.
    keys: BTreeMap<String, Option<PublicKey>>,
    gates: BTreeMap<GateId, Box<Gate>>,
    /// What people decided with a receipt that holds, by the step.
    decided: BTreeMap<String, String>,
    snapshots: BTreeSet<String>,
    /// Lines since the last signature that a walker signs whenever it writes them.
    never_open: Vec<usize>,
}

impl<'c> Check<'c> {
    pub(super) fn new(run: &'c str, trust: &'c dyn TrustPolicy, store: Option<Cas>) -> Self {
        Self {
            run,
            trust,
            store,
            verdict: VerifyReport::default(),
            length: 0,
            hash: String::new(),
            seq: 0,
            state: Map::new(),
            graph: None,
            keys: BTreeMap::new(),
            gates: BTreeMap::new(),
            decided: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            never_open: Vec::new(),
        }
    }

    fn fault(&mut self, kind: FindingKind, why: impl Into<String>) {
        self.verdict.findings.push(Finding {
            line: self.verdict.lines,
            kind,
            message: why.into(),
        });
    }

    fn altered(&mut self, why: impl Into<String>) {
        self.fault(FindingKind::Altered, why);
    }

    /// Looks at the next line.
    pub(super) fn line(&mut self, text: &[u8]) {
        self.verdict.lines += 1;
        self.verdict.open += 1;
        self.length += text.len();
        let Ok(written) = serde_json::from_slice::<Written<'_>>(text) else {
            return self.altered("it is no line of a record");
        };
        self.seq += 1;
        if written.seq != self.seq {
            let number = written.seq;
            self.altered(format!(
                "lines are missing before it, or it was moved: it is number {number}"
            ));
            self.seq = number;
        }
        let hash = line_hash(&self.hash, written.seq, written.at, written.event.get());
        if hash.to_hex() != written.hash {
            self.altered("it is not what its hash says");
        }
        self.hash.clone_from(&written.hash);
        match serde_json::from_str::<Event>(written.event.get()) {
            Ok(event) => self.event(event),
            Err(_) => self.altered("nobody can tell what it says"),
        }
        if let (Some(name), Some(signature)) = (&written.key, &written.signature) {
            self.signature(&hash, name, signature);
            let line = self.verdict.lines;
            self.never_open.retain(|it| *it != line);
        }
    }

    fn signature(&mut self, hash: &Hash, name: &str, signature: &str) {
        let key = match self.keys.get(name) {
            Some(known) => known.clone(),
            None => self.trust.key(name),
        };
        self.keys.insert(name.to_owned(), key.clone());
        match (key, signature.parse::<Signature>()) {
            (None, _) => self.fault(
                FindingKind::UnknownKey,
                format!("it is signed by {name}, which is not trusted"),
            ),
            (Some(public), Ok(signature))
                if public.verify_for(JOURNAL, hash, &signature).is_ok() =>
            {
                self.verdict.signed += 1;
                self.verdict.open = 0;
                self.verdict.length = self.length;
                self.verdict.keys.insert(name.to_owned());
                self.never_open.clear();
            }
            _ => self.altered("its signature is wrong"),
        }
    }

    fn event(&mut self, event: Event) {
        let is_first = self.verdict.lines == 1;
        if is_first != matches!(event, Event::Started(_)) {
            self.altered(if is_first {
                "the record has no beginning"
            } else {
                "a run begins once"
            });
        }
        if let Event::Begin { .. }
        | Event::Gate { .. }
        | Event::Retry { .. }
        | Event::HookBegin { .. }
        | Event::HookEnd { .. }
        | Event::End { .. } = event
        {
            self.never_open.push(self.verdict.lines);
        }
        match event {
            Event::Started(started) => {
                if started.run != self.run {
                    let run = &started.run;
                    self.altered(format!("it is the record of another run, {run}"));
                }
                self.graph = read(&started.text);
                self.state = started.state;
            }
            Event::Resumed { state, changed, .. } => {
                self.state.extend(state);
                if let Some(changed) = changed {
                    self.graph = read(&changed.text);
                }
            }
            Event::Step {
                step,
                node,
                outcome,
                set,
                ..
            } => {
                self.state.extend(set);
                self.step(step, &node, outcome);
            }
            Event::Snapshot { hash } => {
                match is_snapshot(self.store.as_ref(), &hash, &self.state) {
                    Ok(()) => self.verdict.snapshots += 1,
                    Err(why) => self.altered(why),
                }
                self.snapshots.insert(hash);
            }
            Event::Gate { gate } => {
                self.gates.insert(gate.id.clone(), gate);
            }
            Event::Answered {
                gate,
                status: GateStatus::Resolved { resolution },
            } => self.decision(&gate, resolution),
            _ => {}
        }
    }

    /// A person has decided: so they have signed.
    fn decision(&mut self, gate: &GateId, resolution: Resolution) {
        let Some(gate) = self.gates.get(gate) else {
            return self.altered("it answers what nobody asked");
        };
        match self.trust.receipt(gate, &resolution) {
            Ok(true) => {
                self.verdict.receipts += 1;
                let step = gate.origin.prompt.to_string();
                self.decided.insert(step, resolution.action);
            }
            Ok(false) => self.altered("nobody has signed this decision"),
            Err(why) => self.altered(why),
        }
    }

    /// A decision is done only when somebody has made it.
    fn step(&mut self, step: u64, node: &str, outcome: NodeOutcome) {
        let graph = self.graph.as_ref();
        let known = graph.and_then(|it| Some(&it.nodes[it.index(node)?].kind));
        let Some(Kind::Decision(decision)) = known else {
            return;
        };
        let said = self.decided.get(&format!("step-{step}"));
        let is_made = said.is_some_and(|said| !(decision.is_approval && said == "deny"));
        if outcome == NodeOutcome::Done && !is_made {
            self.altered(format!(
                "the decision `{node}` is done, and nobody has signed that it was made"
            ));
        }
    }

    /// What is to be said of the whole. `named` is the newest snapshot, as the file beside the
    /// record says.
    pub(super) fn end(mut self, named: &str) -> VerifyReport {
        let whole = |kind, why: &str| Finding {
            line: 0,
            kind,
            message: why.to_owned(),
        };
        if self.verdict.lines == 0 {
            self.verdict
                .findings
                .push(whole(FindingKind::Altered, EMPTY));
        }
        let is_known = self.snapshots.contains(named);
        if !named.is_empty() && !is_known {
            let why = "`snapshot` names a state that the lines do not tell of: it was altered, or they were cut";
            self.verdict.findings.push(whole(FindingKind::Altered, why));
        }
        if self.keys.is_empty() && self.verdict.lines > 0 {
            let why = "nobody signed it, so whether it is as it was cannot be told";
            self.verdict
                .findings
                .push(whole(FindingKind::Unsigned, why));
        } else if self.verdict.signed > 0 {
            for line in std::mem::take(&mut self.never_open) {
                self.verdict.findings.push(Finding {
                    line,
                    kind: FindingKind::Altered,
                    message: "it was added: nobody signed it, and no walker leaves it unsigned"
                        .to_owned(),
                });
            }
        }
        self.verdict
    }
}

fn read(text: &str) -> Option<Graph> {
    Graph::parse(text.as_bytes()).ok()?.graph
}

fn is_snapshot(store: Option<&Cas>, hash: &str, state: &Map<String, Value>) -> Result<(), String> {
    let gone = || format!("the snapshot {hash} is not in the content store");
    let parsed = hash.parse().map_err(|_| gone())?;
    let bytes = store.ok_or_else(gone)?.get(&parsed);
    let bytes = bytes.map_err(|error| format!("the snapshot {hash}: {error}"))?;
    let kept: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|_| gone())?;
    if kept == *state {
        Ok(())
    } else {
        Err(format!(
            "the snapshot {hash} is not the state that the lines tell"
        ))
    }
}
