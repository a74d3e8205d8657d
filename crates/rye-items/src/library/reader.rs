//! How the search reads files: as the library does, and no more of them than is signed.

use lillux::Hash;

use super::Library;
use crate::id::{ItemId, ItemKind};
use crate::item::Coverage;
use crate::lookup;
use crate::metadata::{self, Extractors, Metadata};
use crate::search::{Candidate, Claim, Document, Reader};
use crate::signature;
use crate::verify::{self, Form};

/// Another number where the same file gives another document.
const VERSION: u32 = 1;

impl Reader for Library {
    fn version(&self) -> Hash {
        Hash::of(format!("library {VERSION} {:?}", self.extractors))
    }

    fn identify(&self, kind: ItemKind, path: &str) -> Option<ItemId> {
        lookup::id_of(kind, path, &self.extractors).map(|(id, _)| id)
    }

    fn read(&self, candidate: &Candidate<'_>, bytes: &[u8]) -> Document {
        let Candidate { kind, path, .. } = *candidate;
        let Some((_, extension)) = path
            .split_once('/')
            .and_then(|(_, inner)| lookup::id_of(kind, inner, &self.extractors))
        else {
            return Document::default();
        };
        document(bytes, extension, kind, &self.extractors)
    }
}

fn document(bytes: &[u8], extension: &str, kind: ItemKind, extractors: &Extractors) -> Document {
    let rule = extractors.rule(extension);
    let form = Form {
        comment: rule.map_or(crate::Comment::HASH, |rule| rule.comment.clone()),
        partial: kind == ItemKind::Directive,
    };
    let coverage = verify::claim(bytes, &form).map(|claim| claim.coverage);
    let signature = signature::split(bytes, &form.comment).ok();
    let signature = signature.map(|split| Claim {
        line: split.line,
        intact: coverage.is_ok(),
    });
    let unsigned = signature::unsigned(bytes);
    // What stands around the covered element is nobody's word.
    let (shown, body) = match coverage {
        Ok(Coverage::Partial) => {
            let element = &unsigned[verify::element(&unsigned).unwrap_or(0..0)];
            (element, element)
        }
        _ => (bytes, unsigned.as_slice()),
    };
    let (metadata, problem) = match metadata::extract(shown, extension, kind, extractors) {
        Ok(metadata) => (metadata, None),
        Err(error) => {
            let place = error.excerpt.position;
            let problem = format!("line {}: {}", place.line, error.message);
            (Metadata::default(), Some(problem))
        }
    };
    let text = |value: Option<&str>| value.map(str::to_owned);
    Document {
        title: text(metadata.title()).unwrap_or_default(),
        description: text(metadata.description()).unwrap_or_default(),
        tags: metadata.tags(),
        parameters: metadata.parameter_names(),
        category: text(metadata.category()),
        risk: text(metadata.text("risk_level")),
        version: text(metadata.version()),
        signature,
        body: String::from_utf8_lossy(body).into_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use lillux::keys::SigningKey;

    use super::*;
    use crate::Comment;

    fn extractors() -> Extractors {
        let table = crate::SYSTEM.get("tools/rye/core/extractors/tool_extractor.yaml");
        Extractors::from_yaml(table.unwrap().bytes).unwrap()
    }

    #[test]
    fn a_file_is_read_with_its_metadata_and_signature() {
        let tool = b"__version__ = '1.2.3'\n__tool_description__ = 'Counts'\n\
            CONFIG_SCHEMA = {'type': 'object', 'properties': {'path': {'type': 'string'}}}\n";
        let key = SigningKey::generate().unwrap();
        let time = "2026-04-10T03:28:17Z";
        let signed = signature::sign(tool, &Comment::HASH, &key, time, None).unwrap();
        let document = document(&signed, ".py", ItemKind::Tool, &extractors());
        assert_eq!(document.description, "Counts");
        assert_eq!(document.parameters, ["path"]);
        let claim = document.signature.unwrap();
        assert!(claim.intact && claim.line.time == time);
        assert!(!document.body.contains("rye:signed"));
    }

    #[test]
    fn a_file_that_was_changed_or_does_not_parse_is_found_and_says_so() {
        let key = SigningKey::generate().unwrap();
        let time = "2026-04-10T03:28:17Z";
        let mut signed = signature::sign(b"x = 1\n", &Comment::HASH, &key, time, None).unwrap();
        signed.extend(b"__version__ = compute()\n");
        let document = document(&signed, ".py", ItemKind::Tool, &extractors());
        assert!(!document.signature.unwrap().intact);
        assert!(document.problem.unwrap().starts_with("line 3: "));
    }
}
