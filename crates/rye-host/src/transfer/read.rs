//! Sessions out of a file.

use std::collections::BTreeMap;
use std::io::BufRead;

use base64ct::{Base64, Encoding as _};
use lillux::keys::PublicKey;
use lillux::{Hash, Hasher};
use rye_engine::protocol::Archive;

use super::{Blobs, End, Line, Piece, Signed, Transfer, TransferError, VERSION};

/// Reads sessions, and looks at the blobs that come with them.
pub fn read(from: impl BufRead) -> Result<Transfer, TransferError> {
    let mut reader = Reader::new(from);
    while reader.next_blob()?.is_some() {}
    Ok(reader.transfer)
}

/// A file that is being read.
pub struct Reader<R> {
    from: R,
    hasher: Hasher,
    /// How many lines were read.
    lines: usize,
    text: Vec<u8>,
    transfer: Transfer,
    /// The blob of which not all was read yet.
    open: Option<Gathered>,
    is_over: bool,
}

/// A blob, as far as it was read.
struct Gathered {
    hash: Hash,
    size: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// One at the beginning of a file.
    pub fn new(from: R) -> Self {
        Self {
            from,
            hasher: Hasher::default(),
            lines: 0,
            text: Vec::new(),
            transfer: Transfer {
                archives: Vec::new(),
                keys: BTreeMap::new(),
                signed_by: None,
                blobs: Blobs::default(),
            },
            open: None,
            is_over: false,
        }
    }

    /// Reads on to the next blob that is what its hash says; none at the end of the file,
    /// which is what was written then.
    pub fn next_blob(&mut self) -> Result<Option<Vec<u8>>, TransferError> {
        while !self.is_over {
            let blob = self.line()?;
            if blob.is_some() {
                return Ok(blob);
            }
        }
        Ok(None)
    }

    /// Reads a line, and gives the blob that it makes whole.
    fn line(&mut self) -> Result<Option<Vec<u8>>, TransferError> {
        self.lines += 1;
        let number = self.lines;
        self.text.clear();
        if self.from.read_until(b'\n', &mut self.text)? == 0 {
            return Err(damaged("its end is not there; was all of it copied?"));
        }
        let bad = |why: &str| TransferError::Line {
            line: number,
            why: why.to_owned(),
        };
        let line: Line =
            serde_json::from_slice(&self.text).map_err(|error| bad(&error.to_string()))?;
        if self.open.is_some() && !matches!(line, Line::Blob(_)) {
            return Err(bad("the blob before it is not whole"));
        }
        let mut blob = None;
        match line {
            Line::RyeSessions { version, .. } if version != VERSION => {
                return Err(TransferError::Version(version));
            }
            Line::RyeSessions { keys, .. } if number == 1 => {
                for (name, pem) in keys {
                    let key = PublicKey::from_pem(pem).map_err(|error| bad(&error.to_string()))?;
                    self.transfer.keys.insert(name, key);
                }
            }
            _ if number == 1 => return Err(bad("it is no file of sessions")),
            Line::End(end) => {
                self.end(end)?;
                return Ok(None);
            }
            Line::Blob(piece) => blob = self.gather(&piece).map_err(bad)?,
            other => take(&mut self.transfer.archives, other).map_err(bad)?,
        }
        self.hasher.update(&self.text);
        Ok(blob)
    }

    /// Adds a part of a blob to those before it. Gives the whole, if it is what it should be.
    fn gather(&mut self, piece: &Piece) -> Result<Option<Vec<u8>>, &'static str> {
        let blobs = &mut self.transfer.blobs;
        let mut open = self.open.take().unwrap_or_else(|| Gathered {
            hash: piece.hash,
            size: piece.size,
            bytes: Vec::new(),
        });
        let there = (open.hash, open.size, open.bytes.len() as u64);
        if there != (piece.hash, piece.size, piece.offset) {
            return Err("it does not go on with the blob before it");
        }
        let bytes = Base64::decode_vec(&piece.bytes).map_err(|_| "its bytes are no base64")?;
        open.bytes.extend_from_slice(&bytes);
        match open.bytes.len() as u64 {
            length if length > open.size => return Err("the blob is longer than it says"),
            length if length < open.size && bytes.is_empty() => {
                return Err("it adds nothing to its blob");
            }
            length if length < open.size => {
                self.open = Some(open);
                return Ok(None);
            }
            _ => {}
        }
        if Hash::digest(&open.bytes) != open.hash {
            blobs.altered.insert(open.hash);
            return Ok(None);
        }
        blobs.whole.insert(open.hash);
        Ok(Some(open.bytes))
    }

    fn end(&mut self, end: End) -> Result<(), TransferError> {
        let (hash, _) = std::mem::take(&mut self.hasher).finish();
        if hash.to_hex() != end.hash {
            return Err(damaged("it is not what was written"));
        }
        // What stands behind the signature is signed by nobody.
        self.text.clear();
        if self.from.read_until(b'\n', &mut self.text)? > 0 {
            return Err(damaged("something stands behind its end"));
        }
        if let (Some(key), Some(signature)) = (end.key, end.signature) {
            self.transfer.signed_by = Some(Signed {
                key,
                hash,
                signature,
            });
        }
        self.is_over = true;
        Ok(())
    }
}

fn damaged(why: &str) -> TransferError {
    TransferError::Damaged(why.to_owned())
}

fn take(archives: &mut Vec<Archive>, line: Line) -> Result<(), &'static str> {
    if let Line::Session(session) = line {
        archives.push(Archive {
            session: *session,
            threads: Vec::new(),
            entries: Vec::new(),
            prompts: Vec::new(),
            gates: Vec::new(),
            gate_refs: Vec::new(),
            suspended_turns: Vec::new(),
            events: Vec::new(),
        });
        return Ok(());
    }
    let archive = archives.last_mut().ok_or("it belongs to no session")?;
    match line {
        Line::Thread(it) => archive.threads.push(*it),
        Line::Entry(it) => archive.entries.push(*it),
        Line::Prompt(it) => archive.prompts.push(*it),
        Line::Gate(it) => archive.gates.push(*it),
        Line::GateRef(it) => archive.gate_refs.push(it),
        Line::SuspendedTurn(it) => archive.suspended_turns.push(*it),
        Line::Event(it) => archive.events.push(*it),
        Line::RyeSessions { .. } | Line::Session(_) | Line::Blob(_) | Line::End(_) => {
            return Err("it stands in the middle");
        }
    }
    Ok(())
}
