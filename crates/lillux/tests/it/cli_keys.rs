//! `lillux keypair`, `sign`, `verify` and `envelope`: output and exit codes.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use assert_cmd::Command;
use insta::assert_snapshot;
use lillux::envelope::{OpeningKey, Secret, seal};
use lillux::keys::{IfExists, KeyPairFiles, SigningKey};
use serde_json::Value;
use tempfile::TempDir;

/// A published signature.
const SIGNATURE: &str =
    "UllOnPErqDGGEoj1eiKdg8b2smCCmKsHFebDncF-grTll41zRaGQ5e78eiSLKRy2aEDRXkxdqn21BjRHoDBDDw";

/// A working directory for `lillux`, so that its output contains only relative paths.
struct WorkDir(TempDir);

impl WorkDir {
    /// Creates a signing pair in `signing/` and a sealing pair in `sealing/`.
    fn new() -> Self {
        let work_dir = Self(tempfile::tempdir().unwrap());
        let signing = SigningKey::generate().unwrap();
        signing
            .write_pair(&work_dir.path("signing"), IfExists::Fail)
            .unwrap();
        let opening = OpeningKey::generate().unwrap();
        opening
            .write_pair(&work_dir.path("sealing"), IfExists::Fail)
            .unwrap();
        work_dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
        self.chmod(name, 0o600);
    }

    fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    /// Seals with the library, to the pair in `sealing/`.
    fn seal(&self, name: &str, secret: &[u8], label: &str) {
        let key = OpeningKey::read(&self.path("sealing/private_key.pem")).unwrap();
        let envelope = seal(
            &Secret::new(secret.to_vec()),
            &[key.public().clone()],
            label,
        )
        .unwrap();
        envelope.write_file(&self.path(name)).unwrap();
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lillux"));
        command
            .args(words.split_whitespace())
            .current_dir(self.0.path());
        command
    }

    /// Runs a command line without spaces in arguments and returns exit code, stdout and stderr.
    fn run(&self, words: &str, stdin: impl Into<Vec<u8>>) -> String {
        let out = self.command(words).write_stdin(stdin).output().unwrap();
        format_output(&out)
    }

    /// Runs a command line and returns one field of the printed object.
    fn field(&self, words: &str, stdin: impl Into<Vec<u8>>, field: &str) -> Value {
        let out = self.command(words).write_stdin(stdin).output().unwrap();
        assert!(out.status.success(), "{}", format_output(&out));
        serde_json::from_slice::<Value>(&out.stdout).unwrap()[field].clone()
    }
}

fn format_output(out: &process::Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = out.status.code().unwrap();
    format!(
        "exit {code}\n{}--- stderr\n{}",
        text(&out.stdout),
        text(&out.stderr)
    )
}

/// Replaces values that differ between runs by placeholders.
fn stable_output() -> insta::internals::SettingsBindDropGuard {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"\b[0-9a-f]{16}\b", "[fingerprint]");
    settings.add_filter(r#""[\w-]{86}""#, "\"[signature]\"");
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[time]");
    settings.add_filter(
        r#"("(encapsulated|wrapped_key|commitment|ciphertext)"):"[\w-]+""#,
        "$1:\"[base64url]\"",
    );
    settings.bind_to_scope()
}

/// The public key that belongs to the private key of a directory, and the content of its public
/// key file, if there is one.
fn public_keys(dir: &std::path::Path, kind: &str) -> (String, Option<String>) {
    let files = KeyPairFiles::in_dir(dir);
    let public = fs::read_to_string(&files.public).ok();
    let derived = match kind {
        "signing" => SigningKey::read(&files.private).unwrap().public().to_pem(),
        _ => OpeningKey::read(&files.private).unwrap().public().to_pem(),
    };
    (derived, public)
}

/// System calls that change a directory, and those in between.
const CALLS: [&str; 8] = [
    "write",
    "fsync",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "flock",
];

/// Replaces a pair repeatedly, and kills the program at the first, second, … call of each system
/// call, until it ends normally.
#[test]
fn killed_replacement_leaves_a_matching_pair_or_only_a_private_key() {
    for kind in ["signing", "sealing"] {
        let work_dir = WorkDir::new();
        let dir = work_dir.path(kind);
        let mut interrupted = 0;
        let mut finished = BTreeSet::new();
        for (call, number) in CALLS
            .iter()
            .flat_map(|call| (1..20).map(move |n| (call, n)))
        {
            if finished.contains(call) {
                continue;
            }
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let output = process::Command::new("strace")
                .args(["-f", "-qq", "-o", "/dev/null", "-e", &inject])
                .args([env!("CARGO_BIN_EXE_lillux"), "keypair", "--force"])
                .args(["--kind", kind, "--dir"])
                .arg(&dir)
                .output()
                .unwrap();
            let (derived, public) = public_keys(&dir, kind);
            if let Some(public) = public {
                assert_eq!(derived, public, "{kind}, killed at {call} {number}");
            } else {
                interrupted += 1;
            }
            // Reading the pair restores the missing public key.
            let files = KeyPairFiles::in_dir(&dir);
            let read = match kind {
                "signing" => SigningKey::read_pair(&files).map(drop),
                _ => OpeningKey::read_pair(&files).map(drop),
            };
            read.unwrap();
            let (derived, public) = public_keys(&dir, kind);
            assert_eq!(Some(derived), public, "{kind}, killed at {call} {number}");
            finished.extend(output.status.success().then_some(*call));
        }
        assert_eq!(
            finished.len(),
            CALLS.len(),
            "the program must end normally at last"
        );
        assert!(interrupted > 0, "no run was killed between the two files");
    }
}

#[test]
fn key_pair_is_replaced_only_with_force() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    assert_snapshot!(work_dir.run("keypair --dir a/b", ""), @r#"
    exit 0
    {"success":true,"kind":"signing","fingerprint":"[fingerprint]","private_key":"a/b/private_key.pem","public_key":"a/b/public_key.pem"}
    --- stderr
    "#);
    assert_snapshot!(work_dir.run("keypair --dir c --kind sealing", ""), @r#"
    exit 0
    {"success":true,"kind":"sealing","fingerprint":"[fingerprint]","private_key":"c/private_key.pem","public_key":"c/public_key.pem"}
    --- stderr
    "#);
    assert_snapshot!(work_dir.run("keypair --dir a/b --kind sealing", ""), @r#"
    exit 1
    {"success":false,"error":{"code":"exists","message":"a/b/private_key.pem already exists","hint":"use --force to replace the pair; the old private key is then lost"}}
    --- stderr
    error: a/b/private_key.pem already exists
      hint: use --force to replace the pair; the old private key is then lost
    "#);
    assert_snapshot!(work_dir.run("keypair --dir a/b --kind sealing --force", ""), @r#"
    exit 0
    {"success":true,"kind":"sealing","fingerprint":"[fingerprint]","private_key":"a/b/private_key.pem","public_key":"a/b/public_key.pem"}
    --- stderr
    "#);
    let mode = |name| {
        fs::metadata(work_dir.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    assert_eq!((mode("a/b"), mode("a/b/private_key.pem")), (0o700, 0o600));
    OpeningKey::read(&work_dir.path("a/b/private_key.pem")).unwrap();
}

#[test]
fn key_pair_needs_a_directory_that_only_its_owner_can_write() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    fs::create_dir(work_dir.path("shared")).unwrap();
    work_dir.chmod("shared", 0o1777);
    work_dir.write("file", "");
    assert_snapshot!(work_dir.run("keypair --dir shared", ""), @r#"
    exit 4
    {"success":false,"error":{"code":"permission","message":"directory shared is writable by group or others (mode 1777)","hint":"chmod 700 shared"}}
    --- stderr
    error: directory shared is writable by group or others (mode 1777)
      hint: chmod 700 shared
    "#);
    assert_snapshot!(work_dir.run("keypair --dir file", ""), @r#"
    exit 1
    {"success":false,"error":{"code":"io","message":"cannot write file/public_key.pem: Not a directory (os error 20)"}}
    --- stderr
    error: cannot write file/public_key.pem: Not a directory (os error 20)
    "#);
    assert_snapshot!(work_dir.run("keypair --dir file/below", ""), @r#"
    exit 1
    {"success":false,"error":{"code":"io","message":"cannot create the directory file/below: Not a directory (os error 20)"}}
    --- stderr
    error: cannot create the directory file/below: Not a directory (os error 20)
    "#);
    assert_snapshot!(work_dir.run("keypair --dir x --kind rsa", ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"invalid value 'rsa' for '--kind <KIND>' [possible values: signing, sealing]"}}
    --- stderr
    error: invalid value 'rsa' for '--kind <KIND>'
      [possible values: signing, sealing]

    For more information, try '--help'.
    "#);
}

#[test]
fn signature_verifies_with_a_hash_a_file_and_standard_input() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    work_dir.write("content", "hello");
    let sign = "sign --key signing/private_key.pem";
    assert_snapshot!(work_dir.run(&format!("{sign} --file content"), ""), @r#"
    exit 0
    {"success":true,"signature":"[signature]","fingerprint":"[fingerprint]","hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
    --- stderr
    "#);
    let signature = work_dir.field(sign, "hello", "signature");
    let verify = format!(
        "verify --public-key signing/public_key.pem --signature {}",
        signature.as_str().unwrap()
    );
    assert_snapshot!(work_dir.run(&format!("{verify} --file content"), ""), @r#"
    exit 0
    {"success":true,"valid":true,"fingerprint":"[fingerprint]","hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
    --- stderr
    "#);
    assert_snapshot!(work_dir.run(&verify, "hello"), @r#"
    exit 0
    {"success":true,"valid":true,"fingerprint":"[fingerprint]","hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
    --- stderr
    "#);
    let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_snapshot!(work_dir.run(&format!("{verify} --hash {hash}"), ""), @r#"
    exit 0
    {"success":true,"valid":true,"fingerprint":"[fingerprint]","hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
    --- stderr
    "#);
    assert_snapshot!(work_dir.run(&verify, "other"), @r#"
    exit 3
    {"success":false,"valid":false,"fingerprint":"[fingerprint]","hash":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"}
    --- stderr
    "#);
    assert_snapshot!(work_dir.run(&format!("{verify}== --file content"), ""), @r#"
    exit 0
    {"success":true,"valid":true,"fingerprint":"[fingerprint]","hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
    --- stderr
    "#);
}

#[test]
fn published_signature_verifies() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    work_dir.write(
        "public.pem",
        "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAUbAHc8d2KetZE2I9eb+VaUpTLkNsDJtFaAsY0nTEm7I=\n-----END PUBLIC KEY-----\n",
    );
    let words = "verify --public-key public.pem \
        --hash 765c9e4c3631c1e76b0383691005d92a25cd9d598fd4e1aec509899901ea2cdd \
        --signature";
    assert_snapshot!(work_dir.run(&format!("{words} {SIGNATURE}"), ""), @r#"
    exit 0
    {"success":true,"valid":true,"fingerprint":"[fingerprint]","hash":"765c9e4c3631c1e76b0383691005d92a25cd9d598fd4e1aec509899901ea2cdd"}
    --- stderr
    "#);
}

#[test]
fn invalid_arguments_are_usage_errors() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    let verify = "verify --public-key signing/public_key.pem";
    assert_snapshot!(work_dir.run("sign --key signing/private_key.pem --hash 2CF2", ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"invalid value '2CF2' for '--hash <H>': 'C' at position 1 is not a lower-case hex digit"}}
    --- stderr
    error: invalid value '2CF2' for '--hash <H>': 'C' at position 1 is not a lower-case hex digit

    For more information, try '--help'.
    "#);
    assert_snapshot!(work_dir.run("sign --key signing/private_key.pem --hash 2cf2", ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"invalid value '2cf2' for '--hash <H>': a hash has 64 hex characters, this has 4"}}
    --- stderr
    error: invalid value '2cf2' for '--hash <H>': a hash has 64 hex characters, this has 4

    For more information, try '--help'.
    "#);
    assert_snapshot!(work_dir.run(&format!("{verify} --signature ab/d"), ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"invalid value 'ab/d' for '--signature <S>': '/' at position 2 is not in the base64url alphabet (A-Z a-z 0-9 - _)"}}
    --- stderr
    error: invalid value 'ab/d' for '--signature <S>': '/' at position 2 is not in the base64url alphabet (A-Z a-z 0-9 - _)

    For more information, try '--help'.
    "#);
    assert_snapshot!(work_dir.run(&format!("{verify} --signature abcd"), ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"invalid value 'abcd' for '--signature <S>': a signature has 86 base64url characters (88 with padding), this has 4"}}
    --- stderr
    error: invalid value 'abcd' for '--signature <S>': a signature has 86 base64url characters (88 with padding), this has 4

    For more information, try '--help'.
    "#);
    assert_snapshot!(work_dir.run(&format!("sign --key k --file f --hash {}", "0".repeat(64)), ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"the argument '--file <F>' cannot be used with '--hash <H>'"}}
    --- stderr
    error: the argument '--file <F>' cannot be used with '--hash <H>'

    Usage: lillux sign --key <F> --file <F>

    For more information, try '--help'.
    "#);
    assert_snapshot!(work_dir.run("sign", ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"the following required arguments were not provided: --key <F>"}}
    --- stderr
    error: the following required arguments were not provided:
      --key <F>

    Usage: lillux sign --key <F>

    For more information, try '--help'.
    "#);
    assert_snapshot!(work_dir.run("envelope", ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"'lillux envelope' requires a subcommand but one was not provided [subcommands: seal, open, inspect, help]"}}
    --- stderr
    error: 'lillux envelope' requires a subcommand but one was not provided
      [subcommands: seal, open, inspect, help]

    Usage: lillux envelope <COMMAND>

    For more information, try '--help'.
    "#);
    assert_snapshot!(work_dir.run("envelope seal", ""), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"the following required arguments were not provided: --to <PUB>..."}}
    --- stderr
    error: the following required arguments were not provided:
      --to <PUB>...

    Usage: lillux envelope seal --to <PUB>...

    For more information, try '--help'.
    "#);
}

/// One in 64 signatures begins with a hyphen.
#[test]
fn signature_may_begin_with_a_hyphen() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    let words = format!(
        "verify --public-key signing/public_key.pem --signature -{}A",
        "A".repeat(84)
    );
    assert_snapshot!(work_dir.run(&words, "hello"), @r#"
    exit 3
    {"success":false,"valid":false,"fingerprint":"[fingerprint]","hash":"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}
    --- stderr
    "#);
}

#[test]
fn unusable_keys_are_explained() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    let private = fs::read_to_string(work_dir.path("signing/private_key.pem")).unwrap();
    work_dir.write("cut.pem", &private[..70]);
    work_dir.write("empty.pem", "");
    work_dir.write("twice.pem", private.repeat(2));
    work_dir.write(
        "encrypted.pem",
        private.replace("PRIVATE", "ENCRYPTED PRIVATE"),
    );
    work_dir.write("huge.pem", vec![b'x'; 70_000]);
    for (key, expected) in [
        (
            "none.pem",
            "exit 1 not_found: there is no key file none.pem",
        ),
        (
            "signing",
            "exit 1 bad_key: signing is a directory, not a key file",
        ),
        (
            "signing/public_key.pem",
            "exit 1 bad_key: cannot use the key signing/public_key.pem: expected a private key, found a public key",
        ),
        (
            "sealing/private_key.pem",
            "exit 1 bad_key: cannot use the key sealing/private_key.pem: expected a key for Ed25519, found one for X25519",
        ),
        (
            "cut.pem",
            "exit 1 bad_key: cannot use the key cut.pem: truncated or malformed PEM: there is no matching line `-----END …-----`",
        ),
        (
            "empty.pem",
            "exit 1 bad_key: cannot use the key empty.pem: not PEM: there is no line `-----BEGIN …-----`",
        ),
        (
            "twice.pem",
            "exit 1 bad_key: cannot use the key twice.pem: expected one PEM block, found 2",
        ),
        (
            "encrypted.pem",
            "exit 1 bad_key: cannot use the key encrypted.pem: the private key is encrypted; only unencrypted keys are supported; openssl pkey -in encrypted.pem -out decrypted.pem",
        ),
        (
            "huge.pem",
            "exit 1 bad_key: huge.pem is not a key file: it is larger than 64 KiB",
        ),
    ] {
        let out = work_dir
            .command(&format!("sign --key {key}"))
            .output()
            .unwrap();
        let error = &serde_json::from_slice::<Value>(&out.stdout).unwrap()["error"];
        let hint = error["hint"]
            .as_str()
            .map(|hint| format!("; {hint}"))
            .unwrap_or_default();
        let (code, message) = (
            error["code"].as_str().unwrap(),
            error["message"].as_str().unwrap(),
        );
        assert_eq!(
            format!(
                "exit {} {code}: {message}{hint}",
                out.status.code().unwrap()
            ),
            expected
        );
    }
    assert_snapshot!(work_dir.run(&format!("verify --public-key signing/private_key.pem --signature {SIGNATURE}"), ""), @r#"
    exit 1
    {"success":false,"error":{"code":"bad_key","message":"cannot use the key signing/private_key.pem: expected a public key, found a private key"}}
    --- stderr
    error: cannot use the key signing/private_key.pem: expected a public key, found a private key
    "#);
    work_dir.chmod("signing/private_key.pem", 0o640);
    assert_snapshot!(work_dir.run("sign --key signing/private_key.pem", ""), @r#"
    exit 4
    {"success":false,"error":{"code":"permission","message":"private key signing/private_key.pem is accessible to group or others (mode 0640)","hint":"chmod 600 signing/private_key.pem"}}
    --- stderr
    error: private key signing/private_key.pem is accessible to group or others (mode 0640)
      hint: chmod 600 signing/private_key.pem
    "#);
    assert_snapshot!(work_dir.run("sign --key sealing/private_key.pem", ""), @r#"
    exit 1
    {"success":false,"error":{"code":"bad_key","message":"cannot use the key sealing/private_key.pem: expected a key for Ed25519, found one for X25519"}}
    --- stderr
    error: cannot use the key sealing/private_key.pem: expected a key for Ed25519, found one for X25519
    "#);
}

/// Runs as another user if the test runs as root, to whom permissions do not apply.
#[test]
fn unreadable_key_is_a_permission_error() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    let root = rustix::process::geteuid().is_root();
    // Copy the binary to a directory that the user can access. `cp` copies it, because a program
    // cannot be executed while a child of another test has it open for writing.
    let copied = process::Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_lillux"))
        .arg(work_dir.path("lillux"))
        .status();
    assert!(copied.unwrap().success());
    fs::set_permissions(work_dir.0.path(), Permissions::from_mode(0o755)).unwrap();
    work_dir.chmod("lillux", 0o755);
    work_dir.chmod("signing", 0o755);
    work_dir.chmod("signing/private_key.pem", if root { 0o600 } else { 0 });
    let mut command = process::Command::new(work_dir.path("lillux"));
    command
        .args(["sign", "--key", "signing/private_key.pem"])
        .current_dir(work_dir.0.path());
    if root {
        command.uid(65534).gid(65534);
    }
    assert_snapshot!(format_output(&command.output().unwrap()), @r#"
    exit 4
    {"success":false,"error":{"code":"permission","message":"cannot read signing/private_key.pem: Permission denied (os error 13)"}}
    --- stderr
    error: cannot read signing/private_key.pem: Permission denied (os error 13)
    "#);
}

#[test]
fn secret_is_sealed_inspected_and_opened() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    let other = OpeningKey::generate().unwrap();
    other
        .write_pair(&work_dir.path("other"), IfExists::Fail)
        .unwrap();
    let seal = "envelope seal --to sealing/public_key.pem other/public_key.pem --label db/password";
    assert_snapshot!(work_dir.run(seal, "hunter2"), @r#"
    exit 0
    {"success":true,"envelope":{"envelope":1,"suite":"hpke-base-x25519-hkdf-sha256-chacha20poly1305","created":"[time]","label":"db/password","recipients":[{"fingerprint":"[fingerprint]","encapsulated":"[base64url]","wrapped_key":"[base64url]"},{"fingerprint":"[fingerprint]","encapsulated":"[base64url]","wrapped_key":"[base64url]"}],"commitment":"[base64url]","ciphertext":"[base64url]"}}
    --- stderr
    "#);
    assert_snapshot!(work_dir.run(&format!("{seal} --out db.envelope"), "hunter2"), @r#"
    exit 0
    {"success":true,"out":"db.envelope","label":"db/password","recipients":["[fingerprint]","[fingerprint]"]}
    --- stderr
    "#);
    assert_snapshot!(work_dir.run("envelope inspect --in db.envelope", ""), @r#"
    exit 0
    {"success":true,"version":1,"suite":"hpke-base-x25519-hkdf-sha256-chacha20poly1305","created":"[time]","label":"db/password","recipients":["[fingerprint]","[fingerprint]"],"payload_bytes":7}
    --- stderr
    "#);
    let open = "envelope open --key sealing/private_key.pem";
    assert_snapshot!(work_dir.run(open, fs::read(work_dir.path("db.envelope")).unwrap()), @r#"
    exit 0
    {"success":true,"label":"db/password","created":"[time]","data":"hunter2"}
    --- stderr
    "#);
    assert_snapshot!(work_dir.run(&format!("{open} --in db.envelope --label db/password --out password"), ""), @r#"
    exit 0
    {"success":true,"label":"db/password","created":"[time]","out":"password"}
    --- stderr
    "#);
    assert_eq!(fs::read(work_dir.path("password")).unwrap(), b"hunter2");
    let mode = fs::metadata(work_dir.path("password"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_snapshot!(work_dir.run(&format!("{open} --in db.envelope --label other"), ""), @r#"
    exit 3
    {"success":false,"error":{"code":"label_mismatch","message":"db.envelope: the envelope is labelled \"db/password\", not \"other\""}}
    --- stderr
    error: db.envelope: the envelope is labelled "db/password", not "other"
    "#);
}

#[test]
fn printed_envelope_can_be_opened() {
    let work_dir = WorkDir::new();
    let envelope = work_dir.field(
        "envelope seal --to sealing/public_key.pem",
        "hunter2",
        "envelope",
    );
    let opened = work_dir.field(
        "envelope open --key sealing/private_key.pem",
        format!("{envelope}\n"),
        "data",
    );
    assert_eq!(opened, "hunter2");
}

#[test]
fn binary_secret_is_printed_as_base64() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    work_dir.seal("e", &[0xff, 0, 0xfe], "");
    assert_snapshot!(work_dir.run("envelope open --key sealing/private_key.pem --in e", ""), @r#"
    exit 0
    {"success":true,"label":"","created":"[time]","data_base64":"/wD+"}
    --- stderr
    "#);
}

#[test]
fn unopenable_envelopes_are_integrity_failures() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    work_dir.seal("whole", b"hunter2", "");
    let text = fs::read_to_string(work_dir.path("whole")).unwrap();
    work_dir.write("cut", &text[..200]);
    work_dir.write("respelled", text.replace("\":", "\": "));
    work_dir.write(
        "changed",
        text.replace("\"label\":\"\"", "\"label\":\"mine\""),
    );
    work_dir.write("newer", "{\"envelope\":2}\n");
    work_dir.write("secret", "hunter2");
    let open = "envelope open --key sealing/private_key.pem --in";
    assert_snapshot!(work_dir.run(&format!("{open} cut"), ""), @r#"
    exit 3
    {"success":false,"error":{"code":"bad_envelope","message":"cut: not an envelope, or truncated: invalid JSON at line 1, column 200"}}
    --- stderr
    error: cut: not an envelope, or truncated: invalid JSON at line 1, column 200
    "#);
    assert_snapshot!(work_dir.run(&format!("{open} respelled"), ""), @r#"
    exit 3
    {"success":false,"error":{"code":"bad_envelope","message":"respelled: the envelope was changed: byte 12 differs from the canonical form"}}
    --- stderr
    error: respelled: the envelope was changed: byte 12 differs from the canonical form
    "#);
    assert_snapshot!(work_dir.run(&format!("{open} changed"), ""), @r#"
    exit 3
    {"success":false,"error":{"code":"bad_envelope","message":"changed: the envelope was changed after it was sealed"}}
    --- stderr
    error: changed: the envelope was changed after it was sealed
    "#);
    assert_snapshot!(work_dir.run(&format!("{open} newer"), ""), @r#"
    exit 1
    {"success":false,"error":{"code":"unsupported","message":"newer: unsupported envelope version 2; supported: 1"}}
    --- stderr
    error: newer: unsupported envelope version 2; supported: 1
    "#);
    assert_snapshot!(work_dir.run("envelope inspect --in secret", ""), @r#"
    exit 3
    {"success":false,"error":{"code":"bad_envelope","message":"secret: not an envelope, or truncated: invalid JSON at line 1, column 1"}}
    --- stderr
    error: secret: not an envelope, or truncated: invalid JSON at line 1, column 1
    "#);
    assert_snapshot!(work_dir.run(&format!("{open} none"), ""), @r#"
    exit 1
    {"success":false,"error":{"code":"not_found","message":"cannot read none: No such file or directory (os error 2)"}}
    --- stderr
    error: cannot read none: No such file or directory (os error 2)
    "#);
    OpeningKey::generate()
        .unwrap()
        .write_pair(&work_dir.path("other"), IfExists::Fail)
        .unwrap();
    assert_snapshot!(work_dir.run("envelope open --key other/private_key.pem --in whole", ""), @r#"
    exit 3
    {"success":false,"error":{"code":"not_a_recipient","message":"whole: the envelope is not sealed to key [fingerprint]; it is sealed to [fingerprint]"}}
    --- stderr
    error: whole: the envelope is not sealed to key [fingerprint]; it is sealed to [fingerprint]
    "#);
    assert_snapshot!(work_dir.run("envelope open --key signing/private_key.pem --in whole", ""), @r#"
    exit 1
    {"success":false,"error":{"code":"bad_key","message":"cannot use the key signing/private_key.pem: expected a key for X25519, found one for Ed25519"}}
    --- stderr
    error: cannot use the key signing/private_key.pem: expected a key for X25519, found one for Ed25519
    "#);
    assert_snapshot!(work_dir.run(&format!("{open} whole --out sealing"), ""), @r#"
    exit 1
    {"success":false,"error":{"code":"not_a_file","message":"sealing is not a regular file and is not replaced"}}
    --- stderr
    error: sealing is not a regular file and is not replaced
    "#);
    assert_snapshot!(work_dir.run(&format!("{open} whole --out none/x"), ""), @r#"
    exit 1
    {"success":false,"error":{"code":"not_found","message":"cannot write none/x: No such file or directory (os error 2)"}}
    --- stderr
    error: cannot write none/x: No such file or directory (os error 2)
    "#);
}

#[test]
fn sealing_failures_are_explained() {
    let (_settings, work_dir) = (stable_output(), WorkDir::new());
    let seal = "envelope seal --to sealing/public_key.pem";
    assert_snapshot!(work_dir.run(&format!("{seal} --to sealing/public_key.pem"), "s"), @r#"
    exit 2
    {"success":false,"error":{"code":"usage","message":"duplicate recipient: key [fingerprint]"}}
    --- stderr
    error: duplicate recipient: key [fingerprint]
    "#);
    assert_snapshot!(work_dir.run("envelope seal --to signing/public_key.pem", "s"), @r#"
    exit 1
    {"success":false,"error":{"code":"bad_key","message":"cannot use the key signing/public_key.pem: expected a key for X25519, found one for Ed25519"}}
    --- stderr
    error: cannot use the key signing/public_key.pem: expected a key for X25519, found one for Ed25519
    "#);
    assert_snapshot!(work_dir.run("envelope seal --to sealing/private_key.pem", "s"), @r#"
    exit 1
    {"success":false,"error":{"code":"bad_key","message":"cannot use the key sealing/private_key.pem: expected a public key, found a private key"}}
    --- stderr
    error: cannot use the key sealing/private_key.pem: expected a public key, found a private key
    "#);
    assert_snapshot!(work_dir.run(&format!("{seal} --in none"), ""), @r#"
    exit 1
    {"success":false,"error":{"code":"not_found","message":"cannot read none: No such file or directory (os error 2)"}}
    --- stderr
    error: cannot read none: No such file or directory (os error 2)
    "#);
    assert_snapshot!(work_dir.run(&format!("{seal} --in sealing"), ""), @r#"
    exit 1
    {"success":false,"error":{"code":"io","message":"cannot read sealing: Is a directory (os error 21)"}}
    --- stderr
    error: cannot read sealing: Is a directory (os error 21)
    "#);
    let huge = fs::File::create(work_dir.path("huge")).unwrap();
    huge.set_len(64 * 1024 * 1024 + 1).unwrap();
    assert_snapshot!(work_dir.run(&format!("{seal} --in huge"), ""), @r#"
    exit 1
    {"success":false,"error":{"code":"too_large","message":"the secret is larger than 64 MiB"}}
    --- stderr
    error: the secret is larger than 64 MiB
    "#);
}

#[test]
fn help_of_every_command_shows_an_example() {
    let work_dir = WorkDir::new();
    for command in [
        "keypair",
        "sign",
        "verify",
        "envelope seal",
        "envelope open",
        "envelope inspect",
    ] {
        let out = work_dir
            .command(&format!("{command} --help"))
            .output()
            .unwrap();
        let help = String::from_utf8(out.stdout).unwrap();
        assert!(help.contains(&format!("  lillux {command} ")), "{help}");
    }
}
