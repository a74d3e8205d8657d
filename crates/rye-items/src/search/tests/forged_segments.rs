//! Forged segments with a valid checksum.

use std::fs;
use std::sync::Arc;

use lillux::Hash;
use proptest::prelude::*;

use super::fixture::Fixture;
use crate::id::ItemKind;
use crate::search::evaluate::evaluate;
use crate::search::record::AnalysedFile;
use crate::search::scan::ScannedItem;
use crate::search::segment::{Segment, Source, build};
use crate::search::view::View;
use crate::search::{Document, Query};

/// Length of magic and key, and of the checksum after it.
const KEY_END: usize = 40;
const HEADER_LEN: usize = KEY_END + 4;

fn segment() -> Segment {
    let sources = ["a/one", "a/two", "b/three"].map(|id| {
        let document = Document {
            description: format!("about {id}"),
            tags: vec!["tag".to_owned()],
            body: "some words, some of them twice".to_owned(),
            ..Document::default()
        };
        let file = ScannedItem {
            kind: ItemKind::Tool,
            id: id.parse().unwrap(),
            path: format!("tools/{id}.py"),
            identity: None,
            linked: false,
        };
        Source::Read(Box::new(AnalysedFile::new(&file, document, None, true)))
    });
    build(None, &sources)
}

proptest! {
    #[test]
    fn forged_segments_cause_no_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
    ) {
        let fixture = Fixture::new();
        for space in ["project", "user"] {
            fs::create_dir(fixture.path(space).join(".ai")).unwrap();
        }
        let spaces = fixture.spaces();
        let roots: Vec<_> = spaces.roots().collect();
        let key = Hash::digest("key");
        let mut bytes = segment().to_bytes(&key);
        for (place, value) in changes {
            let place = HEADER_LEN + place.index(bytes.len() - HEADER_LEN);
            bytes[place] = value;
        }
        let sum = crc32fast::hash(&bytes[HEADER_LEN..]);
        bytes[KEY_END..HEADER_LEN].copy_from_slice(&sum.to_le_bytes());
        if let Some(made_up) = Segment::from_bytes(&bytes, &key) {
            let kept = [Source::Kept(1), Source::Kept(2)];
            let again = build(Some(&made_up), &kept);
            let view = View::new([made_up, segment(), again].map(Arc::new).into());
            for text in ["", "some words", "wrods", "a/one", "t"] {
                evaluate(&view, &roots, &Query::new(text));
            }
        }
    }
}
