//! Metadata of comment headers: no panic, and places that are in the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rye_items::ItemKind;

fuzz_target!(|bytes: &[u8]| {
    rye_fuzz::metadata(bytes, ".sh", ItemKind::Tool);
    rye_fuzz::metadata(bytes, ".go", ItemKind::Tool);
});
