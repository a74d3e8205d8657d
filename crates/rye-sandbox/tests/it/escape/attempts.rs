//! The attempts: scripts of bash, in the workspace of the [fixture](super::fixture).

/// Attempts that succeed if their exit code is 0.
pub(super) const ATTEMPTS: &[(&str, &str)] = &[
    ("write through ..", "echo x > ../outside/f"),
    ("write to an absolute path", "echo x > BASE/outside/f"),
    ("read a file outside", "cat BASE/outside/secret"),
    ("list a directory outside", "ls BASE/outside"),
    (
        "write through a new link",
        "ln -sfn BASE/outside link && echo x > link/f",
    ),
    ("write through a planted link", "echo x > planted/f"),
    ("read through a planted link", "cat planted/secret"),
    (
        "hard link",
        "rm -f hard; ln BASE/outside/secret hard && cat hard",
    ),
    (
        "rename out of the workspace",
        "echo x > moving && mv moving BASE/outside/moved",
    ),
    (
        "root of another process",
        "cat /proc/VICTIM/rootBASE/outside/secret",
    ),
    (
        "root of process 1's root",
        "cat /proc/self/rootBASE/outside/secret",
    ),
    (
        "environment of another process",
        "grep -q SECRET /proc/VICTIM/environ",
    ),
    ("memory of another process", "head -c0 /proc/VICTIM/mem"),
    ("descriptors of another process", "ls /proc/VICTIM/fd/0"),
    ("hook of the repository", "echo x > .git/hooks/pre-commit"),
    (
        "hook of a nested repository",
        "echo x > a/b/.git/hooks/pre-commit",
    ),
    ("configuration of the repository", "echo x >> .git/config"),
    ("file of a git worktree", "echo x >> wt/.git"),
    ("hook below core.hooksPath", "echo x > hooks/pre-commit"),
    ("replace .git", "mv .git moved-git && mv moved-git .git"),
    (
        "truncate .envrc",
        "cp .envrc e && : > .envrc && cp e .envrc",
    ),
    ("items of the project", "echo x > .ai/tool"),
    ("keys in the home directory", "cat BASE/user/.ssh/id"),
    ("planted docker.sock", "./attempt unix BASE/ws/docker.sock"),
    ("ssh-agent socket", "./attempt unix BASE/outside/agent.sock"),
    ("abstract socket", "./attempt abstract ABSTRACT"),
    ("TCP to the host's loopback", "./attempt tcp 127.0.0.1:TCP"),
    ("UDP", "./attempt udp 127.0.0.1:9"),
    ("netlink", "./attempt socket 16 3 0"),
    ("internet socket", "./attempt socket 2 1 0"),
    ("IPv6 socket", "./attempt socket 10 1 0"),
    ("signal to another process", "./attempt kill VICTIM"),
    (
        "pidfd of another process",
        "./attempt pidfd VICTIM && ./attempt kill VICTIM",
    ),
    (
        "descriptor of another process",
        "./attempt pidfd_getfd VICTIM",
    ),
    ("ptrace", "./attempt ptrace VICTIM"),
    ("user namespace by unshare", "./attempt unshare"),
    ("user namespace by clone", "./attempt clone"),
    ("keyctl", "./attempt keyctl"),
    ("io_uring", "./attempt io_uring"),
    ("32-bit system call", "./attempt foreign"),
    ("keys in the environment", "test -n \"$SECRET_API_KEY\""),
    (
        "tool outside of the system",
        "BASE/bin/rye-sandbox-attempt kill $$",
    ),
    (
        "write through a directory outside",
        "echo x > BASE/outside/../outside/g",
    ),
    (
        "memory by process_vm_readv",
        "./attempt read_memory VICTIM ADDRESS",
    ),
    ("TCP over IPv6", "./attempt tcp [::1]:TCP6"),
    ("vsock", "./attempt socket 40 1 0"),
    ("userfaultfd", "./attempt userfaultfd"),
    ("perf", "./attempt perf"),
    ("x32 system call", "./attempt x32"),
    (
        "D-Bus of the system",
        "./attempt socket 1 1 0 && test -e /run",
    ),
    ("variable files of the system", "ls /var"),
    (
        "race with a swapped link",
        "rm -rf race race-link && mkdir race && ./attempt swap race BASE/outside",
    ),
    (
        "move the directory above a repository",
        "mv a moved-a && echo x > moved-a/b/.git/hooks/pre-commit; r=$?; mv moved-a a; exit $r",
    ),
    (
        "hook through a link",
        "ln -sfn .git link && echo x > link/hooks/pre-commit",
    ),
    (
        "hard link of the repository's configuration",
        "rm -f src/hard; ln .git/config src/hard && echo >> src/hard",
    ),
    (
        "exchange of a protected directory",
        "mkdir -p src/own && ./attempt exchange .git src/own && ./attempt exchange .git src/own",
    ),
    (
        "working directory of another process",
        "ls /proc/VICTIM/cwd/outside",
    ),
    ("program of another process", "head -c1 /proc/VICTIM/exe"),
    (
        "environment of another thread",
        "grep -q SECRET /proc/VICTIM/task/VICTIM/environ",
    ),
    (
        "mapped files of another process",
        "ls /proc/VICTIM/map_files/",
    ),
    (
        "keys in the environment of any process",
        "grep -qa SECRET_API_KEY /proc/[0-9]*/environ",
    ),
    ("vault", "cat BASE/user/.ai/vault/token"),
    ("changes that wait for a review", "ls BASE/state/upper"),
    (
        "input for the terminal",
        "script -qec './attempt terminal_input' /dev/null",
    ),
    (
        "state directory",
        "cat BASE/user/.local/state/rye/sessions.db",
    ),
    ("home of another user", "cat BASE/other/.profile"),
    (
        "nested planted socket",
        "./attempt unix BASE/ws/src/nested.sock",
    ),
    ("D-Bus of the session", "./attempt unix BASE/outside/bus"),
    ("tmux", "./attempt unix BASE/outside/tmux-0/default"),
    (
        "datagram to a log",
        "./attempt unix_datagram BASE/outside/log",
    ),
    ("listening socket", "./attempt listen"),
    ("ICMP", "./attempt socket 2 2 1"),
    ("cryptography socket", "./attempt socket 38 5 0"),
    ("user namespace by clone3", "./attempt clone3"),
];

/// Attempts that need root outside.
pub(super) const ROOT_ATTEMPTS: &[(&str, &str)] = &[
    ("mount", "./attempt mount BASE/ws/src && umount BASE/ws/src"),
    ("chroot", "./attempt chroot"),
    ("raw socket", "./attempt socket 2 3 1"),
    ("packet socket", "./attempt socket 17 3 768"),
    ("open by handle", "./attempt handle BASE/ws/file"),
    ("bpf", "./attempt bpf"),
    ("join a namespace", "./attempt setns $$"),
    (
        "change a kernel setting",
        "cat /proc/sys/kernel/panic > v; cat v > /proc/sys/kernel/panic",
    ),
    ("read the shadow file", "cat /etc/shadow"),
    ("create a device", "rm -f device; mknod device c 1 3"),
    ("mount namespace", "./attempt unshare_mounts"),
    ("read the kernel's log", "./attempt syslog"),
    ("become another user", "./attempt setuid 12345"),
];

/// Attempts that fail outside on some machines, because a setting of the kernel refuses them.
pub(super) const OPTIONAL: &[&str] = &[
    "TCP over IPv6",
    "vsock",
    "userfaultfd",
    "perf",
    "x32 system call",
    "memory by process_vm_readv",
    "io_uring",
    "bpf",
    "32-bit system call",
    "ptrace",
    "open by handle",
    "ICMP",
    "cryptography socket",
    "mapped files of another process",
    "input for the terminal",
];
