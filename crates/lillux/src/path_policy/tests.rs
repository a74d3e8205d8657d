use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use rustix::fs::OFlags;
use tempfile::TempDir;

use super::*;

/// A home with private directories and a project in it.
struct World {
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = Self { folder };
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
            fs::create_dir_all(world.at(inner)).unwrap();
        }
        fs::write(world.at("home/work/env/pyvenv.cfg"), "").unwrap();
        fs::write(world.key(), "secret").unwrap();
        world
    }

    fn at(&self, inner: &str) -> PathBuf {
        self.folder.path().join(inner)
    }

    fn key(&self) -> PathBuf {
        self.at("home/.ai/config/keys/signing/private_key.pem")
    }

    fn protected(&self) -> Protected {
        Protected {
            private: ["home/.ai/config/keys", "home/.local/state/rye"]
                .map(|it| self.at(it))
                .to_vec(),
            homes: vec![self.at("home")],
        }
    }

    fn policy(&self, workspace: &str) -> PathPolicy {
        PathPolicy::new(self.at(workspace), self.protected())
    }

    fn class(&self, workspace: &str, path: &str) -> Class {
        self.policy(workspace).classify(path).class
    }
}

fn asks(reason: Sensitive) -> Class {
    Class::Sensitive(reason)
}

#[test]
fn a_path_in_a_project_is_classified_by_what_its_file_is_for() {
    use Sensitive::{Behaviour, Dependency, Outside, Unresolvable, Variables};

    let world = World::new();
    let work = world.at("home/work");
    symlink(".git", work.join("innocent")).unwrap();
    symlink("nowhere/new", work.join("dangling")).unwrap();
    symlink("../bare", work.join("out")).unwrap();
    symlink("../bare/new.txt", work.join("dangling-out")).unwrap();
    symlink("round", work.join("round")).unwrap();
    let absolute = work.join("src/main.rs").display().to_string();
    for path in [
        "src/main.rs",
        "new/folder/file",
        "a/../b",
        "dangling",
        ".gitignore",
        "x.env",
        ".editorconfig",
        "venvs/x",
        "node_modules.md",
        absolute.as_str(),
    ] {
        assert_eq!(world.class("home/work", path), Class::Plain, "{path}");
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
        assert_eq!(world.class("home/work", path), asks(reason), "{path}");
    }
}

#[test]
fn a_private_directory_is_known_by_every_way_to_it() {
    let world = World::new();
    let (work, key) = (world.at("home/work"), world.key());
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
        assert_eq!(world.class("home/work", path), Class::Private, "{path}");
    }
    // Also in a workspace that is the directory itself, or is above it.
    assert_eq!(
        world.class("home/.ai/config/keys/signing", "private_key.pem"),
        Class::Private
    );
    assert_eq!(
        world.class("home", ".ai/config/keys/signing/private_key.pem"),
        Class::Private
    );
    // The same directory by another name, as a link in the list of private directories.
    let mut protected = world.protected();
    symlink(world.at("home/.ssh"), world.at("link")).unwrap();
    protected.private.push(world.at("link"));
    let policy = PathPolicy::new(&work, protected);
    assert_eq!(policy.classify("../.ssh/id").class, Class::Private);
}

#[test]
fn every_write_asks_in_a_home_above_it_and_where_there_is_no_project() {
    use Sensitive::{HiddenInHome, Home, NoProject};

    let world = World::new();
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
            world.class(workspace, path),
            asks(reason),
            "{workspace} {path}"
        );
        let hard = reason == HiddenInHome;
        assert_eq!(reason.may_be_allowed_by_rule(), !hard);
    }
    let part = world.policy("home/work/src");
    let part = part.within_project(world.at("home/work"));
    assert_eq!(part.classify("x").class, Class::Plain);
    assert_eq!(part.classify("../x").class, asks(Sensitive::Outside));
    let other = world
        .policy("home/bare")
        .within_project(world.at("home/work"));
    assert_eq!(other.classify("x").class, asks(NoProject));
}

#[test]
fn the_same_directory_under_another_name_asks() {
    let world = World::new();
    let work = world.at("home/work");
    fs::rename(work.join(".git"), work.join("repository")).unwrap();
    symlink("repository", work.join(".git")).unwrap();
    assert_eq!(
        world.class("home/work", "repository/config"),
        asks(Sensitive::Behaviour)
    );
}

#[test]
fn what_became_a_link_after_it_was_classified_is_not_opened() {
    let world = World::new();
    let policy = world.policy("home/work");
    let private = policy.private();
    let real = policy.classify("src/private_key.pem").real;
    fs::write(&real, "plain").unwrap();
    assert!(PathPolicy::open(&private, &real, OFlags::RDONLY).is_ok());
    fs::remove_dir_all(world.at("home/work/src")).unwrap();
    symlink(world.key().parent().unwrap(), world.at("home/work/src")).unwrap();
    assert!(PathPolicy::open(&private, &real, OFlags::RDONLY).is_err());
    assert!(PathPolicy::open_folder(real.parent().unwrap()).is_err());
    assert!(PathPolicy::create_folder(&real.parent().unwrap().join("new")).is_err());
    assert!(!world.key().with_file_name("new").exists());
    // A hard link that takes the place of a file is known by its inode.
    let real = policy.classify("there").real;
    fs::hard_link(world.key(), &real).unwrap();
    let refused = PathPolicy::open(&policy.private(), &real, OFlags::RDONLY).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn a_file_is_reached_through_the_directory_that_was_opened() {
    let world = World::new();
    let folder = PathPolicy::create_folder(&world.at("home/work/new/deep")).unwrap();
    fs::rename(world.at("home/work/new"), world.at("home/work/moved")).unwrap();
    fs::write(folder.join("x"), "y").unwrap();
    assert!(world.at("home/work/moved/deep/x").exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a path is put together from: where it can be read, it is never a private file.
    #[test]
    fn no_path_that_is_not_private_reads_a_private_file(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "..", ".", "keys", "up", ".ai", "config", "signing", "src", "home", "work",
                "private_key.pem", "hard", "loop",
            ]),
            0..9,
        )
    ) {
        let world = World::new();
        let work = world.at("home/work");
        symlink("../.ai/config/keys", work.join("keys")).unwrap();
        symlink("../../..", work.join("src/up")).unwrap();
        symlink("loop", work.join("loop")).unwrap();
        fs::hard_link(world.key(), work.join("hard")).unwrap();
        let path = parts.join("/");
        let policy = world.policy("home/work");
        let found = policy.classify(&path);
        let read = fs::read(work.join(&path));
        if read.as_deref().is_ok_and(|bytes| bytes == b"secret") {
            prop_assert_eq!(found.class, Class::Private);
        }
        if found.class != Class::Private {
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
fn file_with_further_names_is_written_only_with_approval() {
    let world = World::new();
    let work = world.at("home/work");
    fs::write(work.join("one.txt"), "x").unwrap();
    assert_eq!(world.class("home/work", "one.txt"), Class::Plain);
    fs::hard_link(work.join("one.txt"), work.join("two.txt")).unwrap();
    for path in ["one.txt", "two.txt"] {
        assert_eq!(
            world.class("home/work", path),
            asks(Sensitive::HardLink),
            "{path}"
        );
    }
    assert!(!Sensitive::HardLink.may_be_allowed_by_rule());
}
