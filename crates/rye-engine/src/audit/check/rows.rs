//! Whether rows and events are as they were sealed.

use std::collections::{BTreeMap, HashMap};

use rye_protocol::{
    Call, CallState, EntryId, EventKind, Gate, GateId, GateStatus, Phase, Seal, Thread, Usage,
};

use super::{Check, FindingKind, Known};
use crate::audit::{UNVERIFIED, rows};

/// What the seals say of a session's rows: the last one that names a row counts.
type Sealed<'a> = HashMap<&'a str, &'a str>;

/// What is the matter with a row.
enum Found {
    AsSealed,
    /// No seal names it.
    New,
    /// The last seal that names it says something else.
    Other,
}

impl<'a> Check<'a> {
    /// Each row is what its last seal says. Rows that may change between two seals are listed
    /// as unsealed where they have.
    pub(super) fn rows(&mut self, known: &Known<'a>, seals: &[&'a Seal]) {
        let archive = self.archive;
        let mut sealed = Sealed::new();
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
        let is_other = *fixed.unwrap_or(&String::new()) != rows::of_fixed_session(session);
        match find(&sealed, rows::SESSION, &rows::of_session(session)) {
            Found::New => self.unsealed(rows::SESSION),
            Found::AsSealed if fixed.is_none() || !is_other => {}
            _ => self.report(
                FindingKind::Altered,
                &session.id,
                "its record is not what was sealed",
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
        for turn in &archive.suspended_turns {
            let name = format!("suspended:{}", turn.gate);
            self.row(&sealed, &name, &rows::of_suspended(turn), false);
        }
        for shown in &archive.gate_refs {
            let hash = rows::of_ref(shown);
            self.row(&sealed, &format!("ref:{hash}"), &hash, true);
        }
        for entry in &archive.entries {
            let name = format!("entry:{}", entry.id);
            if rows::is_elided(entry) || sealed.contains_key(name.as_str()) {
                self.row(&sealed, &name, &rows::of_entry(entry), true);
            }
        }
        self.missing_rows(known, &sealed);
        self.errors(&sealed);
    }

    /// A session that was imported unverified stays so, whatever is signed later.
    pub(super) fn origin(&mut self) {
        let session = &self.archive.session;
        if let Some(why) = session.metadata.get(UNVERIFIED) {
            let why = why.as_str().unwrap_or_default();
            let why = format!("it was imported though it could not be verified: {why}");
            self.report(FindingKind::Signature, &session.id, why);
        }
    }

    fn row(&mut self, sealed: &Sealed<'_>, name: &str, hash: &str, is_final: bool) {
        match find(sealed, name, hash) {
            Found::AsSealed => {}
            Found::Other if is_final => {
                let place = name.split_once(':').map_or(name, |it| it.1).to_owned();
                if !self.has_finding_at(&place) {
                    self.report(
                        FindingKind::Altered,
                        &place,
                        "its record is not what was sealed",
                    );
                }
            }
            Found::New | Found::Other => self.unsealed(name),
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

    /// Nothing that was sealed is gone.
    fn missing_rows(&mut self, known: &Known<'a>, sealed: &Sealed<'_>) {
        let there = rows::of_archive(self.archive);
        for name in sealed.keys() {
            let Some((kind, id)) = name.split_once(':') else {
                continue;
            };
            let is_there = match kind {
                // A turn that waits no more leaves nothing behind.
                "suspended" => there.contains_key(*name) || !self.waits_at(id),
                "entry" => id.parse().is_ok_and(|id: EntryId| known.contains_key(&id)),
                _ => there.contains_key(*name),
            };
            if !is_there && !self.has_finding_at(id) {
                let why = format!("{kind} was sealed and is not there");
                self.report(FindingKind::Missing, &id, why);
            }
        }
    }

    /// Whether a call waits at a gate.
    fn waits_at(&self, gate: &str) -> bool {
        let turns = self
            .archive
            .threads
            .iter()
            .filter_map(|it| it.turn.as_ref());
        let mut calls = turns.flat_map(|turn| match &turn.phase {
            Phase::Tools { calls, .. } => &calls[..],
            Phase::Model => &[],
        });
        let mut gates = self.archive.gates.iter();
        let is_pending = gates.any(|it| it.id.as_str() == gate && it.status.is_pending());
        let at = |call: &Call| matches!(&call.state, CallState::Blocked { gate: id } if id.as_str() == gate);
        is_pending && calls.any(at)
    }

    /// Errors of a session that broke down were written by its host.
    fn errors(&mut self, sealed: &Sealed<'_>) {
        for event in &self.archive.events {
            if let Some(hash) = rows::of_breakdown(event.thread.as_ref(), &event.kind)
                && !sealed.contains_key(format!("error:{hash}").as_str())
            {
                let number = event.sequence.unwrap_or_default();
                self.unsealed(&format!("event:{number}"));
            }
        }
    }

    /// Events tell what threads and gates say, and nothing else.
    pub(super) fn events(&mut self) {
        let archive = self.archive;
        let mut told: BTreeMap<_, String> = BTreeMap::new();
        for (event, number) in archive.events.iter().zip(1..) {
            if event.sequence != Some(number) {
                let why = format!("event {number} is not there");
                return self.report(FindingKind::Missing, &archive.session.id, why);
            }
            let threads = &archive.threads;
            let thread = event.thread.as_ref();
            let own = thread.and_then(|id| threads.iter().find(|it| it.id == *id));
            let fits = match &event.kind {
                EventKind::ThreadStart { key } => own.is_some_and(|it| it.key == *key),
                EventKind::Sealed { seal } => seal.thread.as_ref() == thread,
                _ => own.is_some() || thread.is_none(),
            };
            if event.session != archive.session.id || !fits {
                let why = format!("event {number} is another one's");
                self.report(FindingKind::Altered, &archive.session.id, why);
            }
            let Some(thread) = thread else {
                continue;
            };
            let before = told.entry(thread).or_default();
            if let Some(now) = rows::fold(before, &event.kind) {
                *before = now;
            }
        }
        for thread in &archive.threads {
            if told.get(&thread.id).map_or("", String::as_str) != thread.events_hash {
                let why = "its events are not what its host wrote";
                self.report(FindingKind::Altered, &thread.id, why);
            }
        }
        let sum = |used: Usage, thread: &Thread| used.plus(thread.usage);
        if archive.threads.iter().fold(Usage::default(), sum) != archive.session.usage {
            let why = "it used up something else than its threads";
            self.report(FindingKind::Altered, &archive.session.id, why);
        }
        self.last_told();
    }

    /// A gate stands as it was last told.
    fn last_told(&mut self) {
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
            let fits = match (last.get(&gate.id), &gate.status) {
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
                    GateStatus::Withdrawn { reason: why, .. },
                ) => reason == why,
                _ => false,
            };
            if !fits && !self.has_finding_at(gate.id.as_str()) {
                self.report(
                    FindingKind::Altered,
                    &gate.id,
                    "it does not stand as it was told",
                );
            }
        }
        let unknown = |id: &&&GateId| !archive.gates.iter().any(|it| it.id == ***id);
        let missing: Vec<_> = last.keys().filter(unknown).collect();
        for id in missing {
            if !self.has_finding_at(id.as_str()) {
                self.report(FindingKind::Missing, *id, "it was told of and is not there");
            }
        }
    }
}

fn find(sealed: &Sealed<'_>, name: &str, hash: &str) -> Found {
    match sealed.get(name) {
        None => Found::New,
        Some(found) if *found == hash => Found::AsSealed,
        Some(_) => Found::Other,
    }
}

/// Whether what ended a gate needs no seal: an answer has its receipt, and a deadline is part of
/// the question.
fn covers_itself(gate: &Gate) -> bool {
    match &gate.status {
        GateStatus::Resolved { resolution } => resolution.receipt.is_some(),
        GateStatus::Expired { at } => gate.expires_at == Some(*at),
        GateStatus::Pending | GateStatus::Withdrawn { .. } => false,
    }
}
