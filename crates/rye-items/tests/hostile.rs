//! What a hostile project may try, and does not get.

mod support;

use lillux::Hash;
use rye_items::Coverage;
use rye_items::search::{Catalogue, Query};
use rye_items::signature::SignatureLine;
use support::{Home, write};

/// A directive as others publish it: signed over its element alone.
fn partial(home: &Home, before: &str, element: &str, after: &str) -> String {
    let hash = Hash::of(element);
    let line = SignatureLine {
        time: "2026-04-10T03:28:17Z".to_owned(),
        signature: home.key.sign(&hash),
        hash,
        fingerprint: home.key.public().fingerprint(),
        provenance: None,
    };
    format!("{before}<!-- {line} -->\n{element}{after}")
}

#[test]
fn an_element_before_the_signature_line_is_not_taken_for_the_covered_one() {
    let home = Home::new();
    let good = "<directive name=\"good\" version=\"1.0.0\">good</directive>";
    let evil = "#!<directive name=\"evil\" version=\"6.6.6\">evil</directive>\n";
    let file = partial(&home, evil, good, "\nprose about evil\n");
    write(&home.at("directives/d.md"), file.as_bytes());
    let library = home.open();
    let item = library.load(&"directive:d".parse().unwrap()).unwrap();
    assert_eq!(item.coverage, Coverage::Partial);
    assert_eq!(String::from_utf8_lossy(item.content()), good);
    assert_eq!(item.bytes(), item.content());
    let metadata = item.metadata(library.extractors()).unwrap();
    assert_eq!(metadata.version(), Some("1.0.0"));
    let search = |words: &str| {
        let answer = Catalogue::new(None).search(library.spaces(), &library, &Query::new(words));
        answer
            .hits
            .iter()
            .any(|hit| hit.reference.id.as_str() == "d")
    };
    assert!(search("good") && !search("evil"));
}
