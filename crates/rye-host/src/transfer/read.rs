//! Reads exported sessions.

use std::collections::BTreeMap;
use std::io::BufRead;

use base64ct::{Base64, Encoding as _};
use lillux::keys::PublicKey;
use lillux::{Hash, Hasher};
use rye_engine::protocol::Archive;

use super::{
    BlobChunk, ExportFile, ExportedBlobs, FileSignature, Line, Trailer, TransferError, VERSION,
};

/// Reads a file and checks its blobs.
pub fn read(input: impl BufRead) -> Result<ExportFile, TransferError> {
    let mut reader = Reader::new(input);
    while reader.next_blob()?.is_some() {}
    Ok(reader.content)
}

/// Reads a file blob by blob.
pub struct Reader<R> {
    input: R,
    hasher: Hasher,
    /// Number of lines read so far.
    lines: usize,
    text: Vec<u8>,
    content: ExportFile,
    /// The blob that is not complete yet.
    partial: Option<PartialBlob>,
    finished: bool,
}

/// The part of a blob read so far.
struct PartialBlob {
    hash: Hash,
    size: u64,
    bytes: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Starts at the beginning of a file.
    pub fn new(input: R) -> Self {
        Self {
            input,
            hasher: Hasher::default(),
            lines: 0,
            text: Vec::new(),
            content: ExportFile {
                archives: Vec::new(),
                keys: BTreeMap::new(),
                signature: None,
                blobs: ExportedBlobs::default(),
            },
            partial: None,
            finished: false,
        }
    }

    /// Reads up to the next intact blob. Returns none at the end of the file, after it has verified
    /// the hash of all lines.
    pub fn next_blob(&mut self) -> Result<Option<Vec<u8>>, TransferError> {
        while !self.finished {
            let blob = self.read_line()?;
            if blob.is_some() {
                return Ok(blob);
            }
        }
        Ok(None)
    }

    /// Reads a line. Returns the blob that it completes.
    fn read_line(&mut self) -> Result<Option<Vec<u8>>, TransferError> {
        self.lines += 1;
        let number = self.lines;
        self.text.clear();
        if self.input.read_until(b'\n', &mut self.text)? == 0 {
            return Err(damaged("its end is missing; was the whole file copied?"));
        }
        let invalid = |reason: &str| TransferError::Line {
            line: number,
            reason: reason.to_owned(),
        };
        let line: Line =
            serde_json::from_slice(&self.text).map_err(|error| invalid(&error.to_string()))?;
        if self.partial.is_some() && !matches!(line, Line::Blob(_)) {
            return Err(invalid("the previous blob is incomplete"));
        }
        let mut blob = None;
        match line {
            Line::RyeSessions { version, .. } if version != VERSION => {
                return Err(TransferError::Version(version));
            }
            Line::RyeSessions { keys, .. } if number == 1 => {
                for (name, pem) in keys {
                    let key =
                        PublicKey::from_pem(pem).map_err(|error| invalid(&error.to_string()))?;
                    self.content.keys.insert(name, key);
                }
            }
            _ if number == 1 => return Err(invalid("not an export of sessions")),
            Line::End(end) => {
                self.check_trailer(end)?;
                return Ok(None);
            }
            Line::Blob(chunk) => blob = self.add_chunk(&chunk).map_err(invalid)?,
            other => add_line(&mut self.content.archives, other).map_err(invalid)?,
        }
        self.hasher.update(&self.text);
        Ok(blob)
    }

    /// Adds a part to the current blob. Returns the blob when it is complete and intact.
    fn add_chunk(&mut self, chunk: &BlobChunk) -> Result<Option<Vec<u8>>, &'static str> {
        let blobs = &mut self.content.blobs;
        let mut partial = self.partial.take().unwrap_or_else(|| PartialBlob {
            hash: chunk.hash,
            size: chunk.size,
            bytes: Vec::new(),
        });
        let position = (partial.hash, partial.size, partial.bytes.len() as u64);
        if position != (chunk.hash, chunk.size, chunk.offset) {
            return Err("does not continue the previous blob");
        }
        let bytes = Base64::decode_vec(&chunk.bytes).map_err(|_| "invalid base64")?;
        partial.bytes.extend_from_slice(&bytes);
        match partial.bytes.len() as u64 {
            length if length > partial.size => return Err("the blob is longer than its size"),
            length if length < partial.size && bytes.is_empty() => {
                return Err("an empty part of a blob");
            }
            length if length < partial.size => {
                self.partial = Some(partial);
                return Ok(None);
            }
            _ => {}
        }
        if Hash::digest(&partial.bytes) != partial.hash {
            blobs.altered.insert(partial.hash);
            return Ok(None);
        }
        blobs.intact.insert(partial.hash);
        Ok(Some(partial.bytes))
    }

    fn check_trailer(&mut self, end: Trailer) -> Result<(), TransferError> {
        let (hash, _) = std::mem::take(&mut self.hasher).finish();
        if hash.to_hex() != end.hash {
            return Err(damaged("its hash does not match"));
        }
        // Content after the signature would be unsigned.
        self.text.clear();
        if self.input.read_until(b'\n', &mut self.text)? > 0 {
            return Err(damaged("there is content after its end"));
        }
        if let (Some(key), Some(signature)) = (end.key, end.signature) {
            self.content.signature = Some(FileSignature {
                key,
                hash,
                signature,
            });
        }
        self.finished = true;
        Ok(())
    }
}

fn damaged(reason: &str) -> TransferError {
    TransferError::Damaged(reason.to_owned())
}

fn add_line(archives: &mut Vec<Archive>, line: Line) -> Result<(), &'static str> {
    if let Line::Session(session) = line {
        archives.push(Archive {
            session: *session,
            threads: Vec::new(),
            entries: Vec::new(),
            prompts: Vec::new(),
            gates: Vec::new(),
            gate_refs: Vec::new(),
            events: Vec::new(),
        });
        return Ok(());
    }
    let archive = archives.last_mut().ok_or("belongs to no session")?;
    match line {
        Line::Thread(it) => archive.threads.push(*it),
        Line::Entry(it) => archive.entries.push(*it),
        Line::Prompt(it) => archive.prompts.push(*it),
        Line::Gate(it) => archive.gates.push(*it),
        Line::GateRef(it) => archive.gate_refs.push(it),
        Line::Event(it) => archive.events.push(*it),
        Line::RyeSessions { .. } | Line::Session(_) | Line::Blob(_) | Line::End(_) => {
            return Err("unexpected at this position");
        }
    }
    Ok(())
}
