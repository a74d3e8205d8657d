//! Whether a record is as it was signed.

mod decisions;
mod rows;
mod signatures;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use lillux::keys::PublicKey;
use rye_protocol::{Archive, Entry, EntryId, EventKind, Millis, Seal};

use super::{SEAL, entry_hash, seal_hash};

pub use decisions::check_receipt;
use signatures::{Signed, each};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// How many entries there are.
    pub entries: usize,
    /// How many of them belong to a turn that is under way, which is not signed yet.
    pub unsealed_entries: usize,
    /// How many seals there are.
    pub seals: usize,
    /// How many receipts.
    pub receipts: usize,
    /// How many blobs it refers to that are there and as they were.
    pub blobs: usize,
    /// The names of rows that were changed after the last seal that covers them, or that none
    /// does: what they say cannot be checked yet.
    pub unsealed_rows: Vec<String>,
    /// When the last seal was made.
    pub sealed_at: Option<Millis>,
    /// The fingerprints of the keys that signed.
    pub keys: BTreeSet<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Whether all of it is as it was signed.
    pub fn is_verified(&self) -> bool {
        self.findings.is_empty() && self.unsealed_rows.is_empty()
    }

    /// Whether nobody signed any of it, and nothing else is wrong: then there is nothing that
    /// it could be compared with.
    pub fn is_unsigned(&self) -> bool {
        let mut faults = self.findings.iter();
        let signature = faults.all(|fault| fault.kind == FindingKind::Signature);
        self.keys.is_empty() && !self.findings.is_empty() && signature
    }
}

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Of what kind.
    pub kind: FindingKind,
    /// Where: the id of the entry, gate or thread.
    pub location: String,
    /// In words.
    pub reason: String,
}

/// What can be wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FindingKind {
    /// It says something else than it did.
    Altered,
    /// It is not there any more, or not in its place.
    Missing,
    /// It was not there.
    Added,
    /// Somebody else signed it, or nobody.
    Signature,
    /// The key is not one that is trusted.
    UnknownKey,
}

/// Checks a record. `key` gives the public key of a fingerprint, if it is trusted.
pub fn check(archive: &Archive, key: impl Fn(&str) -> Option<PublicKey>) -> Verdict {
    let mut check = Check {
        archive,
        key: &key,
        keys: HashMap::new(),
        verdict: Verdict {
            entries: archive.entries.len(),
            ..Verdict::default()
        },
    };
    let known = check.chain();
    let seals = check.seals();
    let sealed = check.sealed(&known, &seals);
    check.ends(&known, &seals, &sealed);
    check.gates();
    check.receipts();
    check.told();
    check.events();
    check.origin();
    if !seals.is_empty() {
        let mut in_order = Vec::new();
        for event in &archive.events {
            if let EventKind::Sealed { seal } = &event.kind {
                in_order.push(&**seal);
            }
        }
        check.rows(&known, &in_order);
    }
    check.verdict
}

struct Check<'a> {
    archive: &'a Archive,
    key: &'a dyn Fn(&str) -> Option<PublicKey>,
    keys: HashMap<String, Option<PublicKey>>,
    verdict: Verdict,
}

/// Entries by their ids.
type Known<'a> = HashMap<&'a EntryId, &'a Entry>;

impl<'a> Check<'a> {
    fn report(&mut self, kind: FindingKind, location: &impl ToString, reason: impl Into<String>) {
        self.verdict.findings.push(Finding {
            kind,
            location: location.to_string(),
            reason: reason.into(),
        });
    }

    /// Each entry follows one that stands before it, and says what its hash says.
    fn chain(&mut self) -> Known<'a> {
        let mut known = Known::new();
        let mut follows = Vec::with_capacity(self.archive.entries.len());
        for entry in &self.archive.entries {
            let before = match &entry.parent {
                None => "",
                Some(parent) => {
                    if let Some(parent) = known.get(parent) {
                        parent.hash.as_str()
                    } else {
                        let why = format!("the entry before it, {parent}, is not there");
                        self.report(FindingKind::Missing, &entry.id, why);
                        ""
                    }
                }
            };
            follows.push((entry, before));
            if known.insert(&entry.id, entry).is_some() {
                self.report(FindingKind::Added, &entry.id, "it is there twice");
            }
        }
        let is_altered = each(&follows, |(entry, before)| {
            entry_hash(entry, before) != entry.hash
        });
        for ((entry, _), is_altered) in follows.into_iter().zip(is_altered) {
            if is_altered {
                self.report(
                    FindingKind::Altered,
                    &entry.id,
                    "it is not what its hash says",
                );
            }
        }
        known
    }

    /// All seals by their hashes.
    fn seals(&mut self) -> BTreeMap<String, &'a Seal> {
        let archive = self.archive;
        let seals = archive.events.iter().filter_map(|event| match &event.kind {
            EventKind::Sealed { seal } => Some(&**seal),
            _ => None,
        });
        let hashed: Vec<_> = seals.map(|seal| (seal, seal_hash(seal))).collect();
        let signed = hashed.iter().map(|(seal, hash)| Signed {
            purpose: SEAL,
            hash: *hash,
            key: &seal.key,
            signature: &seal.signature,
        });
        let wrong = self.signatures(&signed.collect::<Vec<_>>());
        let mut seals = BTreeMap::new();
        for ((seal, hash), wrong) in hashed.into_iter().zip(wrong) {
            let place = place(seal);
            self.note(wrong, &place);
            if seal.session != archive.session.id {
                self.report(FindingKind::Added, &place, "its seal is another session's");
            }
            for before in &seal.after {
                if !seals.contains_key(before) {
                    let why = "a seal that was made before this one's is not there";
                    self.report(FindingKind::Missing, &place, why);
                }
            }
            seals.insert(hash.to_hex(), seal);
        }
        self.verdict.seals = seals.len();
        seals
    }

    /// The entries that a seal stands for.
    fn sealed(
        &mut self,
        known: &Known<'a>,
        seals: &BTreeMap<String, &'a Seal>,
    ) -> HashSet<&'a EntryId> {
        let mut sealed = HashSet::new();
        for seal in seals.values() {
            let Some(id) = &seal.leaf else {
                continue;
            };
            match known.get(id) {
                None => self.report(FindingKind::Missing, id, "it was signed and is not there"),
                Some(leaf) if leaf.hash != seal.hash => {
                    self.report(FindingKind::Altered, id, "it is not what was signed");
                }
                Some(leaf) => {
                    let mut next = Some(*leaf);
                    while let Some(entry) = next.filter(|entry| sealed.insert(&entry.id)) {
                        let is_own = entry.session == seal.session;
                        if !is_own || Some(&entry.thread) != seal.thread.as_ref() {
                            self.report(FindingKind::Altered, &entry.id, "it is another thread's");
                        }
                        next = entry.parent.as_ref().and_then(|id| known.get(id)).copied();
                    }
                }
            }
        }
        sealed
    }

    /// Each thread ends where it says, and what is not signed is of its turn.
    fn ends(
        &mut self,
        known: &Known<'a>,
        seals: &BTreeMap<String, &'a Seal>,
        sealed: &HashSet<&'a EntryId>,
    ) {
        let mut open = HashSet::new();
        for thread in &self.archive.threads {
            if !thread.seal.is_empty() && !seals.contains_key(&thread.seal) {
                self.report(
                    FindingKind::Missing,
                    &thread.id,
                    "its last seal is not there",
                );
            }
            let leaf = thread.leaf.as_ref();
            let found = leaf.and_then(|leaf| known.get(leaf)).copied();
            match (leaf, found) {
                (Some(_), None) => {
                    self.report(
                        FindingKind::Missing,
                        &thread.id,
                        "its last entry is not there",
                    );
                }
                (_, Some(entry)) if entry.hash != thread.leaf_hash => {
                    self.report(
                        FindingKind::Altered,
                        &thread.id,
                        "its last entry is another one",
                    );
                }
                _ => {}
            }
            if thread.turn.is_some() {
                let mut next = found;
                while let Some(entry) = next.filter(|entry| !sealed.contains(&entry.id)) {
                    open.insert(&entry.id);
                    next = entry.parent.as_ref().and_then(|id| known.get(id)).copied();
                }
            }
        }
        self.verdict.unsealed_entries = open.len();
        let entries = self.archive.entries.iter();
        let unsigned: Vec<_> = entries
            .filter(|it| !sealed.contains(&it.id) && !open.contains(&it.id))
            .collect();
        if seals.is_empty() {
            // Without a key nothing is: that is no sign that something was added.
            let session = &self.archive.session.id;
            return self.report(
                FindingKind::Signature,
                session,
                "nobody signed anything of it",
            );
        }
        for entry in unsigned {
            self.report(FindingKind::Added, &entry.id, "nobody signed it");
        }
    }
}

/// What a seal is about: the last entry, or the session.
fn place(seal: &Seal) -> String {
    match &seal.leaf {
        Some(leaf) => leaf.to_string(),
        None => seal.session.to_string(),
    }
}
