//! Metadata of Python: never panics, and positions are inside the file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rye_items::ItemKind;

fuzz_target!(|bytes: &[u8]| {
    rye_fuzz::metadata(bytes, ".py", ItemKind::Tool);
});
