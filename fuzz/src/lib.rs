//! What several fuzz targets share.

use std::sync::LazyLock;

use rye_items::ItemKind;
use rye_items::metadata::{Extractors, extract};

static SHIPPED: LazyLock<Extractors> = LazyLock::new(|| {
    let table = include_bytes!("../../system/.ai/tools/rye/core/extractors/tool_extractor.yaml");
    Extractors::from_yaml(table).expect("the shipped table is valid")
});

/// Reads a file's metadata: no panic, every place is in the file, and what was
/// read once is read again.
pub fn metadata(bytes: &[u8], extension: &str, kind: ItemKind) {
    let lines = bytes.split(|&b| b == b'\n').count();
    let read = extract(bytes, extension, kind, &SHIPPED);
    match &read {
        Ok(metadata) => {
            for (name, field) in &metadata.fields {
                assert!(field.at.line as usize <= lines, "{name} is beyond the end");
            }
            let _ = metadata.parameter_names();
            if kind != ItemKind::Config {
                assert_eq!(
                    metadata.value("risk_level").is_some(),
                    metadata.risk_level().is_some()
                );
                assert_eq!(
                    metadata.value("version").is_some(),
                    metadata.version().is_some()
                );
                assert!(metadata.timeout().is_none_or(|seconds| seconds > 0.0));
            }
        }
        Err(error) => {
            assert!(error.excerpt.position.line as usize <= lines);
            assert!(!error.message.is_empty() && !error.message.contains('\n'));
        }
    }
    assert_eq!(read, extract(bytes, extension, kind, &SHIPPED));
}
