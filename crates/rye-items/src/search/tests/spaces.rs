//! Filters, and items of the same name.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use lillux::keys::SigningKey;

use super::house::{House, Lines, ids};
use crate::comment::Comment;
use crate::id::ItemKind;
use crate::search::{Answer, Catalogue, Place, Query};
use crate::signature::{Binding, sign};
use crate::space::{Embedded, EmbeddedFile, Space};

static SYSTEM: Embedded = Embedded {
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

fn places(places: &[Place]) -> Vec<(Space, Option<&str>)> {
    let places = places.iter();
    places.map(|p| (p.space, p.bundle.as_deref())).collect()
}

fn with(text: &str, change: impl FnOnce(&mut Query)) -> Query {
    let mut query = Query::new(text);
    change(&mut query);
    query
}

/// An item in all three spaces and a bundle.
fn shadowing() -> House {
    let mut house = House::new();
    house.embedded = &SYSTEM;
    house.put("tools/rye/run.py", "# description: the project's\nrun");
    house.put_in(
        "user",
        "tools/rye/run.yaml",
        "# description: the user's\nrun",
    );
    house.put_in(
        "bundle",
        "tools/rye/run.py",
        "# description: the bundle's\nrun",
    );
    house.put_in("bundle", "bundle.yaml", "name: extra\n");
    house.bundles.push(house.path("bundle"));
    house
}

#[test]
fn the_nearest_item_of_a_name_is_the_hit_and_says_what_it_shadows() {
    let house = shadowing();
    let answer = house.ask_anew(&Query::new("run"));
    assert_eq!(ids(&answer), ["rye/run", "rye/guide"]);
    let hit = &answer.hits[0];
    assert_eq!(hit.description, "the project's");
    assert_eq!(hit.place.path, house.item("tools/rye/run.py"));
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
fn a_lower_space_asked_for_shows_what_is_shadowed_and_by_what() {
    let house = shadowing();
    let lower = with("run", |q| q.spaces = vec![Space::User, Space::System]);
    let answer = house.ask_anew(&lower);
    assert_eq!(ids(&answer), ["rye/run", "rye/guide"]);
    assert_eq!(answer.hits[0].description, "the user's");
    let by = answer.hits[0].shadowed_by.as_ref().unwrap();
    assert_eq!(by.path, house.item("tools/rye/run.py"));

    let system = house.ask_anew(&with("run", |q| q.spaces = vec![Space::System]));
    assert_eq!(system.hits[0].description, "the bundle's");
    assert_eq!(system.hits[0].place.bundle.as_deref(), Some("extra"));
    assert_eq!(system.hits[0].shadowed_by.as_ref(), Some(by));
}

#[test]
fn what_is_removed_shadows_no_more() {
    let house = shadowing();
    let catalogue = Catalogue::watching(Some(&house.cache()));
    let description = |answer: &Answer| answer.hits[0].description.clone();
    let query = Query::new("rye/run");
    assert_eq!(description(&house.ask(&catalogue, &query)), "the project's");
    std::fs::remove_file(house.item("tools/rye/run.py")).unwrap();
    assert_eq!(description(&house.ask(&catalogue, &query)), "the user's");
    house.put("tools/rye/run.py", "# description: back\nrun");
    assert_eq!(description(&house.ask(&catalogue, &query)), "back");
}

#[test]
fn two_files_of_one_id_name_each_other() {
    let house = House::new();
    house.put("tools/a/run.py", "run");
    house.put("tools/a/run.yaml", "run");
    let answer = house.ask_anew(&Query::new("run"));
    let twins: Vec<_> = answer.hits.iter().map(|hit| hit.twins.clone()).collect();
    let [py, yaml] = ["tools/a/run.py", "tools/a/run.yaml"].map(|path| house.item(path));
    assert_eq!(twins, [vec![yaml], vec![py]]);
}

#[test]
fn filters_leave_only_what_passes_all_of_them() {
    let house = House::new();
    house.put("tools/rye/bash/run.py", "# risk: high\nword");
    house.put("tools/rye/bashful.py", "# risk: low\nword");
    house.put(
        "tools/x.py",
        "# category: rye/bash/extra\n# risk: high\nword",
    );
    house.put("directives/rye/bash/guide.md", "word");
    house.put_in("user", "tools/mine.py", "# category: rye\nword");
    let found = |change: fn(&mut Query)| {
        let found = |text| ids(&house.ask_anew(&with(text, change)));
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
fn a_signer_is_found_by_the_fingerprint_in_the_line() {
    let house = House::new();
    let keys = [(); 2].map(|()| SigningKey::generate().unwrap());
    for (name, key) in [("one", &keys[0]), ("two", &keys[1])] {
        let binding = Binding::item(format!("tools/{name}.py"));
        let time = "2026-01-01T00:00:00Z";
        let text = sign(b"word", &Comment::HASH, &binding, key, time, None).unwrap();
        let text = String::from_utf8(text).unwrap();
        house.put(&format!("tools/{name}.py"), &text);
        house.put(
            &format!("tools/{name}_changed.py"),
            &format!("{text} changed"),
        );
    }
    house.put("tools/unsigned.py", "word");
    let signer = keys[1].public().fingerprint();
    let answer = house.ask_anew(&with("word", |q| q.signer = Some(signer)));
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
        house.ask_anew(&with("unsigned", |_| ())).hits[0].signature,
        None
    );
}

#[test]
fn a_hit_shows_what_the_file_says() {
    let house = House::new();
    house.put(
        "tools/a/b.py",
        "# title: T\n# description: D\n# tags: x, y\n# parameters: p, q\n# category: c\n\
         # risk: low\n# version: 1.2.3\n# problem: line 3: nonsense\n",
    );
    let hit = &house.ask_anew(&Query::new("nothing like it b")).hits[0];
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
fn what_is_embedded_is_read_once_for_all_processes() {
    let mut house = House::new();
    house.embedded = &SYSTEM;
    let reader = Lines::default();
    for _ in 0..3 {
        let catalogue = Catalogue::new(Some(&house.cache()));
        let answer = catalogue.search(&house.spaces(), &reader, &Query::new("run"));
        assert_eq!(ids(&answer), ["rye/run", "rye/guide"]);
    }
    assert_eq!(reader.read.load(Ordering::Relaxed), 2);
}

#[test]
fn embedded_trees_without_a_hash_are_not_mistaken_for_each_other() {
    static TREES: [Embedded; 2] = [
        Embedded {
            name: "a",
            hash: "",
            files: &[EmbeddedFile {
                path: "tools/a.py",
                bytes: b"",
            }],
        },
        Embedded {
            name: "b",
            hash: "",
            files: &[EmbeddedFile {
                path: "tools/b.py",
                bytes: b"",
            }],
        },
    ];
    let mut house = House::new();
    let catalogue = Catalogue::watching(Some(&house.cache()));
    for (tree, id) in TREES.iter().zip(["a", "b"]) {
        house.embedded = tree;
        assert_eq!(ids(&house.ask(&catalogue, &Query::new(""))), [id]);
    }
}
