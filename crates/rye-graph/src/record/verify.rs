//! Whether a record is as it was signed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use lillux::At as _;
use lillux::cas::Cas;
use lillux::keys::{PublicKey, Signature};
use rye_protocol::{Gate, GateStatus, Resolution};
use serde_json::{Map, Value};

use super::runs::{Found, Runs};
use super::{RecordError, Written, line_hash};
use crate::event::Event;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How many lines there are.
    pub lines: usize,
    /// How many of them are signed; each stands for all before it.
    pub signed: usize,
    /// How many at the end no signature stands for: those of a step under way.
    pub open: usize,
    /// How many snapshots were compared with what the lines tell.
    pub snapshots: usize,
    /// How many decisions there are with a person's signature.
    pub receipts: usize,
    /// The fingerprints of the keys that signed.
    pub keys: BTreeSet<String>,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// In words.
    pub why: String,
}

impl Found {
    /// Checks the record: every line follows the one before it, what is signed is signed by
    /// a key that is trusted, snapshots hold what the lines tell. `key` gives the public key
    /// of a fingerprint, if it is trusted; `receipt` tells what is wrong with a decision.
    pub fn verify(
        &self,
        runs: &Runs,
        key: impl Fn(&str) -> Option<PublicKey>,
        receipt: impl Fn(&Gate, &Resolution) -> Result<bool, String>,
    ) -> Result<Verdict, RecordError> {
        let path = self.events();
        let bytes = fs::read(&path).at("read", &path)?;
        let mut verdict = Verdict::default();
        let mut state = Map::new();
        let mut gates = BTreeMap::new();
        let (mut before, mut seq) = (String::new(), 0);
        let store = Cas::open_existing(runs.store()).ok();
        for text in bytes
            .split(|byte| *byte == b'\n')
            .filter(|it| !it.is_empty())
        {
            verdict.lines += 1;
            verdict.open += 1;
            let line = verdict.lines;
            let mut fault = |why: String| verdict.faults.push(Fault { line, why });
            let Ok(written) = serde_json::from_slice::<Written<'_>>(text) else {
                fault("it is no line of a record".to_owned());
                continue;
            };
            seq += 1;
            if written.seq != seq {
                fault(format!(
                    "lines are missing before it, or it was moved: it is number {}",
                    written.seq
                ));
                seq = written.seq;
            }
            let hash = line_hash(&before, written.seq, written.at, written.event.get());
            if hash.to_hex() != written.hash {
                fault("it is not what its hash says".to_owned());
            }
            before = written.hash;
            if let (Some(name), Some(signature)) = (&written.key, &written.signature) {
                let parsed = signature.parse::<Signature>();
                match (key(name), parsed) {
                    (None, _) => fault(format!("it is signed by {name}, which is not trusted")),
                    (Some(public), Ok(signature)) if public.verify(&hash, &signature).is_ok() => {
                        verdict.signed += 1;
                        verdict.open = 0;
                        verdict.keys.insert(name.clone());
                    }
                    _ => fault("its signature is wrong".to_owned()),
                }
            }
            let Ok(event) = serde_json::from_str::<Event>(written.event.get()) else {
                fault("nobody can tell what it says".to_owned());
                continue;
            };
            match event {
                Event::Started(started) => state = started.state,
                Event::Resumed { state: over, .. } => state.extend(over),
                Event::Step { set, .. } => state.extend(set),
                Event::Snapshot { hash } => match is_snapshot(store.as_ref(), &hash, &state) {
                    Ok(()) => verdict.snapshots += 1,
                    Err(why) => fault(why),
                },
                Event::Gate { gate } => {
                    gates.insert(gate.id.clone(), gate);
                }
                Event::Answered {
                    gate,
                    status: GateStatus::Resolved { resolution },
                } => {
                    if let Some(gate) = gates.get(&gate) {
                        match receipt(gate, &resolution) {
                            Ok(true) => verdict.receipts += 1,
                            Ok(false) => {}
                            Err(why) => fault(why),
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(verdict)
    }
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
