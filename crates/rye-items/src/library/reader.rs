//! Reads items for the search index, and verifies search hits.

use std::sync::Arc;

use lillux::Hash;

use super::Library;
use crate::id::{ItemId, ItemKind};
use crate::integrity::IntegrityProblem;
use crate::lookup;
use crate::metadata;
use crate::search::{Candidate, Document, Hit, Reader, SignatureClaim};
use crate::signature::{self, Binding, SignatureError};
use crate::trust::{Trust, TrustedKey};
use crate::verify;

/// Increase the number when the same file gives another document.
const READER_VERSION: &str = concat!("items ", env!("CARGO_PKG_VERSION"), " 2");

impl Library {
    /// Verifies the indexed signature of a search hit. Returns the signer's trusted key.
    pub fn verify_hit(
        &self,
        hit: &Hit,
        trust: &Trust<'_>,
    ) -> Result<Arc<TrustedKey>, IntegrityProblem> {
        let claim = hit.signature.as_ref();
        let claim = claim.ok_or(IntegrityProblem::Line(SignatureError::Unsigned))?;
        if !claim.intact {
            return Err(IntegrityProblem::Changed {
                expected: claim.line.hash,
                found: None,
            });
        }
        let (kind, id) = (hit.reference.kind.dir(), &hit.reference.id);
        let name = hit.location.path.to_string_lossy();
        let extension = name.rfind('.').map_or("", |dot| &name[dot..]);
        let binding = Binding::for_path(format!("{kind}/{id}{extension}"));
        verify::check_binding(&claim.line, Some(&binding))?;
        verify::verify_line(&claim.line, trust)
    }
}

impl Reader for Library {
    fn version(&self) -> Hash {
        Hash::digest(format!("{READER_VERSION} {}", self.extractors_hash))
    }

    fn identify(&self, kind: ItemKind, path: &str) -> Option<ItemId> {
        let (id, _) = lookup::split_name(kind, path, &self.extractors)?;
        // A package marker is not a tool.
        (id.name() != "__init__").then_some(id)
    }

    fn read(&self, candidate: &Candidate<'_>, bytes: &[u8]) -> Document {
        let extension = candidate
            .path
            .rfind('.')
            .map_or("", |dot| &candidate.path[dot..]);
        let format = self.signature_format(extension, candidate.kind, candidate.path);
        let claim = verify::claim(bytes, &format);
        // Only the covered element of a partially signed item is indexed.
        let element = claim.as_ref().ok().and_then(|claim| claim.element.clone());
        let covered = element.map_or(bytes, |range| &bytes[range]);
        let signature = match claim {
            Ok(claim) => Some(SignatureClaim {
                line: claim.line,
                intact: true,
            }),
            Err(IntegrityProblem::Changed { .. }) => {
                let split = signature::split(bytes, &format.comment).ok();
                split.map(|split| SignatureClaim {
                    line: split.line,
                    intact: false,
                })
            }
            Err(_) => None,
        };
        let document = Document {
            signature,
            body: String::from_utf8_lossy(&signature::strip_signature(covered)).into_owned(),
            ..Document::default()
        };
        match metadata::extract(covered, extension, candidate.kind, &self.extractors) {
            Ok(metadata) => Document {
                title: metadata.title().unwrap_or_default().to_owned(),
                description: metadata.description().unwrap_or_default().to_owned(),
                tags: metadata.tags(),
                parameters: metadata.parameter_names(),
                category: metadata.category().map(str::to_owned),
                risk: metadata.risk_level().map(|risk| risk.as_str().to_owned()),
                version: metadata.version().map(str::to_owned),
                runnable: metadata.executor_id().is_some()
                    || metadata.tool_type() == Some("primitive"),
                ..document
            },
            Err(error) => Document {
                problem: Some(format!("{}: {error}", error.excerpt.position)),
                ..document
            },
        }
    }
}
