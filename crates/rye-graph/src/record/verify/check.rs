//! Line-by-line verification of a journal.

use std::collections::{BTreeMap, BTreeSet};

use lillux::Hash;
use lillux::cas::Cas;
use lillux::keys::{PublicKey, Signature};
use rye_protocol::{Gate, GateId, GateStatus, Resolution};
use serde_json::{Map, Value};

use super::{Finding, FindingKind, VerifyReport};
use crate::definition::{Graph, NodeKind};
use crate::event::{Event, NodeOutcome};
use crate::record::replay::EMPTY;
use crate::record::{JOURNAL, StoredLine, TrustPolicy, line_hash};

/// State of the verification.
pub(super) struct Verifier<'c> {
    run: &'c str,
    trust: &'c dyn TrustPolicy,
    store: Option<Cas>,
    report: VerifyReport,
    /// Length of the lines so far, in bytes.
    length: usize,
    hash: String,
    seq: u64,
    state: Map<String, Value>,
    graph: Option<Graph>,
    /// Keys that were looked up.
    keys: BTreeMap<String, Option<PublicKey>>,
    gates: BTreeMap<GateId, Box<Gate>>,
    /// Actions of decisions with valid receipts, by step.
    decisions: BTreeMap<String, String>,
    snapshots: BTreeSet<String>,
    /// Unsigned lines of kinds that are always signed when they are stored.
    unexpectedly_unsigned: Vec<usize>,
}

impl<'c> Verifier<'c> {
    pub(super) fn new(run: &'c str, trust: &'c dyn TrustPolicy, store: Option<Cas>) -> Self {
        Self {
            run,
            trust,
            store,
            report: VerifyReport::default(),
            length: 0,
            hash: String::new(),
            seq: 0,
            state: Map::new(),
            graph: None,
            keys: BTreeMap::new(),
            gates: BTreeMap::new(),
            decisions: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            unexpectedly_unsigned: Vec::new(),
        }
    }

    fn add_finding(&mut self, kind: FindingKind, why: impl Into<String>) {
        self.report.findings.push(Finding {
            line: self.report.lines,
            kind,
            message: why.into(),
        });
    }

    fn altered(&mut self, why: impl Into<String>) {
        self.add_finding(FindingKind::Altered, why);
    }

    /// Verifies the next line.
    pub(super) fn line(&mut self, text: &[u8]) {
        self.report.lines += 1;
        self.report.unsigned += 1;
        self.length += text.len();
        let Ok(stored) = serde_json::from_slice::<StoredLine<'_>>(text) else {
            return self.altered("not a journal line");
        };
        self.seq += 1;
        if stored.seq != self.seq {
            let number = stored.seq;
            self.altered(format!(
                "unexpected sequence number {number}: lines are missing or were moved"
            ));
            self.seq = number;
        }
        let hash = line_hash(&self.hash, stored.seq, stored.at, stored.event.get());
        if hash.to_hex() != stored.hash {
            self.altered("its hash does not match");
        }
        self.hash.clone_from(&stored.hash);
        match serde_json::from_str::<Event>(stored.event.get()) {
            Ok(event) => self.event(event),
            Err(_) => self.altered("unknown event"),
        }
        if let (Some(name), Some(signature)) = (&stored.key, &stored.signature) {
            self.signature(&hash, name, signature);
            let line = self.report.lines;
            self.unexpectedly_unsigned.retain(|it| *it != line);
        }
    }

    fn signature(&mut self, hash: &Hash, name: &str, signature: &str) {
        let key = match self.keys.get(name) {
            Some(known) => known.clone(),
            None => self.trust.key(name),
        };
        self.keys.insert(name.to_owned(), key.clone());
        match (key, signature.parse::<Signature>()) {
            (None, _) => self.add_finding(
                FindingKind::UnknownKey,
                format!("signed with the untrusted key {name}"),
            ),
            (Some(public), Ok(signature))
                if public.verify_for(JOURNAL, hash, &signature).is_ok() =>
            {
                self.report.signed += 1;
                self.report.unsigned = 0;
                self.report.signed_length = self.length;
                self.report.keys.insert(name.to_owned());
                self.unexpectedly_unsigned.clear();
            }
            _ => self.altered("its signature is invalid"),
        }
    }

    fn event(&mut self, event: Event) {
        let is_first = self.report.lines == 1;
        if is_first != matches!(event, Event::Started(_)) {
            self.altered(if is_first {
                "the first event is missing"
            } else {
                "repeated start event"
            });
        }
        if let Event::Begin { .. }
        | Event::Gate { .. }
        | Event::Retry { .. }
        | Event::HookBegin { .. }
        | Event::HookEnd { .. }
        | Event::End { .. } = event
        {
            self.unexpectedly_unsigned.push(self.report.lines);
        }
        match event {
            Event::Started(started) => {
                if started.run != self.run {
                    let run = &started.run;
                    self.altered(format!("the record belongs to another run, {run}"));
                }
                self.graph = parse(&started.text);
                self.state = started.state;
            }
            Event::Resumed { state, changed, .. } => {
                self.state.extend(state);
                if let Some(changed) = changed {
                    self.graph = parse(&changed.text);
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
                match check_snapshot(self.store.as_ref(), &hash, &self.state) {
                    Ok(()) => self.report.snapshots += 1,
                    Err(why) => self.altered(why),
                }
                self.snapshots.insert(hash);
            }
            Event::Gate { gate } => {
                self.gates.insert(gate.id.clone(), gate);
            }
            Event::GateClosed {
                gate,
                status: GateStatus::Resolved { resolution },
            } => self.decision(&gate, resolution),
            _ => {}
        }
    }

    /// Verifies the receipt of a decision.
    fn decision(&mut self, gate: &GateId, resolution: Resolution) {
        let Some(gate) = self.gates.get(gate) else {
            return self.altered("it resolves an unknown gate");
        };
        match self.trust.receipt(gate, &resolution) {
            Ok(true) => {
                self.report.receipts += 1;
                let step = gate.origin.prompt.to_string();
                self.decisions.insert(step, resolution.action);
            }
            Ok(false) => self.altered("the decision has no receipt"),
            Err(why) => self.altered(why),
        }
    }

    /// Checks that a decision node succeeded only after a decision.
    fn step(&mut self, step: u64, node: &str, outcome: NodeOutcome) {
        let graph = self.graph.as_ref();
        let known = graph.and_then(|it| Some(&it.nodes[it.index(node)?].kind));
        let Some(NodeKind::Decision(decision)) = known else {
            return;
        };
        let action = self.decisions.get(&format!("step-{step}"));
        let is_made = action.is_some_and(|action| !(decision.is_approval && action == "deny"));
        if outcome == NodeOutcome::Done && !is_made {
            self.altered(format!(
                "the decision `{node}` succeeded without a signed decision"
            ));
        }
    }

    /// Finishes the verification. `latest_snapshot` is the content of the snapshot file.
    pub(super) fn finish(mut self, latest_snapshot: &str) -> VerifyReport {
        let whole = |kind, why: &str| Finding {
            line: 0,
            kind,
            message: why.to_owned(),
        };
        if self.report.lines == 0 {
            self.report
                .findings
                .push(whole(FindingKind::Altered, EMPTY));
        }
        let is_known = self.snapshots.contains(latest_snapshot);
        if !latest_snapshot.is_empty() && !is_known {
            let why = "the snapshot file does not match the journal: it was modified, or lines were removed";
            self.report.findings.push(whole(FindingKind::Altered, why));
        }
        if self.keys.is_empty() && self.report.lines > 0 {
            let why = "not signed, so modifications cannot be detected";
            self.report.findings.push(whole(FindingKind::Unsigned, why));
        } else if self.report.signed > 0 {
            for line in std::mem::take(&mut self.unexpectedly_unsigned) {
                self.report.findings.push(Finding {
                    line,
                    kind: FindingKind::Altered,
                    message: "unsigned, although lines of this kind are always signed".to_owned(),
                });
            }
        }
        self.report
    }
}

fn parse(text: &str) -> Option<Graph> {
    Graph::parse(text.as_bytes()).ok()?.graph
}

fn check_snapshot(
    store: Option<&Cas>,
    hash: &str,
    state: &Map<String, Value>,
) -> Result<(), String> {
    let not_found = || format!("the snapshot {hash} is not in the content store");
    let parsed = hash.parse().map_err(|_| not_found())?;
    let bytes = store.ok_or_else(not_found)?.get(&parsed);
    let bytes = bytes.map_err(|error| format!("the snapshot {hash}: {error}"))?;
    let snapshot: Map<String, Value> = serde_json::from_slice(&bytes).map_err(|_| not_found())?;
    if snapshot == *state {
        Ok(())
    } else {
        Err(format!("the snapshot {hash} does not match the journal"))
    }
}
