//! Filters and shadowing.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use lillux::keys::SigningKey;

use super::fixture::{Fixture, Lines, ids};
use crate::comment::CommentStyle;
use crate::id::ItemKind;
use crate::search::{Location, Query, SearchIndex, SearchResults};
use crate::signature::{Binding, sign};
use crate::space::{EmbeddedBundle, EmbeddedFile, Space};

static SYSTEM: EmbeddedBundle = EmbeddedBundle {
    name: "core",
    hash: "5e1f",
    files: &[
        EmbeddedFile {
            path: "knowledge/rye/guide.md",
            bytes: b"how to run",
        },
        EmbeddedFile {
            path: "tools/rye/run.py",
            bytes: b"# description: the system's\nrun",
        },
    ],
};

fn places(places: &[Location]) -> Vec<(Space, Option<&str>)> {
    let places = places.iter();
    places.map(|p| (p.space, p.bundle.as_deref())).collect()
}

fn with(text: &str, change: impl FnOnce(&mut Query)) -> Query {
    let mut query = Query::new(text);
    change(&mut query);
    query
}

/// A fixture with the same item in all three spaces and a bundle.
fn shadowing() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.embedded = &SYSTEM;
    fixture.put("tools/rye/run.py", "# description: the project's\nrun");
    fixture.put_in(
        "user",
        "tools/rye/run.yaml",
        "# description: the user's\nrun",
    );
    fixture.put_in(
        "bundle",
        "tools/rye/run.py",
        "# description: the bundle's\nrun",
    );
    fixture.put_in("bundle", "bundle.yaml", "name: extra\n");
    fixture.bundles.push(fixture.path("bundle"));
    fixture
}

#[test]
fn first_space_wins_and_the_hit_lists_what_it_shadows() {
    let fixture = shadowing();
    let answer = fixture.search_fresh(&Query::new("run"));
    assert_eq!(ids(&answer), ["rye/run", "rye/guide"]);
    let hit = &answer.hits[0];
    assert_eq!(hit.description, "the project's");
    assert_eq!(hit.location.path, fixture.item("tools/rye/run.py"));
    assert_eq!(hit.shadowed_by, None);
    let system = Space::System;
    assert_eq!(
        places(&hit.shadows),
        [
            (Space::User, None),
            (system, Some("extra")),
            (system, Some("core"))
        ]
    );
    let embedded = PathBuf::from("embedded:core/.ai/tools/rye/run.py");
    assert_eq!(hit.shadows[2].path, embedded);
    assert_eq!((answer.total, answer.searched), (2, 5));
}

#[test]
fn space_filter_shows_shadowed_items() {
    let fixture = shadowing();
    let lower = with("run", |q| q.spaces = vec![Space::User, Space::System]);
    let answer = fixture.search_fresh(&lower);
    assert_eq!(ids(&answer), ["rye/run", "rye/guide"]);
    assert_eq!(answer.hits[0].description, "the user's");
    let by = answer.hits[0].shadowed_by.as_ref().unwrap();
    assert_eq!(by.path, fixture.item("tools/rye/run.py"));

    let system = fixture.search_fresh(&with("run", |q| q.spaces = vec![Space::System]));
    assert_eq!(system.hits[0].description, "the bundle's");
    assert_eq!(system.hits[0].location.bundle.as_deref(), Some("extra"));
    assert_eq!(system.hits[0].shadowed_by.as_ref(), Some(by));
}

#[test]
fn deleted_item_no_longer_shadows() {
    let fixture = shadowing();
    let catalogue = SearchIndex::with_watcher(Some(&fixture.cache()));
    let description = |answer: &SearchResults| answer.hits[0].description.clone();
    let query = Query::new("rye/run");
    assert_eq!(
        description(&fixture.search(&catalogue, &query)),
        "the project's"
    );
    std::fs::remove_file(fixture.item("tools/rye/run.py")).unwrap();
    assert_eq!(
        description(&fixture.search(&catalogue, &query)),
        "the user's"
    );
    fixture.put("tools/rye/run.py", "# description: back\nrun");
    assert_eq!(description(&fixture.search(&catalogue, &query)), "back");
}

#[test]
fn two_files_with_one_id_list_each_other_as_duplicates() {
    let fixture = Fixture::new();
    fixture.put("tools/a/run.py", "run");
    fixture.put("tools/a/run.yaml", "run");
    let answer = fixture.search_fresh(&Query::new("run"));
    let duplicates: Vec<_> = answer
        .hits
        .iter()
        .map(|hit| hit.duplicates.clone())
        .collect();
    let [py, yaml] = ["tools/a/run.py", "tools/a/run.yaml"].map(|path| fixture.item(path));
    assert_eq!(duplicates, [vec![yaml], vec![py]]);
}

#[test]
fn filters_are_combined() {
    let fixture = Fixture::new();
    fixture.put("tools/rye/bash/run.py", "# risk: high\nword");
    fixture.put("tools/rye/bashful.py", "# risk: low\nword");
    fixture.put(
        "tools/x.py",
        "# category: rye/bash/extra\n# risk: high\nword",
    );
    fixture.put("directives/rye/bash/guide.md", "word");
    fixture.put_in("user", "tools/mine.py", "# category: rye\nword");
    let found = |change: fn(&mut Query)| {
        let found = |text| ids(&fixture.search_fresh(&with(text, change)));
        let mut listed = found("");
        let mut searched = found("word");
        listed.sort();
        searched.sort();
        assert_eq!(listed, searched);
        listed.join(" ")
    };
    assert_eq!(
        found(|q| q.category = Some("rye/bash".to_owned())),
        "rye/bash/guide rye/bash/run x"
    );
    assert_eq!(
        found(|q| q.category = Some("/rye/".to_owned())),
        "mine rye/bash/guide rye/bash/run rye/bashful x"
    );
    assert_eq!(found(|q| q.category = Some("ry".to_owned())), "");
    assert_eq!(
        found(|q| q.kinds = vec![ItemKind::Directive]),
        "rye/bash/guide"
    );
    assert_eq!(found(|q| q.kinds = vec![ItemKind::Config]), "");
    assert_eq!(
        found(|q| q.risk = Some("HIGH".to_owned())),
        "rye/bash/run x"
    );
    assert_eq!(found(|q| q.spaces = vec![Space::User]), "mine");
    assert_eq!(
        found(|q| {
            q.risk = Some("high".to_owned());
            q.category = Some("rye/bash/extra".to_owned());
        }),
        "x"
    );
}

#[test]
fn signer_filter_matches_the_signature_line() {
    let fixture = Fixture::new();
    let keys = [(); 2].map(|()| SigningKey::generate().unwrap());
    for (name, key) in [("one", &keys[0]), ("two", &keys[1])] {
        let binding = Binding::item(format!("tools/{name}.py"));
        let time = "2026-01-01T00:00:00Z";
        let text = sign(b"word", &CommentStyle::HASH, &binding, key, time, None).unwrap();
        let text = String::from_utf8(text).unwrap();
        fixture.put(&format!("tools/{name}.py"), &text);
        fixture.put(
            &format!("tools/{name}_changed.py"),
            &format!("{text} changed"),
        );
    }
    fixture.put("tools/unsigned.py", "word");
    let signer = keys[1].public().fingerprint();
    let answer = fixture.search_fresh(&with("word", |q| q.signer = Some(signer)));
    assert_eq!(ids(&answer), ["two", "two_changed"]);
    let claims: Vec<_> = answer
        .hits
        .iter()
        .map(|hit| hit.signature.as_ref().unwrap())
        .collect();
    assert!(claims[0].intact && !claims[1].intact);
    for claim in claims {
        assert_eq!(claim.line.fingerprint, signer);
        claim.line.verify(keys[1].public()).unwrap();
    }
    assert_eq!(
        fixture.search_fresh(&with("unsigned", |_| ())).hits[0].signature,
        None
    );
}

#[test]
fn hit_contains_the_metadata_of_the_file() {
    let fixture = Fixture::new();
    fixture.put(
        "tools/a/b.py",
        "# title: T\n# description: D\n# tags: x, y\n# parameters: p, q\n# category: c\n\
         # risk: low\n# version: 1.2.3\n# problem: line 3: nonsense\n",
    );
    let hit = &fixture.search_fresh(&Query::new("nothing like it b")).hits[0];
    assert_eq!(hit.reference.to_string(), "tool:a/b");
    assert_eq!((hit.title.as_str(), hit.description.as_str()), ("T", "D"));
    assert_eq!(
        (&hit.tags[..], &hit.parameters[..]),
        (
            &["x", "y"].map(str::to_owned)[..],
            &["p", "q"].map(str::to_owned)[..]
        )
    );
    assert_eq!(hit.category.as_deref(), Some("c"));
    assert_eq!(hit.risk.as_deref(), Some("low"));
    assert_eq!(hit.version.as_deref(), Some("1.2.3"));
    assert_eq!(hit.problem.as_deref(), Some("line 3: nonsense"));
}

#[test]
fn embedded_items_are_read_once_across_processes() {
    let mut fixture = Fixture::new();
    fixture.embedded = &SYSTEM;
    let reader = Lines::default();
    for _ in 0..3 {
        let catalogue = SearchIndex::new(Some(&fixture.cache()));
        let answer = catalogue.search(&fixture.spaces(), &reader, &Query::new("run"));
        assert_eq!(ids(&answer), ["rye/run", "rye/guide"]);
    }
    assert_eq!(reader.read.load(Ordering::Relaxed), 2);
}

#[test]
fn embedded_trees_without_a_hash_are_kept_apart() {
    static TREES: [EmbeddedBundle; 2] = [
        EmbeddedBundle {
            name: "a",
            hash: "",
            files: &[EmbeddedFile {
                path: "tools/a.py",
                bytes: b"",
            }],
        },
        EmbeddedBundle {
            name: "b",
            hash: "",
            files: &[EmbeddedFile {
                path: "tools/b.py",
                bytes: b"",
            }],
        },
    ];
    let mut fixture = Fixture::new();
    let catalogue = SearchIndex::with_watcher(Some(&fixture.cache()));
    for (tree, id) in TREES.iter().zip(["a", "b"]) {
        fixture.embedded = tree;
        assert_eq!(ids(&fixture.search(&catalogue, &Query::new(""))), [id]);
    }
}
