//! Any text as a reference: an accepted one stays inside its directory and
//! round-trips.

#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use rye_items::ItemRef;

fuzz_target!(|text: &str| {
    if let Ok(reference) = text.parse::<ItemRef>() {
        let path = Path::new(reference.id.as_str());
        assert!(
            path.components()
                .all(|part| matches!(part, Component::Normal(_)))
        );
        assert!(!reference.id.as_str().contains(['\\', '\0']));
        assert_eq!(reference.to_string().parse(), Ok(reference));
    }
});
