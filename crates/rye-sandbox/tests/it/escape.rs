//! The escape suite: attempts to leave the confined sandbox, in both tiers, as the current user
//! and, if that is root, as an ordinary one. Each attempt first succeeds outside.

mod attempts;
pub(crate) mod fixture;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Stdio;

use attempts::{ATTEMPTS, OPTIONAL, ROOT_ATTEMPTS};
use fixture::{Fixture, NOBODY, TIERS, as_user, is_root, users};

fn check_attempts(attempts: &[(&str, &str)], user: u32) {
    let fixture = Fixture::new(user);
    let mut escapes = Vec::new();
    for tier in TIERS {
        let control = fixture.run(
            Some(tier),
            "cat file && echo x > src/new && ./attempt kill $$",
        );
        assert!(control.status.success(), "{tier}: {control:?}");
    }
    let control = fixture.run_in_review("cat file && echo x > src/kept && ./attempt kill $$");
    assert!(control.status.success(), "{control:?}");
    assert!(!fixture.path("ws/src/kept").exists());
    for (name, script) in attempts {
        let script = fixture.fill(script);
        let outside = fixture.run(None, &script);
        if !outside.status.success() {
            assert!(OPTIONAL.contains(name), "{name} fails outside: {outside:?}");
        }
        let _ = fs::remove_file(fixture.path("outside/f"));
        for tier in TIERS {
            let inside = fixture.run(Some(tier), &script);
            if inside.status.success() {
                escapes.push(format!("{name} (tier {tier}, user {user})"));
            }
        }
        if fixture.run_in_review(&script).status.success() {
            escapes.push(format!("{name} (review mode, user {user})"));
        }
    }
    assert_eq!(escapes, [] as [String; 0]);
}

#[test]
fn attempts_that_work_outside_fail_inside() {
    for user in users() {
        check_attempts(ATTEMPTS, user);
    }
}

#[test]
fn attempts_of_root_fail_inside() {
    if is_root() {
        check_attempts(ROOT_ATTEMPTS, 0);
    }
}

#[test]
fn writes_to_the_home_directory_do_not_reach_it() {
    for user in users() {
        for tier in TIERS {
            let fixture = Fixture::new(user);
            let script = "echo x > ~/.bashrc; mkdir -p ~/.config/autostart";
            fixture.run(Some(tier), script);
            let text = fs::read_to_string(fixture.path("user/.bashrc")).unwrap();
            assert_eq!(text, "original");
            assert!(!fixture.path("user/.config").exists());
            fixture.run(None, script);
            let text = fs::read_to_string(fixture.path("user/.bashrc")).unwrap();
            assert_eq!(text, "x\n", "the control works");
        }
    }
}

#[test]
fn late_repository_is_moved_away() {
    for user in users() {
        let fixture = Fixture::new(user);
        for (script, created) in [
            ("mkdir -p src/late/.git/hooks", "ws/src/late/.git"),
            (
                "mkdir -p src/prepared/x && mv src/prepared src/.git",
                "ws/src/.git",
            ),
            (
                "mkdir -p src/tree && echo gitdir: /x > src/tree/.git",
                "ws/src/tree/.git",
            ),
            ("ln -sfn /tmp src/.vscode", "ws/src/.vscode"),
            ("echo x > src/.envrc; kill -KILL $$", "ws/src/.envrc"),
        ] {
            let is_there = || fs::symlink_metadata(fixture.path(created)).is_ok();
            for tier in TIERS {
                fixture.run(Some(tier), script);
                assert!(!is_there(), "{script} ({tier})");
            }
            fixture.run(None, script);
            assert!(is_there(), "{script}: the control works");
        }
    }
}

#[test]
fn no_process_survives_a_command() {
    for user in users() {
        for tier in TIERS {
            let fixture = Fixture::new(user);
            let marker = format!("77{}", fixture.victim.id());
            let script =
                format!("(setsid sleep {marker} &) ; (setsid setsid sleep {marker} &); true");
            let output = fixture.run(Some(tier), &script);
            assert!(output.status.success(), "{output:?}");
            let entries = fs::read_dir("/proc").unwrap().flatten();
            let lines = entries.filter_map(|it| fs::read(it.path().join("cmdline")).ok());
            let left = lines.filter(|line| line.ends_with(format!("{marker}\0").as_bytes()));
            assert_eq!(left.count(), 0, "{tier}");
        }
    }
}

#[test]
fn inherited_descriptor_is_closed() {
    for user in users() {
        let fixture = Fixture::new(user);
        for (tier, expected) in [
            (None, true),
            (Some("full"), false),
            (Some("landlock"), false),
        ] {
            let inner = match tier {
                Some(tier) => fixture.fill(&format!(
                    "exec 9<BASE/outside/secret; BASE/bin/rye-sandbox-launcher run {tier} BASE/ws \
                     bash -c 'cat <&9'"
                )),
                None => fixture.fill("exec 9<BASE/outside/secret; bash -c 'cat <&9'"),
            };
            let output = fixture.run(None, &inner);
            assert_eq!(output.status.success(), expected, "{tier:?} {output:?}");
        }
    }
}

#[test]
fn resource_bombs_stop_at_the_limits() {
    for user in users() {
        let fixture = Fixture::new(user);
        for tier in TIERS {
            let control = fixture.fill(&format!(
                "RYE_TEST_LIMITS=1 BASE/bin/rye-sandbox-launcher run {tier} BASE/ws ./attempt kill 0"
            ));
            let control = fixture.run(None, &control);
            assert!(control.status.success(), "{control:?}");
            for bomb in ["fork_bomb", "memory_bomb", "descriptor_bomb"] {
                // Without a pid namespace, the kernel does not limit root's processes.
                if bomb == "fork_bomb" && tier == "landlock" && user == 0 {
                    continue;
                }
                let script = format!(
                    "RYE_TEST_LIMITS=1 {} run {tier} BASE/ws ./attempt {bomb}",
                    "BASE/bin/rye-sandbox-launcher"
                );
                let limited = fixture.run(None, &fixture.fill(&script));
                assert!(
                    !limited.status.success(),
                    "{bomb} {tier} {user}: {limited:?}"
                );
                let free = fixture.run(None, &format!("./attempt {bomb}"));
                assert!(free.status.success(), "{bomb}: {free:?}");
            }
            let script = fixture.fill(&format!(
                "RYE_TEST_LIMITS=1 BASE/bin/rye-sandbox-launcher run {tier} BASE/ws \
                 dd if=/dev/zero of=src/big bs=1M count=20"
            ));
            let limited = fixture.run(None, &script);
            assert!(!limited.status.success(), "{limited:?}");
        }
    }
}

#[test]
fn setuid_program_gains_nothing() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new(NOBODY);
    let program = fixture.path("ws/id");
    fs::copy("/usr/bin/id", &program).unwrap();
    chown(&program, Some(0), Some(0)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let uid = |tier| String::from_utf8(fixture.run(tier, "./id -u").stdout).unwrap();
    assert_eq!(uid(None), "0\n", "the control works");
    for tier in TIERS {
        assert_eq!(uid(Some(tier)), format!("{NOBODY}\n"));
    }
}

#[test]
fn exit_codes_and_signals_are_those_of_the_command() {
    let fixture = Fixture::new(users()[0]);
    for tier in TIERS {
        assert_eq!(fixture.run(Some(tier), "exit 7").status.code(), Some(7));
        let killed = fixture.run(Some(tier), "kill -TERM $$").status.code();
        assert_eq!(killed, Some(143));
    }
    let mut stdin = as_user(
        fixture.user,
        fixture.path("bin/rye-sandbox-launcher").to_str().unwrap(),
    )
    .args(["run", "full"])
    .arg(fixture.path("ws"))
    .args(["cat"])
    .stdin(Stdio::piped())
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    stdin.stdin.take().unwrap().write_all(b"input").unwrap();
    assert_eq!(stdin.wait_with_output().unwrap().stdout, b"input");
}

/// Processes below one, at any depth.
fn descendants(pid: u32) -> Vec<u32> {
    let children = |pid: u32| {
        let file = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(file).unwrap_or_default();
        let pids = text.split_whitespace().map(|it| it.parse().unwrap());
        pids.collect::<Vec<u32>>()
    };
    let mut all = children(pid);
    let mut next = 0;
    while next < all.len() {
        all.extend(children(all[next]));
        next += 1;
    }
    all
}

#[test]
fn supervisor_and_launcher_are_out_of_reach() {
    for user in users() {
        for tier in TIERS {
            let fixture = Fixture::new(user);
            let launcher = fixture.path("bin/rye-sandbox-launcher");
            let script = "echo $$; while read -r attempt pid; do \
                          ./attempt $attempt $pid; echo $?; done";
            let mut child = as_user(user, launcher.to_str().unwrap())
                .args(["run", tier])
                .arg(fixture.path("ws"))
                .args(["bash", "-c", script])
                .current_dir(fixture.path("ws"))
                .env("HOME", fixture.path("user"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut line = || lines.next().unwrap().unwrap();
            let inside = line();
            let mut attempt = |attempt: &str, pid: &str| {
                writeln!(stdin, "{attempt} {pid}").unwrap();
                line()
            };
            assert_eq!(attempt("kill", &inside), "0", "the control works");
            let all = descendants(child.id());
            let command = all.last().unwrap();
            let others = all.iter().filter(|pid| *pid != command);
            for pid in others.chain([&child.id()]) {
                let pid = pid.to_string();
                let outside = fixture.run(None, &format!("./attempt kill {pid}"));
                assert!(outside.status.success(), "{outside:?}");
                for name in ["kill", "pidfd_getfd", "ptrace"] {
                    let ended = attempt(name, &pid);
                    assert_ne!(ended, "0", "{name} {pid} ({tier}, user {user})");
                }
            }
            drop(stdin);
            child.wait().unwrap();
        }
    }
}

#[test]
fn init_of_the_sandbox_is_out_of_reach() {
    for user in users() {
        let fixture = Fixture::new(user);
        let own = fixture.run(Some("full"), "cat /proc/self/environ && ls /proc/self/fd/0");
        assert!(own.status.success(), "the control works: {own:?}");
        for script in [
            "cat /proc/1/environ",
            "ls /proc/1/fd/0",
            "head -c0 /proc/1/mem",
            "ls -L /proc/1/root",
            "./attempt ptrace 1",
        ] {
            let inside = fixture.run(Some("full"), script);
            assert!(!inside.status.success(), "{script}: {inside:?}");
        }
        let survived = fixture.run(Some("full"), "kill -KILL 1; echo survived");
        assert_eq!(survived.stdout, b"survived\n", "{survived:?}");
    }
}

#[test]
fn private_directory_in_the_workspace_is_hidden() {
    for user in users() {
        let fixture = Fixture::new(user);
        for tier in TIERS {
            let launch = |private: &str| {
                let script = format!(
                    "{private} BASE/bin/rye-sandbox-launcher run {tier} BASE/ws cat private/key"
                );
                fixture.run(None, &fixture.fill(&script))
            };
            assert_eq!(launch("").stdout, b"secret", "the control works");
            let hidden = launch("RYE_TEST_PRIVATE=BASE/ws/private");
            assert!(!hidden.status.success(), "{tier}: {hidden:?}");
            assert!(hidden.stdout.is_empty(), "{tier}: {hidden:?}");
        }
    }
}
