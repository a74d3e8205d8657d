//! What the process tests share: marked processes, found again through `/proc`.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lillux::process::Handle;

/// The name of the variable that marks a process and all its descendants.
pub(crate) const MARK: &str = "LILLUX_TEST_MARK";

/// A text that no other test and no other run has.
pub(crate) fn mark() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("mark-{}-{number}-end", std::process::id())
}

/// The living processes whose environment or arguments hold the mark.
pub(crate) fn marked(mark: &str) -> Vec<Handle> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let folder = entry.unwrap().path();
        let holds = |file: &str| {
            fs::read(folder.join(file)).is_ok_and(|bytes| {
                bytes
                    .windows(mark.len())
                    .any(|window| window == mark.as_bytes())
            })
        };
        let Some(pid) = folder
            .file_name()
            .and_then(|name| name.to_str()?.parse().ok())
        else {
            continue;
        };
        if (holds("environ") || holds("cmdline"))
            && let Ok(handle) = Handle::from_pid(pid)
        {
            found.push(handle);
        }
    }
    found
}

/// Waits until no marked process is left, and fails if one is still there after some seconds.
/// Looks more than once: a process may fork while it is being ended.
pub(crate) fn assert_all_end(mark: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = marked(mark);
        let Some(one) = left.first() else { return };
        let ended = one.wait(Some(deadline.saturating_duration_since(Instant::now())));
        assert!(ended.unwrap(), "still there: {left:?}");
    }
}

/// The path of the binary under test.
pub(crate) fn lillux() -> &'static str {
    env!("CARGO_BIN_EXE_lillux")
}
