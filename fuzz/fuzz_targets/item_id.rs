//! Any text as a reference: what is accepted stays inside its folder and reads
//! back as it was written.

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
