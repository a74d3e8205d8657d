//! A table as it is kept between calls.
//!
//! Every call reads it, so it is made to be read fast: a line with each rule and
//! the extensions that share it, and after it the places, at which a call whose
//! files were all read before does not even look. The line tells how long they are.

use std::sync::Arc;

use super::field_sources::LazyFieldSources;
use super::{Extractors, Rule};

type Groups = Vec<(Rule, Vec<String>)>;

impl Extractors {
    /// What [`decode`](Self::decode) reads.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut groups = Groups::new();
        for (extension, rule) in &self.rules {
            match groups.iter_mut().find(|(other, _)| other == &**rule) {
                Some((_, extensions)) => extensions.push(extension.clone()),
                None => groups.push((Rule::clone(rule), vec![extension.clone()])),
            }
        }
        let mut places = serde_json::to_vec(self.places.read()).ok()?;
        let mut bytes = serde_json::to_vec(&(places.len(), groups)).ok()?;
        bytes.push(b'\n');
        bytes.append(&mut places);
        Some(bytes)
    }

    /// The table that was kept so; none if the bytes are anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        // JSON has no line ends of its own here: within a text they are escaped.
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (line, places) = (bytes.get(..end)?, bytes.get(end + 1..)?);
        let (length, groups): (usize, Groups) = serde_json::from_slice(line).ok()?;
        // One that was cut would find no field, silently.
        if places.len() != length {
            return None;
        }
        let mut table = Self {
            places: LazyFieldSources::from_json(places),
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
