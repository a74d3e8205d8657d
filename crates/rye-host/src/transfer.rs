//! Sessions as a file: one JSON document a line, ended by a signature under all lines before.
//!
//! A file that lost its end, or in which a single bit is another, is told from a whole one
//! before anything of it is used.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use lillux::keys::{PublicKey, Signature, SigningKey};
use lillux::{Hash, Hasher};
use rye_engine::protocol::{
    Archive, Entry, Event, Gate, GateRef, QueueItem, Session, Suspended, Thread,
};
use serde::{Deserialize, Serialize};

/// The version of the form.
const VERSION: u32 = 1;

/// Why a file is no session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line that makes no sense.
    #[error("line {line}: {why}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// Something is not as it was when it was written.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// A newer version wrote it.
    #[error("the file has the form {0} of a newer Rye; this one knows up to {VERSION}")]
    Newer(u32),
}

/// What a file says.
#[derive(Debug)]
pub struct Transfer {
    /// The sessions, the topmost first.
    pub archives: Vec<Archive>,
    /// The public keys that come with it. They are there to be looked at; to trust them is
    /// somebody else's decision.
    pub keys: BTreeMap<String, PublicKey>,
    /// Who signed the file.
    pub signed_by: Option<Signed>,
}

/// A signature under a file.
#[derive(Debug)]
pub struct Signed {
    /// The fingerprint of the key.
    pub key: String,
    hash: Hash,
    signature: String,
}

impl Signed {
    /// Whether this key made it.
    pub fn is_by(&self, key: &PublicKey) -> bool {
        let signature = self.signature.parse::<Signature>();
        self.key == key.fingerprint().to_string()
            && signature.is_ok_and(|signature| key.verify(&self.hash, &signature).is_ok())
    }
}

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    RyeSessions {
        version: u32,
        keys: BTreeMap<String, String>,
    },
    Session(Box<Session>),
    Thread(Box<Thread>),
    Entry(Box<Entry>),
    Item(Box<QueueItem>),
    Gate(Box<Gate>),
    GateRef(GateRef),
    Suspended(Box<Suspended>),
    Event(Box<Event>),
    End(End),
}

#[derive(Serialize, Deserialize)]
struct End {
    /// The hash of all lines before.
    hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signature: Option<String>,
}

/// Writes sessions, the topmost first, with the public keys that signed in them.
pub fn write(
    out: impl Write,
    archives: Vec<Archive>,
    keys: &[PublicKey],
    signer: Option<&SigningKey>,
) -> Result<(), TransferError> {
    let mut out = Lines {
        out: io::BufWriter::new(out),
        hasher: Hasher::default(),
    };
    let named = |key: &PublicKey| (key.fingerprint().to_string(), key.to_pem());
    out.put(&Line::RyeSessions {
        version: VERSION,
        keys: keys.iter().map(named).collect(),
    })?;
    for archive in archives {
        out.put(&Line::Session(Box::new(archive.session)))?;
        out.all(archive.threads, |it| Line::Thread(Box::new(it)))?;
        out.all(archive.entries, |it| Line::Entry(Box::new(it)))?;
        out.all(archive.items, |it| Line::Item(Box::new(it)))?;
        out.all(archive.gates, |it| Line::Gate(Box::new(it)))?;
        out.all(archive.refs, Line::GateRef)?;
        out.all(archive.suspended, |it| Line::Suspended(Box::new(it)))?;
        out.all(archive.events, |it| Line::Event(Box::new(it)))?;
    }
    let (hash, _) = std::mem::take(&mut out.hasher).finish();
    out.put(&Line::End(End {
        hash: hash.to_hex(),
        key: signer.map(|key| key.public().fingerprint().to_string()),
        signature: signer.map(|key| key.sign(&hash).to_string()),
    }))?;
    out.out.flush()?;
    Ok(())
}

struct Lines<W: Write> {
    out: io::BufWriter<W>,
    hasher: Hasher,
}

impl<W: Write> Lines<W> {
    fn put(&mut self, line: &Line) -> Result<(), TransferError> {
        let mut text = serde_json::to_string(line).map_err(io::Error::from)?;
        text.push('\n');
        self.hasher.update(text.as_bytes());
        self.out.write_all(text.as_bytes())?;
        Ok(())
    }

    fn all<T>(&mut self, things: Vec<T>, line: impl Fn(T) -> Line) -> Result<(), TransferError> {
        things
            .into_iter()
            .try_for_each(|thing| self.put(&line(thing)))
    }
}

/// Reads sessions.
pub fn read(mut from: impl BufRead) -> Result<Transfer, TransferError> {
    let mut hasher = Hasher::default();
    let mut transfer = Transfer {
        archives: Vec::new(),
        keys: BTreeMap::new(),
        signed_by: None,
    };
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        if from.read_until(b'\n', &mut text)? == 0 {
            let why = "its end is not there; was all of it copied?";
            return Err(TransferError::Damaged(why.to_owned()));
        }
        let bad = |why: String| TransferError::Line { line: number, why };
        let line: Line = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        match line {
            Line::RyeSessions { version, .. } if version > VERSION => {
                return Err(TransferError::Newer(version));
            }
            Line::RyeSessions { keys, .. } if number == 1 => {
                for (name, pem) in keys {
                    let key = PublicKey::from_pem(pem).map_err(|error| bad(error.to_string()))?;
                    transfer.keys.insert(name, key);
                }
            }
            _ if number == 1 => return Err(bad("it is no file of sessions".to_owned())),
            Line::End(end) => {
                let (hash, _) = hasher.finish();
                if hash.to_hex() != end.hash {
                    let why = "it is not what was written";
                    return Err(TransferError::Damaged(why.to_owned()));
                }
                // What stands behind the signature is signed by nobody.
                text.clear();
                if from.read_until(b'\n', &mut text)? > 0 {
                    let why = "something stands behind its end";
                    return Err(TransferError::Damaged(why.to_owned()));
                }
                if let (Some(key), Some(signature)) = (end.key, end.signature) {
                    transfer.signed_by = Some(Signed {
                        key,
                        hash,
                        signature,
                    });
                }
                return Ok(transfer);
            }
            other => take(&mut transfer.archives, other).map_err(|why| bad(why.to_owned()))?,
        }
        hasher.update(&text);
    }
    Err(TransferError::Damaged("it has no end".to_owned()))
}

fn take(archives: &mut Vec<Archive>, line: Line) -> Result<(), &'static str> {
    if let Line::Session(session) = line {
        archives.push(Archive {
            session: *session,
            threads: Vec::new(),
            entries: Vec::new(),
            items: Vec::new(),
            gates: Vec::new(),
            refs: Vec::new(),
            suspended: Vec::new(),
            events: Vec::new(),
        });
        return Ok(());
    }
    let archive = archives.last_mut().ok_or("it belongs to no session")?;
    match line {
        Line::Thread(it) => archive.threads.push(*it),
        Line::Entry(it) => archive.entries.push(*it),
        Line::Item(it) => archive.items.push(*it),
        Line::Gate(it) => archive.gates.push(*it),
        Line::GateRef(it) => archive.refs.push(it),
        Line::Suspended(it) => archive.suspended.push(*it),
        Line::Event(it) => archive.events.push(*it),
        Line::RyeSessions { .. } | Line::Session(_) | Line::End(_) => {
            return Err("it stands in the middle");
        }
    }
    Ok(())
}
