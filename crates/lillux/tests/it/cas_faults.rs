//! The store under faults, with the real binary: full disk, little memory, killed processes,
//! concurrent processes.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lillux::cas::Cas;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process_group, set_child_subreaper, waitpgid,
};
use serde_json::Value;
use tempfile::TempDir;

const LILLUX: &str = env!("CARGO_BIN_EXE_lillux");

fn store_path() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("store");
    (dir, root)
}

fn cas(words: &[&str], root: &Path) -> Command {
    let mut command = Command::new(LILLUX);
    command.arg("cas").args(words).arg("--root").arg(root);
    command
}

fn answer(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn temporary_files(root: &Path) -> usize {
    fs::read_dir(root.join("tmp")).unwrap().count()
}

#[test]
fn full_disk_is_reported_and_leaves_no_files() {
    let (dir, mount) = store_path();
    fs::create_dir(&mount).unwrap();
    let big = dir.path().join("big");
    let json = format!("[\"{}\"]", "x".repeat(3 << 20));
    fs::write(&big, json).unwrap();
    // A file system of 1 MiB in a private mount namespace.
    let script = r#"
        mount -t tmpfs -o size=1m none "$1" || exit 77
        "$2" cas put --root "$1/s" --file "$3"; echo "exit $?"
        "$2" cas put --root "$1/s" --file "$3" --object; echo "exit $?"
        find "$1/s" -type f -size +0
        echo small | "$2" cas put --root "$1/s" >/dev/null; echo "exit $?"
        "$2" cas verify --root "$1/s"; echo "exit $?"
    "#;
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["sh", "-c", script, "sh"])
        .args([&mount, Path::new(LILLUX), &big]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = stdout.lines().collect();
    let [
        first,
        "exit 1",
        second,
        "exit 1",
        "exit 0",
        verified,
        "exit 0",
    ] = lines[..]
    else {
        panic!("{stdout}");
    };
    for refused in [first, second] {
        let error = serde_json::from_str::<Value>(refused).unwrap()["error"].take();
        assert_eq!(error["code"], "disk_full");
        assert!(error["hint"].is_string(), "{error}");
    }
    assert_eq!(serde_json::from_str::<Value>(verified).unwrap()["blobs"], 1);
}

#[test]
fn large_blob_needs_little_memory() {
    const SIZE: u64 = 300 << 20;
    let (dir, root) = store_path();
    let big = dir.path().join("big");
    File::create(&big).unwrap().set_len(SIZE).unwrap();
    let limited = |words: &[&str]| {
        let mut command = Command::new("sh");
        // 64 MiB of address space for code, stacks and heap.
        command.args(["-c", "ulimit -v 65536 && exec \"$@\"", "sh", LILLUX, "cas"]);
        command
            .args(words)
            .arg("--root")
            .arg(&root)
            .current_dir(&dir);
        answer(&mut command)
    };
    let put = limited(&["put", "--file", "big"]);
    assert_eq!(
        (&put["success"], &put["size"]),
        (&true.into(), &SIZE.into())
    );
    let hash = put["hash"].as_str().unwrap();
    assert_eq!(limited(&["verify", hash])["bytes"], SIZE);
    assert_eq!(limited(&["get", hash, "--out", "copy"])["size"], SIZE);
    assert_eq!(fs::metadata(dir.path().join("copy")).unwrap().len(), SIZE);
}

#[test]
fn killed_put_leaves_only_a_temporary_file_for_gc() {
    let (_dir, root) = store_path();
    Cas::open(&root).unwrap();
    let mut put = cas(&["put"], &root).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = put.stdin.take().unwrap();
    // More than the capacity of a pipe: when it is written, the put has started to store it.
    stdin.write_all(&vec![7; 1 << 20]).unwrap();
    assert_eq!(temporary_files(&root), 1);
    let gc = ["gc", "--keep-nothing", "--grace", "0"];
    assert_eq!(
        answer(&mut cas(&gc, &root))["removed_temporary"],
        0,
        "it is in use"
    );
    put.kill().unwrap();
    put.wait().unwrap();
    assert_eq!(temporary_files(&root), 1);
    assert_eq!(answer(&mut cas(&["verify"], &root))["blobs"], 0);
    assert_eq!(answer(&mut cas(&gc, &root))["removed_temporary"], 1);
    assert_eq!(temporary_files(&root), 0);
}

#[test]
fn killed_writers_never_corrupt_the_store() {
    let (dir, root) = store_path();
    let big = dir.path().join("big");
    fs::write(&big, vec![1; 200_000]).unwrap();
    let forever = r#"
        i=0
        while :; do
            i=$((i + 1))
            { echo "$i"; cat "$3"; } | "$1" cas put --root "$2"
            echo "[$i, 0.5]" | "$1" cas put --root "$2" --object
        done
    "#;
    // Children of a killed shell become children of this process.
    set_child_subreaper(Some(getpid())).unwrap();
    for round in 1..=10_u64 {
        // Two writers of the same content.
        let writers = [1, 2].map(|_| {
            Command::new("sh")
                .args(["-c", forever, "sh", LILLUX])
                .args([&root, &big])
                .stdout(Stdio::null())
                .process_group(0)
                .spawn()
                .unwrap()
        });
        std::thread::sleep(Duration::from_millis(23 * round));
        for mut writer in writers {
            let group = Pid::from_child(&writer);
            kill_process_group(group, Signal::KILL).unwrap();
            writer.wait().unwrap();
            // A put that is flushing dies later than its shell and locks its temporary file
            // until then.
            while waitpgid(group, WaitOptions::empty()).is_ok() {}
        }
        let report = Cas::open(&root).unwrap().verify_all().unwrap();
        assert!(report.is_sound() && report.strays.is_empty(), "{report:?}");
    }
    let report = Cas::open(&root).unwrap().verify_all().unwrap();
    assert!(report.blobs > 0 && report.objects > 0, "{report:?}");
    answer(&mut cas(&["gc", "--keep-nothing", "--grace", "0"], &root));
    assert_eq!(temporary_files(&root), 0);
}

#[test]
fn concurrent_processes_store_the_same_content_once() {
    let (dir, root) = store_path();
    let big = dir.path().join("big");
    fs::write(&big, vec![3; 1 << 20]).unwrap();
    let puts: Vec<_> = (0..12)
        .map(|_| {
            let mut put = cas(&["put"], &root);
            put.arg("--file")
                .arg(&big)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut put in puts {
        assert!(put.wait().unwrap().success());
    }
    let report = Cas::open(&root).unwrap().verify_all().unwrap();
    assert!(report.is_sound() && report.strays.is_empty(), "{report:?}");
    assert_eq!((report.blobs, report.bytes), (1, 1 << 20));
    assert_eq!(temporary_files(&root), 0);
}
