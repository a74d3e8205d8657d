//! `lillux cas`: output and exit codes.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use assert_cmd::Command;
use insta::assert_snapshot;
use lillux::Hash;
use tempfile::TempDir;

/// A working directory and a transcript of commands and their output.
struct Session {
    dir: TempDir,
    transcript: String,
}

impl Session {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let transcript = String::new();
        Self { dir, transcript }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `lillux cas` in the directory and records the output.
    fn cas(&mut self, line: &str, stdin: impl Into<Vec<u8>>) -> &mut Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lillux"));
        command.arg("cas").args(line.split_whitespace());
        self.record(line, command.current_dir(&self.dir).write_stdin(stdin))
    }

    fn record(&mut self, line: &str, command: &mut Command) -> &mut Self {
        let output = command.output().unwrap();
        let code = output.status.code().unwrap();
        let _ = writeln!(self.transcript, "$ lillux cas {line}\nexit {code}");
        for bytes in [output.stdout, output.stderr] {
            for line in String::from_utf8(bytes).unwrap().lines() {
                let _ = writeln!(self.transcript, "{}", format!("  {line}").trim_end());
            }
        }
        self
    }

    fn blob(&self, hash: &Hash) -> PathBuf {
        let hex = hash.to_hex();
        self.path(&format!("s/blobs/{}/{}/{hex}", &hex[..2], &hex[2..4]))
    }

    fn corrupt(&self, hash: &Hash) {
        let path = self.blob(hash);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(path, "tampered").unwrap();
    }

    /// The transcript with shortened hashes and without the path of the directory.
    fn transcript(&self) -> String {
        let dir = self.dir.path().display().to_string();
        let text = self.transcript.replace(&dir, "[DIR]");
        let mut short = String::new();
        let mut rest = text.as_str();
        while let Some(start) = find_hash(rest) {
            let _ = write!(short, "{}{}…", &rest[..start], &rest[start..start + 8]);
            rest = &rest[start + 64..];
        }
        short + rest
    }
}

fn find_hash(text: &str) -> Option<usize> {
    let is_hash = |window: &[u8]| {
        window
            .iter()
            .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    text.as_bytes().windows(64).position(is_hash)
}

#[test]
fn blobs_and_objects_are_stored_and_read_back() {
    let mut session = Session::new();
    fs::write(session.path("bytes"), [0, 159, 146, 150]).unwrap();
    let text = Hash::digest("hello\n");
    let bytes = Hash::digest([0, 159, 146, 150]);
    let object = Hash::digest(r#"{"a":100.0,"b":123456789012345678901234567890}"#);
    session
        .cas("put --root s", "hello\n")
        .cas("put --root s", "hello\n")
        .cas("put --root s --file bytes", "")
        .cas(
            "put --root s --object",
            r#"{ "b": 123456789012345678901234567890, "a": 1e2 }"#,
        )
        .cas(&format!("get --root s {text}"), "")
        .cas(&format!("get --root s {text} --raw"), "")
        .cas(&format!("get --root s {bytes}"), "")
        .cas(&format!("get --root s {bytes} --out copy"), "")
        .cas(&format!("get --root s {object}"), "")
        .cas(&format!("has --root s {object}"), "")
        .cas(&format!("has --root s {}", Hash::digest("other")), "")
        .cas("verify --root s", "")
        .cas(&format!("verify --root s {text}"), "");
    assert_eq!(fs::read(session.path("copy")).unwrap(), [0, 159, 146, 150]);
    assert_snapshot!(session.transcript(), @r#"
    $ lillux cas put --root s
    exit 0
      {"success":true,"hash":"5891b5b5…","size":6,"kind":"blob","existed":false}
    $ lillux cas put --root s
    exit 0
      {"success":true,"hash":"5891b5b5…","size":6,"kind":"blob","existed":true}
    $ lillux cas put --root s --file bytes
    exit 0
      {"success":true,"hash":"b02a5911…","size":4,"kind":"blob","existed":false}
    $ lillux cas put --root s --object
    exit 0
      {"success":true,"hash":"c71a2ea0…","size":46,"kind":"object","existed":false}
    $ lillux cas get --root s 5891b5b5…
    exit 0
      {"success":true,"hash":"5891b5b5…","size":6,"kind":"blob","data":"hello\n"}
    $ lillux cas get --root s 5891b5b5… --raw
    exit 0
      hello
    $ lillux cas get --root s b02a5911…
    exit 0
      {"success":true,"hash":"b02a5911…","size":4,"kind":"blob","data_base64":"AJ+Slg=="}
    $ lillux cas get --root s b02a5911… --out copy
    exit 0
      {"success":true,"hash":"b02a5911…","size":4,"kind":"blob","out":"copy"}
    $ lillux cas get --root s c71a2ea0…
    exit 0
      {"success":true,"hash":"c71a2ea0…","size":46,"kind":"object","object":{"a":100.0,"b":123456789012345678901234567890}}
    $ lillux cas has --root s c71a2ea0…
    exit 0
      {"success":true,"hash":"c71a2ea0…","exists":true,"kind":"object"}
    $ lillux cas has --root s d9298a10…
    exit 0
      {"success":true,"hash":"d9298a10…","exists":false,"kind":null}
    $ lillux cas verify --root s
    exit 0
      {"success":true,"objects":1,"blobs":2,"bytes":56,"corrupted":[],"unreadable":[],"strays":[]}
    $ lillux cas verify --root s 5891b5b5…
    exit 0
      {"success":true,"objects":0,"blobs":1,"bytes":6,"corrupted":[],"unreadable":[],"strays":[]}
    "#);
}

#[test]
fn corrupted_content_exits_with_3_and_is_repaired_by_a_put() {
    let mut session = Session::new();
    let hash = Hash::digest("genuine");
    session.cas("put --root s", "genuine");
    session.corrupt(&hash);
    session
        .cas(&format!("get --root s {hash}"), "")
        .cas(&format!("get --root s {hash} --raw"), "")
        .cas(&format!("get --root s {hash} --out copy"), "")
        .cas(&format!("verify --root s {hash}"), "")
        .cas("verify --root s", "")
        .cas("put --root s", "genuine")
        .cas("verify --root s", "");
    assert!(!session.path("copy").exists());
    assert_snapshot!(session.transcript(), @r#"
    $ lillux cas put --root s
    exit 0
      {"success":true,"hash":"dfec2247…","size":7,"kind":"blob","existed":false}
    $ lillux cas get --root s dfec2247…
    exit 3
      {"success":false,"error":{"code":"corrupted","message":"[DIR]/s/blobs/df/ec/dfec2247… is corrupted: expected the hash dfec2247…, found d121be31…","hint":"if you have the content, `lillux cas put` repairs the file"}}
      error: [DIR]/s/blobs/df/ec/dfec2247… is corrupted: expected the hash dfec2247…, found d121be31…
        hint: if you have the content, `lillux cas put` repairs the file
    $ lillux cas get --root s dfec2247… --raw
    exit 3
      error: [DIR]/s/blobs/df/ec/dfec2247… is corrupted: expected the hash dfec2247…, found d121be31…
        hint: if you have the content, `lillux cas put` repairs the file
    $ lillux cas get --root s dfec2247… --out copy
    exit 3
      {"success":false,"error":{"code":"corrupted","message":"[DIR]/s/blobs/df/ec/dfec2247… is corrupted: expected the hash dfec2247…, found d121be31…","hint":"if you have the content, `lillux cas put` repairs the file"}}
      error: [DIR]/s/blobs/df/ec/dfec2247… is corrupted: expected the hash dfec2247…, found d121be31…
        hint: if you have the content, `lillux cas put` repairs the file
    $ lillux cas verify --root s dfec2247…
    exit 3
      {"success":false,"objects":0,"blobs":1,"bytes":8,"corrupted":[{"path":"[DIR]/s/blobs/df/ec/dfec2247…","expected":"dfec2247…","found":"d121be31…"}],"unreadable":[],"strays":[]}
    $ lillux cas verify --root s
    exit 3
      {"success":false,"objects":0,"blobs":1,"bytes":8,"corrupted":[{"path":"[DIR]/s/blobs/df/ec/dfec2247…","expected":"dfec2247…","found":"d121be31…"}],"unreadable":[],"strays":[]}
    $ lillux cas put --root s
    exit 0
      {"success":true,"hash":"dfec2247…","size":7,"kind":"blob","existed":false}
    $ lillux cas verify --root s
    exit 0
      {"success":true,"objects":0,"blobs":1,"bytes":7,"corrupted":[],"unreadable":[],"strays":[]}
    "#);
}

#[test]
fn gc_reports_its_result_and_aborts_on_missing_roots() {
    let mut session = Session::new();
    let (kept, lost) = (Hash::digest("kept"), Hash::digest("lost"));
    fs::write(session.path("roots"), format!("# roots\n\n  {kept}\n")).unwrap();
    fs::write(session.path("wrong"), format!("{kept}\nnonsense\n")).unwrap();
    session
        .cas("put --root s", "kept")
        .cas("put --root s", "lost")
        .cas("gc --root s", "")
        .cas("gc --root s --keep-from -", "")
        .cas("gc --root s --keep-from wrong", "")
        .cas(
            &format!(
                "gc --root s --grace 0 --keep {kept} {}",
                Hash::digest("absent")
            ),
            "",
        )
        .cas(&format!("gc --root s --keep {kept}"), "")
        .cas("gc --root s --keep-from roots --grace 0 --dry-run", "")
        .cas("gc --root s --keep-from roots --grace 0", "")
        .cas(&format!("has --root s {lost}"), "")
        .cas("gc --root s --keep-nothing --grace 0", "");
    assert_snapshot!(session.transcript(), @r#"
    $ lillux cas put --root s
    exit 0
      {"success":true,"hash":"79f076ab…","size":4,"kind":"blob","existed":false}
    $ lillux cas put --root s
    exit 0
      {"success":true,"hash":"76f75e61…","size":4,"kind":"blob","existed":false}
    $ lillux cas gc --root s
    exit 2
      {"success":false,"error":{"code":"usage","message":"the following required arguments were not provided: <--keep <HASH>...|--keep-from <FILE>|--keep-nothing>"}}
      error: the following required arguments were not provided:
        <--keep <HASH>...|--keep-from <FILE>|--keep-nothing>

      Usage: lillux cas gc --root <DIR> <--keep <HASH>...|--keep-from <FILE>|--keep-nothing>

      For more information, try '--help'.
    $ lillux cas gc --root s --keep-from -
    exit 2
      {"success":false,"error":{"code":"usage","message":"the list of hashes to keep is empty","hint":"to keep only recent content, use --keep-nothing"}}
      error: the list of hashes to keep is empty
        hint: to keep only recent content, use --keep-nothing
    $ lillux cas gc --root s --keep-from wrong
    exit 2
      {"success":false,"error":{"code":"usage","message":"wrong, line 2: 'n' at position 0 is not a lower-case hex digit"}}
      error: wrong, line 2: 'n' at position 0 is not a lower-case hex digit
    $ lillux cas gc --root s --grace 0 --keep 79f076ab… 5ad38304…
    exit 1
      {"success":false,"error":{"code":"not_found","message":"garbage collection aborted, nothing was removed: 5ad38304… is not in the store [DIR]/s"}}
      error: garbage collection aborted, nothing was removed: 5ad38304… is not in the store [DIR]/s
    $ lillux cas gc --root s --keep 79f076ab…
    exit 0
      {"success":true,"kept":2,"removed":0,"freed_bytes":0,"removed_temporary":0}
    $ lillux cas gc --root s --keep-from roots --grace 0 --dry-run
    exit 0
      {"success":true,"would_keep":1,"would_remove":["76f75e61…"],"would_free_bytes":4,"would_remove_temporary":0}
    $ lillux cas gc --root s --keep-from roots --grace 0
    exit 0
      {"success":true,"kept":1,"removed":1,"freed_bytes":4,"removed_temporary":0}
    $ lillux cas has --root s 76f75e61…
    exit 0
      {"success":true,"hash":"76f75e61…","exists":false,"kind":null}
    $ lillux cas gc --root s --keep-nothing --grace 0
    exit 0
      {"success":true,"kept":0,"removed":1,"freed_bytes":4,"removed_temporary":0}
    "#);
}

#[test]
fn failures_are_explained_with_hints() {
    let mut session = Session::new();
    let hash = Hash::digest("x");
    fs::write(session.path("file"), "").unwrap();
    session
        .cas(&format!("get --root missing {hash}"), "")
        .cas(&format!("get --root missing {hash} --raw"), "")
        .cas("verify --root file", "")
        .cas("put --root file", "x")
        .cas("put --root file/below", "x")
        .cas("put --root s --file missing", "")
        .cas("put --root s --object", r#"{"a": {"b": 1, "b": 2}}"#)
        .cas("put --root s --object", "{\"a\":\n oops}")
        .cas("put --root s", "x")
        .cas(&format!("get --root s {}", Hash::digest("y")), "")
        .cas(&format!("get --root s {hash} --out /dev/null"), "")
        .cas(&format!("get --root s {hash} --out missing/x"), "")
        .cas(&format!("get --root s {hash} --out x --raw"), "")
        .cas("get --root s ../../etc/passwd", "")
        .cas("has --root s ABCDEF", "")
        .cas("put", "");
    assert!(!session.path("missing").exists(), "reading created a store");
    assert_snapshot!(session.transcript(), @r#"
    $ lillux cas get --root missing 2d711642…
    exit 1
      {"success":false,"error":{"code":"no_store","message":"there is no store in [DIR]/missing","hint":"check --root; `lillux cas put` creates a store"}}
      error: there is no store in [DIR]/missing
        hint: check --root; `lillux cas put` creates a store
    $ lillux cas get --root missing 2d711642… --raw
    exit 1
      error: there is no store in [DIR]/missing
        hint: check --root; `lillux cas put` creates a store
    $ lillux cas verify --root file
    exit 1
      {"success":false,"error":{"code":"not_a_directory","message":"the root of the store is not a directory: [DIR]/file"}}
      error: the root of the store is not a directory: [DIR]/file
    $ lillux cas put --root file
    exit 1
      {"success":false,"error":{"code":"not_a_directory","message":"the root of the store is not a directory: [DIR]/file"}}
      error: the root of the store is not a directory: [DIR]/file
    $ lillux cas put --root file/below
    exit 1
      {"success":false,"error":{"code":"io","message":"cannot open the store in [DIR]/file/below: Not a directory (os error 20)"}}
      error: cannot open the store in [DIR]/file/below: Not a directory (os error 20)
    $ lillux cas put --root s --file missing
    exit 1
      {"success":false,"error":{"code":"not_found","message":"cannot read missing: No such file or directory (os error 2)"}}
      error: cannot read missing: No such file or directory (os error 2)
    $ lillux cas put --root s --object
    exit 1
      {"success":false,"error":{"code":"not_json","message":"cannot store as an object: duplicate key \"b\" at /a"}}
      error: cannot store as an object: duplicate key "b" at /a
    $ lillux cas put --root s --object
    exit 1
      {"success":false,"error":{"code":"not_json","message":"cannot store as an object: not JSON: expected value at line 2 column 2"}}
      error: cannot store as an object: not JSON: expected value at line 2 column 2
    $ lillux cas put --root s
    exit 0
      {"success":true,"hash":"2d711642…","size":1,"kind":"blob","existed":false}
    $ lillux cas get --root s a1fce436…
    exit 1
      {"success":false,"error":{"code":"not_found","message":"a1fce436… is not in the store [DIR]/s"}}
      error: a1fce436… is not in the store [DIR]/s
    $ lillux cas get --root s 2d711642… --out /dev/null
    exit 2
      {"success":false,"error":{"code":"usage","message":"/dev/null is not a regular file","hint":"write to standard output with --raw"}}
      error: /dev/null is not a regular file
        hint: write to standard output with --raw
    $ lillux cas get --root s 2d711642… --out missing/x
    exit 1
      {"success":false,"error":{"code":"not_found","message":"cannot write missing/x: No such file or directory (os error 2)"}}
      error: cannot write missing/x: No such file or directory (os error 2)
    $ lillux cas get --root s 2d711642… --out x --raw
    exit 2
      {"success":false,"error":{"code":"usage","message":"the argument '--out <FILE>' cannot be used with '--raw'"}}
      error: the argument '--out <FILE>' cannot be used with '--raw'

      Usage: lillux cas get --root <DIR> --out <FILE> <HASH>

      For more information, try '--help'.
    $ lillux cas get --root s ../../etc/passwd
    exit 2
      {"success":false,"error":{"code":"usage","message":"invalid value '../../etc/passwd' for '<HASH>': '.' at position 0 is not a lower-case hex digit"}}
      error: invalid value '../../etc/passwd' for '<HASH>': '.' at position 0 is not a lower-case hex digit

      For more information, try '--help'.
    $ lillux cas has --root s ABCDEF
    exit 2
      {"success":false,"error":{"code":"usage","message":"invalid value 'ABCDEF' for '<HASH>': 'A' at position 0 is not a lower-case hex digit"}}
      error: invalid value 'ABCDEF' for '<HASH>': 'A' at position 0 is not a lower-case hex digit

      For more information, try '--help'.
    $ lillux cas put
    exit 2
      {"success":false,"error":{"code":"usage","message":"the following required arguments were not provided: --root <DIR>"}}
      error: the following required arguments were not provided:
        --root <DIR>

      Usage: lillux cas put --root <DIR>

      For more information, try '--help'.
    "#);
}

#[test]
fn content_too_large_for_json_is_rejected_with_a_hint() {
    let mut session = Session::new();
    let bytes = vec![b'x'; 16 * 1024 * 1024 + 1];
    let hash = Hash::digest(&bytes);
    session
        .cas("put --root s", bytes)
        .cas(&format!("get --root s {hash}"), "")
        .cas(&format!("get --root s {hash} --out copy"), "");
    assert_eq!(
        fs::metadata(session.path("copy")).unwrap().len(),
        16 * 1024 * 1024 + 1
    );
    assert_snapshot!(session.transcript(), @r#"
    $ lillux cas put --root s
    exit 0
      {"success":true,"hash":"991bc82a…","size":16777217,"kind":"blob","existed":false}
    $ lillux cas get --root s 991bc82a…
    exit 2
      {"success":false,"error":{"code":"too_large","message":"991bc82a… has 16777217 bytes, too many for a JSON object","hint":"write it to a file with --out FILE, or to standard output with --raw"}}
      error: 991bc82a… has 16777217 bytes, too many for a JSON object
        hint: write it to a file with --out FILE, or to standard output with --raw
    $ lillux cas get --root s 991bc82a… --out copy
    exit 0
      {"success":true,"hash":"991bc82a…","size":16777217,"kind":"blob","out":"copy"}
    "#);
}

#[test]
fn output_file_is_replaced_through_links() {
    let mut session = Session::new();
    fs::write(session.path("target"), "old").unwrap();
    std::os::unix::fs::symlink("target", session.path("link")).unwrap();
    session.cas("put --root s", "new");
    session.cas(
        &format!("get --root s {} --out link", Hash::digest("new")),
        "",
    );
    assert_eq!(fs::read(session.path("target")).unwrap(), b"new");
    assert!(session.path("link").is_symlink());
    let names = fs::read_dir(&session.dir).unwrap().count();
    assert_eq!(names, 3, "a temporary file was left");
}

#[test]
fn help_shows_examples() {
    for command in ["put", "get", "has", "verify", "gc"] {
        let output = Command::new(env!("CARGO_BIN_EXE_lillux"))
            .args(["cas", command, "--help"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains(&format!("lillux cas {command} --root store")),
            "{text}"
        );
    }
}

#[test]
fn denied_permission_exits_with_4() {
    let mut session = Session::new();
    session.cas("put --root s", "x");
    session.transcript.clear();
    fs::create_dir(session.path("locked")).unwrap();
    let set = |name: &str, mode| {
        fs::set_permissions(session.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("locked", 0o000);
    set("s/blobs", 0o000);
    set("s/tmp", 0o555);
    set("", 0o755);
    // Permissions do not apply to root, so run as another user, who may not have access to the
    // original binary. `cp` copies it, because a file that this process has open for writing
    // cannot be executed.
    let binary = session.path("lillux");
    let copied = Command::new("cp")
        .args([env!("CARGO_BIN_EXE_lillux").as_ref(), binary.as_path()])
        .output();
    assert!(copied.unwrap().status.success());
    let is_root = rustix::process::geteuid().is_root();
    for line in [
        "put --root locked/store".to_owned(),
        "verify --root locked/store".to_owned(),
        "verify --root s".to_owned(),
        format!("get --root s {}", Hash::digest("x")),
        "put --root s".to_owned(),
    ] {
        let mut command = std::process::Command::new(&binary);
        command
            .arg("cas")
            .args(line.split_whitespace())
            .current_dir(&session.dir);
        if is_root {
            command.uid(65534).gid(65534);
        }
        session.record(&line, Command::from_std(command).write_stdin("y"));
    }
    for name in ["locked", "s/blobs", "s/tmp"] {
        fs::set_permissions(session.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_snapshot!(session.transcript(), @r#"
    $ lillux cas put --root locked/store
    exit 4
      {"success":false,"error":{"code":"permission","message":"cannot open the store in [DIR]/locked/store: Permission denied (os error 13)"}}
      error: cannot open the store in [DIR]/locked/store: Permission denied (os error 13)
    $ lillux cas verify --root locked/store
    exit 4
      {"success":false,"error":{"code":"permission","message":"cannot open the store in [DIR]/locked/store: Permission denied (os error 13)"}}
      error: cannot open the store in [DIR]/locked/store: Permission denied (os error 13)
    $ lillux cas verify --root s
    exit 4
      {"success":false,"error":{"code":"permission","message":"cannot read the directory [DIR]/s/blobs: Permission denied (os error 13)"}}
      error: cannot read the directory [DIR]/s/blobs: Permission denied (os error 13)
    $ lillux cas get --root s 2d711642…
    exit 4
      {"success":false,"error":{"code":"permission","message":"cannot read [DIR]/s/blobs/2d/71/2d711642…: Permission denied (os error 13)"}}
      error: cannot read [DIR]/s/blobs/2d/71/2d711642…: Permission denied (os error 13)
    $ lillux cas put --root s
    exit 4
      {"success":false,"error":{"code":"permission","message":"cannot create a temporary file in [DIR]/s/tmp: Permission denied (os error 13)"}}
      error: cannot create a temporary file in [DIR]/s/tmp: Permission denied (os error 13)
    "#);
}
