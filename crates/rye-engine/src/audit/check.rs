//! Verifies a session archive: the hash chain of its entries, the chain of signed seals, and the
//! receipts.

mod decisions;
mod rows;
mod signatures;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use lillux::keys::PublicKey;
use rye_protocol::{Archive, Entry, EntryId, EventKind, Millis, Seal};

use super::{SEAL, entry_hash, seal_hash};

pub use decisions::check_receipt;
use signatures::{SignedHash, par_map};

/// Result of verifying a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Number of entries.
    pub entries: usize,
    /// Number of entries of a running turn, which are not sealed yet.
    pub unsealed_entries: usize,
    /// Number of seals.
    pub seals: usize,
    /// Number of receipts.
    pub receipts: usize,
    /// Number of referenced blobs that are intact.
    pub blobs: usize,
    /// Names of rows that no seal covers in their current state, so that they cannot be verified
    /// yet.
    pub unsealed_rows: Vec<String>,
    /// Time of the last seal.
    pub sealed_at: Option<Millis>,
    /// Fingerprints of all signing keys.
    pub keys: BTreeSet<String>,
    /// Everything that does not verify.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Whether everything verifies.
    pub fn is_verified(&self) -> bool {
        self.findings.is_empty() && self.unsealed_rows.is_empty()
    }

    /// Whether nothing is signed and nothing else is wrong, so that there is nothing to compare
    /// with.
    pub fn is_unsigned(&self) -> bool {
        let mut findings = self.findings.iter();
        let only_signatures = findings.all(|finding| finding.kind == FindingKind::Signature);
        self.keys.is_empty() && !self.findings.is_empty() && only_signatures
    }
}

/// A part of a session that does not verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it fails to verify.
    pub kind: FindingKind,
    /// Id of the entry, gate, thread or session.
    pub location: String,
    /// Description for people.
    pub reason: String,
}

/// Kinds of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// The content differs from what was signed.
    Altered,
    /// A signed part is missing or not in its position.
    Missing,
    /// A duplicate or unsealed entry, or a seal of another session.
    Added,
    /// The signature is missing or invalid.
    Signature,
    /// The key is not trusted.
    UnknownKey,
}

/// Verifies a session. `key` returns the public key of a fingerprint if it is trusted.
pub fn check(archive: &Archive, key: impl Fn(&str) -> Option<PublicKey>) -> Verdict {
    let mut verifier = Verifier {
        archive,
        key: &key,
        keys: HashMap::new(),
        verdict: Verdict {
            entries: archive.entries.len(),
            ..Verdict::default()
        },
    };
    let entries = verifier.chain();
    let seals = verifier.seals();
    let sealed = verifier.sealed_entries(&entries, &seals);
    verifier.thread_ends(&entries, &seals, &sealed);
    verifier.gates();
    verifier.receipts();
    verifier.decision_events();
    verifier.events();
    verifier.origin();
    if !seals.is_empty() {
        let mut in_order = Vec::new();
        for event in &archive.events {
            if let EventKind::Sealed { seal } = &event.kind {
                in_order.push(&**seal);
            }
        }
        verifier.rows(&entries, &in_order);
    }
    verifier.verdict
}

struct Verifier<'a> {
    archive: &'a Archive,
    key: &'a dyn Fn(&str) -> Option<PublicKey>,
    keys: HashMap<String, Option<PublicKey>>,
    verdict: Verdict,
}

/// Entries by id.
type EntryMap<'a> = HashMap<&'a EntryId, &'a Entry>;

impl<'a> Verifier<'a> {
    fn report(&mut self, kind: FindingKind, location: &impl ToString, reason: impl Into<String>) {
        self.verdict.findings.push(Finding {
            kind,
            location: location.to_string(),
            reason: reason.into(),
        });
    }

    /// Verifies the hash chain of the entries.
    fn chain(&mut self) -> EntryMap<'a> {
        let mut entries = EntryMap::new();
        let mut chained = Vec::with_capacity(self.archive.entries.len());
        for entry in &self.archive.entries {
            let before = match &entry.parent {
                None => "",
                Some(parent) => {
                    if let Some(parent) = entries.get(parent) {
                        parent.hash.as_str()
                    } else {
                        let reason = format!("its parent entry {parent} is missing");
                        self.report(FindingKind::Missing, &entry.id, reason);
                        ""
                    }
                }
            };
            chained.push((entry, before));
            if entries.insert(&entry.id, entry).is_some() {
                self.report(FindingKind::Added, &entry.id, "duplicate entry");
            }
        }
        let is_altered = par_map(&chained, |(entry, before)| {
            entry_hash(entry, before) != entry.hash
        });
        for ((entry, _), is_altered) in chained.into_iter().zip(is_altered) {
            if is_altered {
                self.report(
                    FindingKind::Altered,
                    &entry.id,
                    "the content does not match its hash",
                );
            }
        }
        entries
    }

    /// Verifies all seals and returns them by hash.
    fn seals(&mut self) -> BTreeMap<String, &'a Seal> {
        let archive = self.archive;
        let seals = archive.events.iter().filter_map(|event| match &event.kind {
            EventKind::Sealed { seal } => Some(&**seal),
            _ => None,
        });
        let hashed: Vec<_> = seals.map(|seal| (seal, seal_hash(seal))).collect();
        let signed = hashed.iter().map(|(seal, hash)| SignedHash {
            purpose: SEAL,
            hash: *hash,
            key: &seal.key,
            signature: &seal.signature,
        });
        let wrong = self.signatures(&signed.collect::<Vec<_>>());
        let mut seals = BTreeMap::new();
        for ((seal, hash), wrong) in hashed.into_iter().zip(wrong) {
            let location = seal_location(seal);
            self.report_problem(wrong, &location);
            if seal.session != archive.session.id {
                self.report(
                    FindingKind::Added,
                    &location,
                    "the seal belongs to another session",
                );
            }
            for before in &seal.after {
                if !seals.contains_key(before) {
                    let reason = "the preceding seal is missing";
                    self.report(FindingKind::Missing, &location, reason);
                }
            }
            seals.insert(hash.to_hex(), seal);
        }
        self.verdict.seals = seals.len();
        seals
    }

    /// Verifies the entries that each seal covers and returns their ids.
    fn sealed_entries(
        &mut self,
        entries: &EntryMap<'a>,
        seals: &BTreeMap<String, &'a Seal>,
    ) -> HashSet<&'a EntryId> {
        let mut sealed = HashSet::new();
        for seal in seals.values() {
            let Some(id) = &seal.leaf else {
                continue;
            };
            match entries.get(id) {
                None => self.report(FindingKind::Missing, id, "the sealed entry is missing"),
                Some(leaf) if leaf.hash != seal.hash => {
                    self.report(
                        FindingKind::Altered,
                        id,
                        "the content does not match the seal",
                    );
                }
                Some(leaf) => {
                    let mut next = Some(*leaf);
                    while let Some(entry) = next.filter(|entry| sealed.insert(&entry.id)) {
                        let is_own = entry.session == seal.session;
                        if !is_own || Some(&entry.thread) != seal.thread.as_ref() {
                            self.report(
                                FindingKind::Altered,
                                &entry.id,
                                "the entry belongs to another thread",
                            );
                        }
                        next = entry
                            .parent
                            .as_ref()
                            .and_then(|id| entries.get(id))
                            .copied();
                    }
                }
            }
        }
        sealed
    }

    /// Verifies that each thread ends at its stored leaf, and that unsealed entries belong to a
    /// running turn.
    fn thread_ends(
        &mut self,
        entries: &EntryMap<'a>,
        seals: &BTreeMap<String, &'a Seal>,
        sealed: &HashSet<&'a EntryId>,
    ) {
        let mut open = HashSet::new();
        for thread in &self.archive.threads {
            if !thread.seal.is_empty() && !seals.contains_key(&thread.seal) {
                self.report(FindingKind::Missing, &thread.id, "its last seal is missing");
            }
            let leaf = thread.leaf.as_ref();
            let found = leaf.and_then(|leaf| entries.get(leaf)).copied();
            match (leaf, found) {
                (Some(_), None) => {
                    self.report(
                        FindingKind::Missing,
                        &thread.id,
                        "its last entry is missing",
                    );
                }
                (_, Some(entry)) if entry.hash != thread.leaf_hash => {
                    self.report(FindingKind::Altered, &thread.id, "its last entry differs");
                }
                _ => {}
            }
            if thread.turn.is_some() {
                let mut next = found;
                while let Some(entry) = next.filter(|entry| !sealed.contains(&entry.id)) {
                    open.insert(&entry.id);
                    next = entry
                        .parent
                        .as_ref()
                        .and_then(|id| entries.get(id))
                        .copied();
                }
            }
        }
        self.verdict.unsealed_entries = open.len();
        let all = self.archive.entries.iter();
        let unsigned: Vec<_> = all
            .filter(|it| !sealed.contains(&it.id) && !open.contains(&it.id))
            .collect();
        if seals.is_empty() {
            // Without a key nothing is signed, which is no sign of an addition.
            let session = &self.archive.session.id;
            return self.report(FindingKind::Signature, session, "the session is not signed");
        }
        for entry in unsigned {
            self.report(FindingKind::Added, &entry.id, "the entry is not sealed");
        }
    }
}

/// The location of a seal: its last entry, or the session.
fn seal_location(seal: &Seal) -> String {
    match &seal.leaf {
        Some(leaf) => leaf.to_string(),
        None => seal.session.to_string(),
    }
}
