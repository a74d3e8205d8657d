//! The facts about the workspace at the end of the system prompt: where it is, the state of git,
//! the platform, the date, the shell, the installed programs, and what the sandbox allows.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use lillux::sanitize_line;
use lillux::time::now_rfc3339;
use rye_engine::policy::{CallFacts, Mode, Policy, Risk};
use rye_engine::protocol::SandboxKind;
use rye_engine::sandbox::{
    Confinement, Exec, ExecObserver, FileAccess, NetworkAccess, ProcessAccess, Sandbox,
};

/// Interpreters and tools that a model may want to use.
const PROGRAMS: [&str; 16] = [
    "git", "python3", "uv", "node", "npm", "bun", "deno", "cargo", "go", "java", "ruby", "gcc",
    "make", "jq", "rg", "docker",
];
/// Time limit of the command that collects facts.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum output of that command, in bytes.
const MAX_PROBE_OUTPUT: usize = 16 * 1024;
/// Maximum number of changed files in the text.
const MAX_CHANGES: usize = 20;

/// What a probe found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Probe {
    platform: Option<String>,
    programs: Vec<String>,
    branch: Option<String>,
    /// Lines of `git status`, if it ran.
    changes: Option<Vec<String>>,
}

/// The text for a session's sandbox and the approval policy.
pub(super) async fn environment(sandbox: &dyn Sandbox, policy: &Policy) -> String {
    let kind = sandbox.kind();
    let confinement = sandbox.confinement();
    let probe = match kind {
        SandboxKind::Virtual => Probe::default(),
        SandboxKind::Local => local_probe(sandbox).await,
        SandboxKind::Confined | SandboxKind::Docker | SandboxKind::Remote => {
            run_probe(confinement.confines_commands(), sandbox).await
        }
    };
    let shell = match kind {
        SandboxKind::Virtual => "a small built-in shell that starts no programs",
        SandboxKind::Local | SandboxKind::Confined if !Path::new("/bin/bash").exists() => "sh",
        _ => "bash",
    };
    let workspace = sandbox.location();
    let mut text = "Environment:\n".to_owned();
    let workspace = workspace
        .as_deref()
        .map_or("in memory".into(), sanitize_line);
    let _ = writeln!(text, "- Workspace: {workspace}");
    if let Some(branch) = &probe.branch {
        let _ = writeln!(text, "- Git branch: {}", sanitize_line(branch));
    }
    if let Some(changes) = &probe.changes {
        text += &changes_line(changes);
    }
    if let Some(platform) = &probe.platform {
        let _ = writeln!(text, "- Platform: {}", sanitize_line(platform));
    }
    let date = now_rfc3339();
    let _ = writeln!(text, "- Date: {}", date.get(..10).unwrap_or(&date));
    let _ = writeln!(text, "- Shell: {shell}");
    if !probe.programs.is_empty() {
        let _ = writeln!(text, "- Programs: {}", probe.programs.join(", "));
    }
    let _ = write!(
        text,
        "- Sandbox {}",
        sandbox_text(kind, &confinement, policy)
    );
    text
}

fn changes_line(changes: &[String]) -> String {
    if changes.is_empty() {
        return "- Git status: clean\n".to_owned();
    }
    let shown = changes.iter().take(MAX_CHANGES);
    let shown: Vec<_> = shown.map(|line| sanitize_line(line.trim())).collect();
    let more = if changes.len() > MAX_CHANGES {
        ", …"
    } else {
        ""
    };
    format!("- Git status: {}{more}\n", shown.join(", "))
}

/// What commands may do, and which calls a person must approve.
fn sandbox_text(kind: SandboxKind, confinement: &Confinement, policy: &Policy) -> String {
    let Confinement {
        files,
        network,
        processes,
        ..
    } = confinement;
    let files = match files {
        FileAccess::Memory => "files are in memory",
        FileAccess::Workspace => "commands can change only files of the workspace",
        FileAccess::Host => "commands can change all files of the user",
    };
    let network = match network {
        NetworkAccess::None => "there is no network",
        NetworkAccess::Proxied => "the network reaches only allowed hosts",
        NetworkAccess::Host => "the network is open",
    };
    let processes = match processes {
        ProcessAccess::None => "there are no other programs",
        ProcessAccess::Own => "other processes are out of reach",
        ProcessAccess::Host => "other processes are in reach",
    };
    let confines = confinement.confines_commands();
    let mut text = format!("{kind}: {files}, {network}, {processes}.");
    if confinement.files == FileAccess::Memory {
        return text + " Nothing needs approval.";
    }
    let mode = |tool: &str, risk| policy.decide(&CallFacts::new(tool, Some(risk))).mode;
    let command_risk = if confines { Risk::Medium } else { Risk::High };
    text += match mode("builtin:bash", command_risk) {
        Mode::Allow => " Commands run without approval.",
        Mode::Ask => " A person approves each command.",
        Mode::Deny => " Commands are not allowed.",
    };
    text += match mode("builtin:edit", Risk::Medium) {
        Mode::Allow => " Files of the workspace can be changed without approval.",
        Mode::Ask => " A person approves each change of a file.",
        Mode::Deny => " Files cannot be changed.",
    };
    text += " Protected files, such as `.git`, hidden configuration and AGENTS.md, and files \
             outside of the workspace need approval.";
    if confines && kind == SandboxKind::Confined {
        text += " If a command needs more, set `read`, `write` or `network` of `bash` and give a \
                 `reason`: a person is asked.";
    }
    text
}

/// The probe of a directory on this machine, without starting a program.
async fn local_probe(sandbox: &dyn Sandbox) -> Probe {
    let head = sandbox.read(".git/HEAD").await.ok();
    let head = head.and_then(|head| String::from_utf8(head).ok());
    let branch = head.map(|head| match head.trim().strip_prefix("ref: refs/heads/") {
        Some(branch) => branch.to_owned(),
        None => "none (detached)".to_owned(),
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<_> = std::env::split_paths(&path).collect();
    let is_installed = |name: &&&str| dirs.iter().any(|dir| is_executable(&dir.join(name)));
    let programs = PROGRAMS.iter().filter(is_installed);
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    Probe {
        platform: Some(format!("{os} {arch}")),
        programs: programs.map(|&name| name.to_owned()).collect(),
        branch,
        changes: None,
    }
}

fn is_executable(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// The command that prints the facts, one per line. Git may run programs that the repository's
/// configuration names, so its status is read only where commands are confined.
fn probe_command(is_confined: bool) -> String {
    let mut command = format!(
        "printf 'platform '; uname -sm; for it in {}; do \
         command -v \"$it\" >/dev/null 2>&1 && echo \"program $it\"; done; ",
        PROGRAMS.join(" ")
    );
    command += if is_confined {
        "[ -e .git ] && git -c core.fsmonitor=false --no-optional-locks status --porcelain \
         --branch 2>/dev/null | sed 's/^/git /'; true"
    } else {
        "[ -e .git ] && git symbolic-ref --short HEAD 2>/dev/null | sed 's/^/git ## /'; true"
    };
    command
}

/// Ignores the output and the connections of the probe.
struct NoObserver;

impl ExecObserver for NoObserver {
    fn on_start(&self, _: &str) {}

    fn on_output(&self, _: &str) {}
}

async fn run_probe(is_confined: bool, sandbox: &dyn Sandbox) -> Probe {
    let exec = Exec {
        command: probe_command(is_confined),
        timeout: Some(PROBE_TIMEOUT),
        max_output: Some(MAX_PROBE_OUTPUT),
        max_streamed: Some(0),
        ..Exec::default()
    };
    match sandbox.exec(exec, &NoObserver).await {
        Ok(output) => parse_probe(&output.stdout, is_confined),
        // The first command of the agent reports what is wrong.
        Err(_) => Probe::default(),
    }
}

fn parse_probe(output: &str, has_status: bool) -> Probe {
    let mut probe = Probe::default();
    for line in output.lines() {
        match line.split_once(' ') {
            Some(("platform", platform)) => probe.platform = Some(platform.to_owned()),
            Some(("program", name)) => probe.programs.push(name.to_owned()),
            Some(("git", line)) => match line.strip_prefix("## ") {
                Some(branch) => {
                    probe.branch = Some(branch.to_owned());
                    probe.changes = has_status.then(Vec::new);
                }
                None => probe.changes.get_or_insert_default().push(line.to_owned()),
            },
            _ => {}
        }
    }
    probe
}

#[cfg(test)]
mod tests {
    use rye_engine::sandbox::Enforcement;
    use rye_sandbox::VirtualSandbox;

    use super::*;

    #[test]
    fn probe_output_is_parsed() {
        let output = "platform Linux x86_64\nprogram git\nprogram node\n\
                      git ## main...origin/main\ngit  M src/lib.rs\ngit ?? new.txt\n";
        let probe = parse_probe(output, true);
        assert_eq!(probe.platform.as_deref(), Some("Linux x86_64"));
        assert_eq!(probe.programs, ["git", "node"]);
        assert_eq!(probe.branch.as_deref(), Some("main...origin/main"));
        let changes = probe.changes.unwrap();
        assert_eq!(
            changes_line(&changes),
            "- Git status: M src/lib.rs, ?? new.txt\n"
        );
        let clean = parse_probe("git ## main\n", true).changes.unwrap();
        assert_eq!(changes_line(&clean), "- Git status: clean\n");
        assert_eq!(parse_probe("git ## main\n", false).changes, None);
        let many = vec!["?? x".to_owned(); MAX_CHANGES + 1];
        assert!(changes_line(&many).ends_with("?? x, …\n"));
    }

    #[test]
    fn sandbox_text_says_what_needs_approval() {
        let policy = Policy::default();
        let confined = Confinement {
            files: FileAccess::Workspace,
            network: NetworkAccess::None,
            processes: ProcessAccess::Own,
            enforcement: Some(Enforcement {
                tier: "full".to_owned(),
                policy: String::new(),
            }),
        };
        let text = sandbox_text(SandboxKind::Confined, &confined, &policy);
        assert!(text.contains("there is no network"), "{text}");
        assert!(text.contains("Commands run without approval."), "{text}");
        let text = sandbox_text(SandboxKind::Local, &Confinement::none(), &policy);
        assert!(text.contains("A person approves each command."), "{text}");
        let text = sandbox_text(SandboxKind::Virtual, &Confinement::in_memory(), &policy);
        assert!(text.ends_with("Nothing needs approval."), "{text}");
    }

    #[tokio::test]
    async fn virtual_sandbox_starts_nothing() {
        let text = environment(&VirtualSandbox::new(), &Policy::default()).await;
        assert!(
            text.starts_with("Environment:\n- Workspace: in memory\n- Date: "),
            "{text}"
        );
    }
}
