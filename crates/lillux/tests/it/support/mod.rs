//! Helpers of the process tests: mark processes and find them in `/proc`.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lillux::process::Handle;

/// Name of the variable that marks a process and all its descendants.
pub(crate) const MARK: &str = "LILLUX_TEST_MARK";

/// A unique mark.
pub(crate) fn mark() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("mark-{}-{number}-end", std::process::id())
}

/// The living processes whose environment or arguments contain the mark.
pub(crate) fn marked(mark: &str) -> Vec<Handle> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let dir = entry.unwrap().path();
        let contains_mark = |file: &str| {
            fs::read(dir.join(file)).is_ok_and(|bytes| {
                bytes
                    .windows(mark.len())
                    .any(|window| window == mark.as_bytes())
            })
        };
        let Some(pid) = dir.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
            continue;
        };
        if (contains_mark("environ") || contains_mark("cmdline"))
            && let Ok(handle) = Handle::from_pid(pid)
        {
            found.push(handle);
        }
    }
    found
}

/// Waits until no marked process is left, and fails after some seconds. Checks repeatedly, because
/// a process may fork while it is being ended.
pub(crate) fn assert_all_end(mark: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = marked(mark);
        let Some(one) = left.first() else { return };
        let ended = one.wait(Some(deadline.saturating_duration_since(Instant::now())));
        assert!(ended.unwrap(), "still alive: {left:?}");
    }
}

/// Path of the binary under test.
pub(crate) fn lillux() -> &'static str {
    env!("CARGO_BIN_EXE_lillux")
}
