//! The encoding of extractor tables in the parse cache.
//!
//! Every call reads the table, so decoding must be fast. The first line contains each rule with the
//! extensions that share it, and the length of the rest. The rest contains the field sources, which
//! are parsed lazily: a call whose metadata is all cached does not need them.

use std::sync::Arc;

use super::field_sources::LazyFieldSources;
use super::{Extractors, Rule};

type Groups = Vec<(Rule, Vec<String>)>;

impl Extractors {
    /// Encodes the table for [`decode`](Self::decode).
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut groups = Groups::new();
        for (extension, rule) in &self.rules {
            match groups.iter_mut().find(|(other, _)| other == &**rule) {
                Some((_, extensions)) => extensions.push(extension.clone()),
                None => groups.push((Rule::clone(rule), vec![extension.clone()])),
            }
        }
        let mut sources = serde_json::to_vec(self.sources.read()).ok()?;
        let mut bytes = serde_json::to_vec(&(sources.len(), groups)).ok()?;
        bytes.push(b'\n');
        bytes.append(&mut sources);
        Some(bytes)
    }

    /// Decodes a table; none if the bytes are damaged.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        // Compact JSON contains no newline; in strings it is escaped.
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (line, sources) = (bytes.get(..end)?, bytes.get(end + 1..)?);
        let (length, groups): (usize, Groups) = serde_json::from_slice(line).ok()?;
        // Truncated field sources would silently give no fields.
        if sources.len() != length {
            return None;
        }
        let mut table = Self {
            sources: LazyFieldSources::from_json(sources),
            ..Self::default()
        };
        for (rule, extensions) in groups {
            let rule = Arc::new(rule);
            let rules = extensions
                .into_iter()
                .map(|extension| (extension, Arc::clone(&rule)));
            table.rules.extend(rules);
        }
        Some(table)
    }
}
