//! Counts the open file descriptors of its process, so it is a separate test binary.

#![expect(clippy::unwrap_used, reason = "tests may panic")]

#[path = "it/support/mod.rs"]
#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::fs;

use lillux::process::{Command, Supervisor};
use support::{MARK, mark, marked};

#[tokio::test]
async fn many_calls_leak_no_descriptors_and_no_processes() {
    let supervisor = Supervisor::start().unwrap();
    let mark = mark();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let call = || Command::new("true").env(MARK, &mark);
    supervisor.exec(call()).await.unwrap();
    let before = descriptors();
    for _ in 0..200 {
        supervisor.exec(call()).await.unwrap();
        supervisor.exec(Command::new("/nowhere")).await.unwrap_err();
    }
    assert_eq!(descriptors(), before);
    assert_eq!(marked(&mark), []);
}
