//! Metadata of YAML, and of the table of extractors: never panics, and positions are inside the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rye_items::ItemKind;
use rye_items::metadata::Extractors;

fuzz_target!(|bytes: &[u8]| {
    rye_fuzz::metadata(bytes, ".yaml", ItemKind::Tool);
    rye_fuzz::metadata(bytes, ".yaml", ItemKind::Config);
    let _ = Extractors::from_yaml(bytes);
});
