//! The table of extensions and places.
use super::SHIPPED;
use crate::ItemKind;

#[test]
fn the_shipped_table_is_read() {
    let config: Vec<_> = SHIPPED.extensions(ItemKind::Config).collect();
    assert_eq!(config, [".toml", ".yaml", ".yml"]);
    let directive: Vec<_> = SHIPPED.extensions(ItemKind::Directive).collect();
    assert_eq!(directive, [".md"]);
}
