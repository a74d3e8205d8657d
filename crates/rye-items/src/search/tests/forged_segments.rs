//! Forged segments with a valid checksum.

use std::fs;
use std::sync::Arc;

use lillux::Hash;
use proptest::prelude::*;

use super::fixture::Fixture;
use crate::id::ItemKind;
use crate::search::bytes::checksum;
use crate::search::evaluate::evaluate;
use crate::search::segment::{Lexicon, Segment, Source, Timestamps, build};
use crate::search::view::View;
use crate::search::{Document, Query};

/// Length of magic, checksum and key.
const HEADER_LEN: usize = 48;

fn segment(key: &Hash) -> Segment {
    let mut lexicon = Lexicon::default();
    let sources = ["a/one", "a/two", "b/three"].map(|id| {
        let document = Document {
            description: format!("about {id}"),
            tags: vec!["tag".to_owned()],
            body: "some words, some of them twice".to_owned(),
            ..Document::default()
        };
        let (path, id) = (format!("tools/{id}.py"), id.parse().unwrap());
        let analysed = lexicon.analyse(
            ItemKind::Tool,
            &id,
            &path,
            &document,
            Timestamps::Reliable,
            None,
        );
        Source::Read(Box::new(analysed), 0)
    });
    build(key, None, &sources, &[lexicon])
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
        let mut bytes = segment(&key).bytes().to_vec();
        for (place, value) in changes {
            let place = HEADER_LEN + place.index(bytes.len() - HEADER_LEN);
            bytes[place] = value;
        }
        let sum = checksum(&bytes[16..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        if let Some(made_up) = Segment::open(bytes, &key) {
            let kept = [Source::Kept(1), Source::Kept(2)];
            let again = build(&key, Some(&made_up), &kept, &[]);
            let view = View::new([made_up, segment(&key), again].map(Arc::new).into());
            for text in ["", "some words", "wrods", "a/one", "t"] {
                evaluate(&view, &roots, &Query::new(text));
            }
        }
    }
}
