//! What a call holds in memory while a tool prints without end. A file of its
//! own, since the memory of a process is that of all its tests.

use std::fs;

use crate::support::World;
use serde_json::json;

/// The most memory this process has had, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse().unwrap()
}

#[tokio::test]
async fn long_output_takes_little_memory() {
    let world = World::new();
    world.script("it", "head -c $((256 << 20)) /dev/zero\n");
    world.script("first", "head -c $((2 << 20)) /dev/zero\n");
    world.run("first", json!({})).await;
    let before = peak();
    let envelope = world.run("it", json!({})).await;
    assert_eq!(envelope.metadata["stdout_bytes"], 256 << 20);
    let grown = peak() - before;
    assert!(grown < 48 << 10, "{grown} KiB");
}
