//! Verifies rows and events against seals.

use std::collections::{BTreeMap, HashMap};

use rye_protocol::{EntryId, EventKind, Gate, GateId, GateStatus, Seal, Thread, Usage};

use super::{EntryMap, FindingKind, Verifier};
use crate::audit::rows;

/// Row hashes from the seals; the last seal that names a row counts.
type SealedRows<'a> = HashMap<&'a str, &'a str>;

/// How a row compares with its seal.
enum RowState {
    Sealed,
    /// No seal names it.
    Unsealed,
    /// The last seal that names it has another hash.
    Different,
}

impl<'a> Verifier<'a> {
    /// Verifies each row against its last seal. Rows that may change between two seals are reported
    /// as unsealed if they have.
    pub(super) fn rows(&mut self, entries: &EntryMap<'a>, seals: &[&'a Seal]) {
        let archive = self.archive;
        let mut sealed = SealedRows::new();
        let mut fixed = None;
        for seal in seals {
            for (name, hash) in &seal.rows {
                sealed.insert(name, hash);
            }
            if let Some(hash) = seal.rows.get(rows::SESSION_FIXED) {
                fixed.get_or_insert(hash);
            }
        }
        self.verdict.sealed_at = seals.iter().map(|seal| seal.at).max();
        let session = &archive.session;
        let differs = *fixed.unwrap_or(&String::new()) != rows::of_fixed_session(session);
        match find(&sealed, rows::SESSION, &rows::of_session(session)) {
            RowState::Unsealed => self.unsealed(rows::SESSION),
            RowState::Sealed if fixed.is_none() || !differs => {}
            _ => self.report(
                FindingKind::Altered,
                &session.id,
                "the stored row does not match its seal",
            ),
        }
        for thread in &archive.threads {
            let is_quiescent = thread.turn.is_none() && thread.compaction.is_none();
            let name = format!("thread:{}", thread.id);
            self.row(&sealed, &name, &rows::of_thread(thread), is_quiescent);
        }
        for prompt in &archive.prompts {
            let name = format!("prompt:{}", prompt.id);
            self.row(
                &sealed,
                &name,
                &rows::of_prompt(prompt),
                prompt.status.is_finished(),
            );
        }
        for gate in &archive.gates {
            if !covers_itself(gate) {
                let is_over = !gate.status.is_pending();
                let name = format!("gate:{}", gate.id);
                self.row(&sealed, &name, &rows::of_gate(gate), is_over);
            }
        }
        for gate_ref in &archive.gate_refs {
            let hash = rows::of_ref(gate_ref);
            self.row(&sealed, &format!("ref:{hash}"), &hash, true);
        }
        for entry in &archive.entries {
            let name = format!("entry:{}", entry.id);
            if rows::is_elided(entry) || sealed.contains_key(name.as_str()) {
                self.row(&sealed, &name, &rows::of_entry(entry), true);
            }
        }
        self.missing_rows(entries, &sealed);
        self.fatal_errors(&sealed);
    }

    /// A session that was imported unverified stays unverified, whatever is signed later.
    pub(super) fn origin(&mut self) {
        let session = &self.archive.session;
        if let Some(reason) = &session.unverified_import {
            let reason = format!("imported although it could not be verified: {reason}");
            self.report(FindingKind::Signature, &session.id, reason);
        }
    }

    fn row(&mut self, sealed: &SealedRows<'_>, name: &str, hash: &str, is_final: bool) {
        match find(sealed, name, hash) {
            RowState::Sealed => {}
            RowState::Different if is_final => {
                let location = name.split_once(':').map_or(name, |it| it.1).to_owned();
                if !self.has_finding_at(&location) {
                    self.report(
                        FindingKind::Altered,
                        &location,
                        "the stored row does not match its seal",
                    );
                }
            }
            RowState::Unsealed | RowState::Different => self.unsealed(name),
        }
    }

    fn unsealed(&mut self, name: &str) {
        self.verdict.unsealed_rows.push(name.to_owned());
    }

    pub(super) fn has_finding_at(&self, location: &str) -> bool {
        self.verdict
            .findings
            .iter()
            .any(|it| it.location == location)
    }

    /// Verifies that no sealed row is missing.
    fn missing_rows(&mut self, entries: &EntryMap<'a>, sealed: &SealedRows<'_>) {
        let stored = rows::of_archive(self.archive);
        for name in sealed.keys() {
            let Some((kind, id)) = name.split_once(':') else {
                continue;
            };
            let exists = match kind {
                "entry" => id
                    .parse()
                    .is_ok_and(|id: EntryId| entries.contains_key(&id)),
                _ => stored.contains_key(*name),
            };
            if !exists && !self.has_finding_at(id) {
                let reason = format!("the sealed {kind} is missing");
                self.report(FindingKind::Missing, &id, reason);
            }
        }
    }

    /// Fatal errors must be sealed by the host that wrote them.
    fn fatal_errors(&mut self, sealed: &SealedRows<'_>) {
        for event in &self.archive.events {
            if let Some(hash) = rows::of_fatal_error(event.thread.as_ref(), &event.kind)
                && !sealed.contains_key(format!("error:{hash}").as_str())
            {
                let number = event.sequence.unwrap_or_default();
                self.unsealed(&format!("event:{number}"));
            }
        }
    }

    /// Verifies that events agree with threads and gates.
    pub(super) fn events(&mut self) {
        let archive = self.archive;
        let mut hashes: BTreeMap<_, String> = BTreeMap::new();
        for (event, number) in archive.events.iter().zip(1..) {
            if event.sequence != Some(number) {
                let reason = format!("event {number} is missing");
                return self.report(FindingKind::Missing, &archive.session.id, reason);
            }
            let threads = &archive.threads;
            let thread = event.thread.as_ref();
            let own = thread.and_then(|id| threads.iter().find(|it| it.id == *id));
            let matches = match &event.kind {
                EventKind::ThreadStart { key } => own.is_some_and(|it| it.key == *key),
                EventKind::Sealed { seal } => seal.thread.as_ref() == thread,
                _ => own.is_some() || thread.is_none(),
            };
            if event.session != archive.session.id || !matches {
                let reason = format!("event {number} belongs to another session or thread");
                self.report(FindingKind::Altered, &archive.session.id, reason);
            }
            let Some(thread) = thread else {
                continue;
            };
            let before = hashes.entry(thread).or_default();
            if let Some(now) = rows::fold(before, &event.kind) {
                *before = now;
            }
        }
        for thread in &archive.threads {
            if hashes.get(&thread.id).map_or("", String::as_str) != thread.events_hash {
                let reason = "its events do not match the stored hash";
                self.report(FindingKind::Altered, &thread.id, reason);
            }
        }
        let sum = |used: Usage, thread: &Thread| used.plus(thread.usage);
        if archive.threads.iter().fold(Usage::default(), sum) != archive.session.usage {
            let reason = "its usage is not the sum of its threads";
            self.report(FindingKind::Altered, &archive.session.id, reason);
        }
        self.gate_events();
    }

    /// Verifies each gate against its last event.
    fn gate_events(&mut self) {
        let archive = self.archive;
        let mut last: HashMap<&GateId, (&EventKind, bool)> = HashMap::new();
        for event in &archive.events {
            let id = match &event.kind {
                EventKind::DecisionGate { gate } => &gate.id,
                EventKind::DecisionGateResolved { gate, .. }
                | EventKind::DecisionGateExpired { gate }
                | EventKind::DecisionGateWithdrawn { gate, .. } => gate,
                _ => continue,
            };
            let gate = archive.gates.iter().find(|it| it.id == *id);
            let is_own = gate.is_some_and(|it| Some(&it.origin.thread) == event.thread.as_ref());
            last.insert(id, (&event.kind, is_own));
        }
        for gate in &archive.gates {
            let matches = match (last.get(&gate.id), &gate.status) {
                (Some((_, false)), _) => false,
                (Some((EventKind::DecisionGate { .. }, _)), GateStatus::Pending)
                | (
                    Some((EventKind::DecisionGateResolved { .. }, _)),
                    GateStatus::Resolved { .. },
                )
                | (Some((EventKind::DecisionGateExpired { .. }, _)), GateStatus::Expired { .. }) => {
                    true
                }
                (
                    Some((EventKind::DecisionGateWithdrawn { reason, .. }, _)),
                    GateStatus::Withdrawn { reason: stored, .. },
                ) => reason == stored,
                _ => false,
            };
            if !matches && !self.has_finding_at(gate.id.as_str()) {
                self.report(
                    FindingKind::Altered,
                    &gate.id,
                    "its status does not match its last event",
                );
            }
        }
        let unknown = |id: &&&GateId| !archive.gates.iter().any(|it| it.id == ***id);
        let missing: Vec<_> = last.keys().filter(unknown).collect();
        for id in missing {
            if !self.has_finding_at(id.as_str()) {
                self.report(
                    FindingKind::Missing,
                    *id,
                    "an event names it, but it is missing",
                );
            }
        }
    }
}

fn find(sealed: &SealedRows<'_>, name: &str, hash: &str) -> RowState {
    match sealed.get(name) {
        None => RowState::Unsealed,
        Some(found) if *found == hash => RowState::Sealed,
        Some(_) => RowState::Different,
    }
}

/// Whether a closed gate needs no seal: an answer has its receipt, and a deadline is part of the
/// question.
fn covers_itself(gate: &Gate) -> bool {
    match &gate.status {
        GateStatus::Resolved { resolution } => resolution.receipt.is_some(),
        GateStatus::Expired { at } => gate.expires_at == Some(*at),
        GateStatus::Pending | GateStatus::Withdrawn { .. } => false,
    }
}
