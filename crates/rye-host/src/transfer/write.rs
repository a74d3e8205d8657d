//! Writes exported sessions.

use std::io::{self, Write};
use std::mem;

use base64ct::{Base64, Encoding as _};
use lillux::keys::{PublicKey, SigningKey};
use lillux::{Hash, Hasher};
use rye_engine::protocol::Archive;

use super::{BlobChunk, EXPORT_PURPOSE, Line, Trailer, TransferError, VERSION};

/// Maximum number of bytes of a blob per line.
const CHUNK_LEN: usize = 96 * 1024;

/// Writes a file.
pub struct Writer<W: Write> {
    out: io::BufWriter<W>,
    hasher: Hasher,
}

impl<W: Write> Writer<W> {
    /// Writes sessions, parents first, with the public keys of their signatures. Write their
    /// [blobs](Self::write_blob) next.
    pub fn new(out: W, archives: Vec<Archive>, keys: &[PublicKey]) -> Result<Self, TransferError> {
        let mut writer = Self {
            out: io::BufWriter::new(out),
            hasher: Hasher::default(),
        };
        let entry = |key: &PublicKey| (key.fingerprint().to_string(), key.to_pem());
        writer.write_line(&Line::RyeSessions {
            version: VERSION,
            keys: keys.iter().map(entry).collect(),
        })?;
        for archive in archives {
            writer.write_session(archive)?;
        }
        Ok(writer)
    }

    fn write_session(&mut self, archive: Archive) -> Result<(), TransferError> {
        self.write_line(&Line::Session(Box::new(archive.session)))?;
        self.write_all(archive.threads, |it| Line::Thread(Box::new(it)))?;
        self.write_all(archive.entries, |it| Line::Entry(Box::new(it)))?;
        self.write_all(archive.prompts, |it| Line::Prompt(Box::new(it)))?;
        self.write_all(archive.gates, |it| Line::Gate(Box::new(it)))?;
        self.write_all(archive.gate_refs, Line::GateRef)?;
        self.write_all(archive.events, |it| Line::Event(Box::new(it)))
    }

    /// Writes a blob.
    pub fn write_blob(&mut self, hash: &Hash, bytes: &[u8]) -> Result<(), TransferError> {
        let mut offset = 0;
        loop {
            let rest = &bytes[offset..];
            let chunk = &rest[..rest.len().min(CHUNK_LEN)];
            self.write_line(&Line::Blob(BlobChunk {
                hash: *hash,
                size: bytes.len() as u64,
                offset: offset as u64,
                bytes: Base64::encode_string(chunk),
            }))?;
            offset += chunk.len();
            if offset == bytes.len() {
                return Ok(());
            }
        }
    }

    /// Writes the end of the file, signed if there is a key.
    pub fn finish(mut self, signer: Option<&SigningKey>) -> Result<W, TransferError> {
        let (hash, _) = mem::take(&mut self.hasher).finish();
        self.write_line(&Line::End(Trailer {
            hash: hash.to_hex(),
            key: signer.map(|key| key.public().fingerprint().to_string()),
            signature: signer.map(|key| key.sign_for(EXPORT_PURPOSE, &hash).to_string()),
        }))?;
        let out = self.out.into_inner();
        out.map_err(|error| error.into_error().into())
    }

    fn write_line(&mut self, line: &Line) -> Result<(), TransferError> {
        let mut text = serde_json::to_string(line).map_err(io::Error::from)?;
        text.push('\n');
        self.hasher.update(text.as_bytes());
        self.out.write_all(text.as_bytes())?;
        Ok(())
    }

    fn write_all<T>(
        &mut self,
        objects: Vec<T>,
        line: impl Fn(T) -> Line,
    ) -> Result<(), TransferError> {
        objects
            .into_iter()
            .try_for_each(|object| self.write_line(&line(object)))
    }
}
