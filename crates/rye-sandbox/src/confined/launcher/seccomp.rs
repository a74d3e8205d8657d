//! The system calls that a confined command cannot make.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::{Context, LaunchError};

/// Refused with `ENOSYS`, as on a kernel without them, so that programs use an alternative.
const UNKNOWN: [i64; 4] = [
    // Its flags are in memory, where a filter cannot check them.
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Always refused.
const DENIED: [i64; 44] = [
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // The kernel's attack surface.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_lookup_dcookie,
    libc::SYS_syslog,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    // Settings of the machine.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_vhangup,
];

/// Always refused; newer than the `libc` crate's constants.
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// Flags of `clone` that create a namespace.
const NAMESPACES: [libc::c_int; 8] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
    // CLONE_NEWTIME
    0x80,
];

/// Ways to put input into a terminal.
const TERMINAL_INPUT: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Which sockets a command can create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    /// None: the host's sockets are visible.
    None,
    /// Unix sockets.
    Unix,
    /// Unix sockets and TCP, which leads to the egress proxy.
    UnixAndTcp,
}

/// Installs the filters for this process and its descendants.
pub(super) fn apply(sockets: Sockets) -> Result<(), LaunchError> {
    let step = "cannot install the seccomp filter";
    for filter in filters(sockets).context(step)? {
        apply_filter(&filter).context(step)?;
    }
    Ok(())
}

/// The filters. The library adds a check that kills calls of foreign architectures.
fn filters(sockets: Sockets) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let arch = TargetArch::try_from(ARCH)?;
    let unknown = UNKNOWN.map(|number| (number, Vec::new()));
    let errno = |number: libc::c_int| SeccompAction::Errno(number.unsigned_abs());
    let filter = |rules: BTreeMap<_, _>, action| {
        SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()
    };
    let mut all: Vec<BpfProgram> = vec![
        filter(unknown.into(), errno(libc::ENOSYS))?,
        filter(denied(sockets)?, errno(libc::EPERM))?,
    ];
    if arch == TargetArch::x86_64 {
        all.push(kill_x32());
    }
    Ok(all)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn denied(sockets: Sockets) -> Result<Rules, seccompiler::BackendError> {
    let when = |argument, operator, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
        SeccompRule::new(vec![condition])
    };
    let mut rules: Rules = DENIED.map(|number| (number, Vec::new())).into();
    rules.insert(SYS_OPEN_TREE_ATTR, Vec::new());
    let namespaces = NAMESPACES.into_iter().map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        when(0, SeccompCmpOp::MaskedEq(flag), flag)
    });
    rules.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
    let ioctls = TERMINAL_INPUT.map(|number| when(1, SeccompCmpOp::Eq, number));
    let ioctls = ioctls.into_iter().collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, ioctls);
    let not_unix = || {
        when(
            0,
            SeccompCmpOp::Ne,
            u64::from(libc::AF_UNIX.cast_unsigned()),
        )
    };
    rules.insert(libc::SYS_socketpair, vec![not_unix()?]);
    let sockets = match sockets {
        Sockets::None => Vec::new(),
        Sockets::Unix => vec![not_unix()?],
        Sockets::UnixAndTcp => not_unix_or_tcp()?,
    };
    rules.insert(libc::SYS_socket, sockets);
    Ok(rules)
}

/// Rules that match sockets which are neither Unix sockets nor TCP.
fn not_unix_or_tcp() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    const TYPE_MASK: u64 = 0xf;
    let number = |constant: libc::c_int| u64::from(constant.cast_unsigned());
    let is = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    };
    let is_not = |argument, constant| is(argument, SeccompCmpOp::Ne, number(constant));
    let not_unix = || is_not(0, libc::AF_UNIX);
    let other_family = vec![
        not_unix()?,
        is_not(0, libc::AF_INET)?,
        is_not(0, libc::AF_INET6)?,
    ];
    let other_protocol = vec![not_unix()?, is_not(2, 0)?, is_not(2, libc::IPPROTO_TCP)?];
    let mut all = vec![other_family, other_protocol];
    for kind in (0..=TYPE_MASK).filter(|kind| *kind != number(libc::SOCK_STREAM)) {
        all.push(vec![
            not_unix()?,
            is(1, SeccompCmpOp::MaskedEq(TYPE_MASK), kind)?,
        ]);
    }
    all.into_iter().map(SeccompRule::new).collect()
}

/// Kills calls of the x32 interface. It shares the architecture of x86-64, but its numbers, which
/// have bit 30 set, are not those of the other filters.
fn kill_x32() -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    let instruction = |code: u32, jt, jf, k| seccompiler::sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt,
        jf,
        k,
    };
    vec![
        // Load the number, which is at the start of `seccomp_data`.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, X32_BIT),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_KILL_PROCESS,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
