//! Memory use of a call whose tool prints a lot.

use std::fs;

use crate::support::TestEnv;
use serde_json::json;

/// Peak memory of this process in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse().unwrap()
}

#[tokio::test]
async fn long_output_uses_little_memory() {
    let env = TestEnv::new();
    env.script("it", "head -c $((256 << 20)) /dev/zero\n");
    env.script("first", "head -c $((2 << 20)) /dev/zero\n");
    env.run("first", json!({})).await;
    let before = peak();
    let result = env.run("it", json!({})).await;
    assert_eq!(result.metadata["stdout_bytes"], 256 << 20);
    let grown = peak() - before;
    assert!(grown < 48 << 10, "{grown} KiB");
}
