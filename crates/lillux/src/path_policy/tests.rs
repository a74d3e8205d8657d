use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use rustix::fs::OFlags;
use tempfile::TempDir;

use super::*;

/// A home with private directories and a project in it.
struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixture = Self { dir };
        for inner in [
            "home/.ai/config/keys/signing",
            "home/.local/state/rye",
            "home/.ssh",
            "home/work/.ai/tools",
            "home/work/.git/hooks",
            "home/work/src",
            "home/work/env/lib",
            "home/bare/src",
        ] {
            fs::create_dir_all(fixture.path(inner)).unwrap();
        }
        fs::write(fixture.path("home/work/env/pyvenv.cfg"), "").unwrap();
        fs::write(fixture.key(), "secret").unwrap();
        fixture
    }

    fn path(&self, inner: &str) -> PathBuf {
        self.dir.path().join(inner)
    }

    fn key(&self) -> PathBuf {
        self.path("home/.ai/config/keys/signing/private_key.pem")
    }

    fn protected(&self) -> ProtectedPaths {
        ProtectedPaths {
            private: ["home/.ai/config/keys", "home/.local/state/rye"]
                .map(|it| self.path(it))
                .to_vec(),
            homes: vec![self.path("home")],
        }
    }

    fn policy(&self, workspace: &str) -> PathPolicy {
        PathPolicy::new(self.path(workspace), self.protected())
    }

    fn class(&self, workspace: &str, path: &str) -> PathClass {
        self.policy(workspace).classify(path).class
    }
}

fn sensitive(reason: SensitiveReason) -> PathClass {
    PathClass::Sensitive(reason)
}

#[test]
fn project_paths_are_classified_by_name() {
    use SensitiveReason::{Behaviour, Dependency, Outside, Unresolvable, Variables};

    let fixture = Fixture::new();
    let work = fixture.path("home/work");
    symlink(".git", work.join("innocent")).unwrap();
    symlink("nowhere/new", work.join("dangling")).unwrap();
    symlink("../bare", work.join("out")).unwrap();
    symlink("../bare/new.txt", work.join("dangling-out")).unwrap();
    symlink("round", work.join("round")).unwrap();
    let absolute = work.join("src/main.rs").display().to_string();
    for path in [
        "src/main.rs",
        "new/dir/file",
        "a/../b",
        "dangling",
        ".gitignore",
        "x.env",
        ".editorconfig",
        "venvs/x",
        "node_modules.md",
        absolute.as_str(),
    ] {
        assert_eq!(fixture.class("home/work", path), PathClass::Plain, "{path}");
    }
    for (path, reason) in [
        (".ai/tools/x.py", Behaviour),
        (".AI/tools/x.py", Behaviour),
        (".ai", Behaviour),
        (".git/config", Behaviour),
        ("sub/.git/hooks/pre-commit", Behaviour),
        ("src/../.git/config", Behaviour),
        ("innocent/config", Behaviour),
        (".vscode/tasks.json", Behaviour),
        (".claude/settings.json", Behaviour),
        (".husky/pre-commit", Behaviour),
        (".idea/workspace.xml", Behaviour),
        (".github/workflows/ci.yml", Behaviour),
        (".envrc", Behaviour),
        (".environment", Behaviour),
        (".hg/hgrc", Behaviour),
        (".svn/entries", Behaviour),
        ("src/.vimrc", Behaviour),
        ("lefthook.yml", Behaviour),
        ("docs/agents.md", Behaviour),
        (".mcp.json", Behaviour),
        (".cargo/config.toml", Behaviour),
        (".env", Variables),
        ("sub/.ENV", Variables),
        (".env.local", Variables),
        (".venv/bin/python", Dependency),
        ("venv/lib/x.py", Dependency),
        ("env/lib/x.py", Dependency),
        ("env/pyvenv.cfg", Dependency),
        ("new/pyvenv.cfg", Dependency),
        ("lib/site-packages/x.pth", Dependency),
        ("node_modules/left-pad/index.js", Dependency),
        ("src/__pycache__/x.pyc", Dependency),
        ("../bare/x", Outside),
        ("out/x", Outside),
        ("dangling-out", Outside),
        ("/etc/hosts", Outside),
        ("round/x", Unresolvable),
    ] {
        assert_eq!(
            fixture.class("home/work", path),
            sensitive(reason),
            "{path}"
        );
    }
}

#[test]
fn private_directory_is_recognised_through_links_and_proc() {
    let fixture = Fixture::new();
    let (work, key) = (fixture.path("home/work"), fixture.key());
    symlink("../.ai/config/keys", work.join("keys")).unwrap();
    symlink("keys", work.join("twice")).unwrap();
    symlink(&key, work.join("key")).unwrap();
    symlink("../.local/state/rye/new.db", work.join("new")).unwrap();
    fs::hard_link(&key, work.join("hard")).unwrap();
    let key = key.display().to_string();
    let through_root = format!("/proc/self/root{key}");
    let cwd = std::env::current_dir().unwrap();
    let ups = "../".repeat(cwd.components().count() + 2);
    let through_cwd = format!("/proc/self/cwd/{ups}{key}");
    for path in [
        key.as_str(),
        through_root.as_str(),
        through_cwd.as_str(),
        "../.ai/config/keys",
        "../.ai/config/keys/signing/private_key.pem",
        "../.ai/./config/../config/keys/new",
        "src/../../.local/state/rye/sessions.db",
        "keys/signing/private_key.pem",
        "twice/signing/private_key.pem",
        "key",
        "new",
        "hard",
    ] {
        assert_eq!(
            fixture.class("home/work", path),
            PathClass::Private,
            "{path}"
        );
    }
    // Also if the workspace is the private directory or contains it.
    assert_eq!(
        fixture.class("home/.ai/config/keys/signing", "private_key.pem"),
        PathClass::Private
    );
    assert_eq!(
        fixture.class("home", ".ai/config/keys/signing/private_key.pem"),
        PathClass::Private
    );
    // The list of private directories may contain links.
    let mut protected = fixture.protected();
    symlink(fixture.path("home/.ssh"), fixture.path("link")).unwrap();
    protected.private.push(fixture.path("link"));
    let policy = PathPolicy::new(&work, protected);
    assert_eq!(policy.classify("../.ssh/id").class, PathClass::Private);
}

#[test]
fn home_directories_and_non_projects_are_sensitive() {
    use SensitiveReason::{HiddenInHome, Home, NoProject};

    let fixture = Fixture::new();
    for (workspace, path, reason) in [
        ("home", ".bashrc", HiddenInHome),
        ("home", ".ssh/authorized_keys", HiddenInHome),
        ("home", "work/.hidden", HiddenInHome),
        ("home", "notes.txt", Home),
        ("", "home/.bashrc", HiddenInHome),
        ("", "elsewhere.txt", Home),
        ("home/bare", "x", NoProject),
        ("home/bare/src", "x", NoProject),
        ("home/work/src", "x", NoProject),
    ] {
        assert_eq!(
            fixture.class(workspace, path),
            sensitive(reason),
            "{workspace} {path}"
        );
        let hard = reason == HiddenInHome;
        assert_eq!(reason.may_be_allowed_by_rule(), !hard);
    }
    let part = fixture.policy("home/work/src");
    let part = part.within_project(fixture.path("home/work"));
    assert_eq!(part.classify("x").class, PathClass::Plain);
    assert_eq!(
        part.classify("../x").class,
        sensitive(SensitiveReason::Outside)
    );
    let other = fixture
        .policy("home/bare")
        .within_project(fixture.path("home/work"));
    assert_eq!(other.classify("x").class, sensitive(NoProject));
}

#[test]
fn renamed_behaviour_directory_stays_sensitive() {
    let fixture = Fixture::new();
    let work = fixture.path("home/work");
    fs::rename(work.join(".git"), work.join("repository")).unwrap();
    symlink("repository", work.join(".git")).unwrap();
    assert_eq!(
        fixture.class("home/work", "repository/config"),
        sensitive(SensitiveReason::Behaviour)
    );
}

#[test]
fn path_replaced_by_a_link_after_classification_is_not_opened() {
    let fixture = Fixture::new();
    let policy = fixture.policy("home/work");
    let private = policy.private();
    let real = policy.classify("src/private_key.pem").real;
    fs::write(&real, "plain").unwrap();
    assert!(PathPolicy::open(&private, &real, OFlags::RDONLY).is_ok());
    fs::remove_dir_all(fixture.path("home/work/src")).unwrap();
    symlink(
        fixture.key().parent().unwrap(),
        fixture.path("home/work/src"),
    )
    .unwrap();
    assert!(PathPolicy::open(&private, &real, OFlags::RDONLY).is_err());
    assert!(PathPolicy::open_dir(real.parent().unwrap()).is_err());
    assert!(PathPolicy::create_dir(&real.parent().unwrap().join("new")).is_err());
    assert!(!fixture.key().with_file_name("new").exists());
    // A hard link to a private file is recognised by its inode.
    let real = policy.classify("there").real;
    fs::hard_link(fixture.key(), &real).unwrap();
    let refused = PathPolicy::open(&policy.private(), &real, OFlags::RDONLY).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn open_directory_stays_valid_after_a_rename() {
    let fixture = Fixture::new();
    let dir = PathPolicy::create_dir(&fixture.path("home/work/new/deep")).unwrap();
    fs::rename(
        fixture.path("home/work/new"),
        fixture.path("home/work/moved"),
    )
    .unwrap();
    fs::write(dir.join("x"), "y").unwrap();
    assert!(fixture.path("home/work/moved/deep/x").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Random paths through links: one that is not classified as private never reads the key.
    #[test]
    fn non_private_path_never_reads_a_private_file(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "..", ".", "keys", "up", ".ai", "config", "signing", "src", "home", "work",
                "private_key.pem", "hard", "loop",
            ]),
            0..9,
        )
    ) {
        let fixture = Fixture::new();
        let work = fixture.path("home/work");
        symlink("../.ai/config/keys", work.join("keys")).unwrap();
        symlink("../../..", work.join("src/up")).unwrap();
        symlink("loop", work.join("loop")).unwrap();
        fs::hard_link(fixture.key(), work.join("hard")).unwrap();
        let path = parts.join("/");
        let policy = fixture.policy("home/work");
        let found = policy.classify(&path);
        let read = fs::read(work.join(&path));
        if read.as_deref().is_ok_and(|bytes| bytes == b"secret") {
            prop_assert_eq!(found.class, PathClass::Private);
        }
        if found.class != PathClass::Private {
            let opened = PathPolicy::open(&policy.private(), &found.real, OFlags::RDONLY);
            if let Ok(mut file) = opened {
                let mut text = String::new();
                let _ = std::io::Read::read_to_string(&mut file, &mut text);
                prop_assert_ne!(text, "secret");
            }
        }
    }
}

#[test]
fn files_with_several_hard_links_are_sensitive() {
    let fixture = Fixture::new();
    let work = fixture.path("home/work");
    fs::write(work.join("one.txt"), "x").unwrap();
    assert_eq!(fixture.class("home/work", "one.txt"), PathClass::Plain);
    fs::hard_link(work.join("one.txt"), work.join("two.txt")).unwrap();
    for path in ["one.txt", "two.txt"] {
        assert_eq!(
            fixture.class("home/work", path),
            sensitive(SensitiveReason::HardLink),
            "{path}"
        );
    }
    assert!(!SensitiveReason::HardLink.may_be_allowed_by_rule());
}
