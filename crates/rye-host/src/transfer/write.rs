//! Sessions into a file.

use std::io::{self, Write};
use std::mem;

use base64ct::{Base64, Encoding as _};
use lillux::keys::{PublicKey, SigningKey};
use lillux::{Hash, Hasher};
use rye_engine::protocol::Archive;

use super::{EXPORT, End, Line, Piece, TransferError, VERSION};

/// How much of a blob is in a line.
const PIECE: usize = 96 * 1024;

/// A file in the making.
pub struct Writer<W: Write> {
    out: io::BufWriter<W>,
    hasher: Hasher,
}

impl<W: Write> Writer<W> {
    /// Writes sessions, the topmost first, with the public keys that signed in them. Their
    /// [blobs](Self::blob) are to follow.
    pub fn new(out: W, archives: Vec<Archive>, keys: &[PublicKey]) -> Result<Self, TransferError> {
        let mut writer = Self {
            out: io::BufWriter::new(out),
            hasher: Hasher::default(),
        };
        let named = |key: &PublicKey| (key.fingerprint().to_string(), key.to_pem());
        writer.put(&Line::RyeSessions {
            version: VERSION,
            keys: keys.iter().map(named).collect(),
        })?;
        for archive in archives {
            writer.session(archive)?;
        }
        Ok(writer)
    }

    fn session(&mut self, archive: Archive) -> Result<(), TransferError> {
        self.put(&Line::Session(Box::new(archive.session)))?;
        self.all(archive.threads, |it| Line::Thread(Box::new(it)))?;
        self.all(archive.entries, |it| Line::Entry(Box::new(it)))?;
        self.all(archive.prompts, |it| Line::Prompt(Box::new(it)))?;
        self.all(archive.gates, |it| Line::Gate(Box::new(it)))?;
        self.all(archive.gate_refs, Line::GateRef)?;
        self.all(archive.suspended_turns, |it| {
            Line::SuspendedTurn(Box::new(it))
        })?;
        self.all(archive.events, |it| Line::Event(Box::new(it)))
    }

    /// Writes what the blob store has under a hash that one of the sessions needs.
    pub fn blob(&mut self, hash: &Hash, bytes: &[u8]) -> Result<(), TransferError> {
        let mut offset = 0;
        loop {
            let rest = &bytes[offset..];
            let piece = &rest[..rest.len().min(PIECE)];
            self.put(&Line::Blob(Piece {
                hash: *hash,
                size: bytes.len() as u64,
                offset: offset as u64,
                bytes: Base64::encode_string(piece),
            }))?;
            offset += piece.len();
            if offset == bytes.len() {
                return Ok(());
            }
        }
    }

    /// Writes the end, signed if there is somebody to sign it.
    pub fn end(mut self, signer: Option<&SigningKey>) -> Result<W, TransferError> {
        let (hash, _) = mem::take(&mut self.hasher).finish();
        self.put(&Line::End(End {
            hash: hash.to_hex(),
            key: signer.map(|key| key.public().fingerprint().to_string()),
            signature: signer.map(|key| key.sign_for(EXPORT, &hash).to_string()),
        }))?;
        let out = self.out.into_inner();
        out.map_err(|error| error.into_error().into())
    }

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
