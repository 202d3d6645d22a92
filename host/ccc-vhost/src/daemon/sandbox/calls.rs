// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! System calls, by seccomp.
//!
//! What is not in the list fails with EPERM, and ends nobody: of a library that tries
//! something new the daemon has an error to tell, and VMs go on.
use std::{collections::BTreeMap, env::consts::ARCH};

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

/// What becomes of other calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// They fail.
    Refuse,
    /// They are made, and the kernel's audit log has them.
    Log,
}

/// Memory, which is never executed.
const MEMORY: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_fallocate,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munmap,
];
/// Files, which landlock knows.
const FILES: &[c_long] = &[
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];
/// Sockets that are there.
const SOCKETS: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];
/// What is waited for.
const EVENTS: &[c_long] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
];
/// Threads, signals and time.
const PROCESS: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_membarrier,
    libc::SYS_nanosleep,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_uname,
];
/// The same by older names, which other architectures never had.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_lchown,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// By Unix sockets and over TCP clients come; netlink is for taps.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Names of threads, and of the allocator's memory.
const PROCESS_CONTROLS: [i32; 3] = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];

/// Takes other calls from every thread, and from those to come.
pub fn confine_all_threads(otherwise: Otherwise) -> Result<(), Error> {
    for program in programs(otherwise)? {
        seccompiler::apply_filter_all_threads(&program)?;
    }
    Ok(())
}

fn programs(otherwise: Otherwise) -> Result<Vec<BpfProgram>, BackendError> {
    let action = match otherwise {
        Otherwise::Refuse => SeccompAction::Errno(libc::EPERM as u32),
        Otherwise::Log => SeccompAction::Log,
    };
    let listed = filter(listed()?, action, SeccompAction::Allow)?;
    if otherwise == Otherwise::Log {
        return Ok(vec![listed]);
    }
    // Its flags are in memory, where no filter sees them: libraries use clone(2) then.
    let hidden = [(libc::SYS_clone3, Vec::new())].into_iter().collect();
    let hidden = filter(hidden, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    // The first one has to let the second one be set.
    Ok(vec![hidden, listed])
}

fn filter(
    rules: BTreeMap<c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let target = TargetArch::try_from(ARCH)?;
    SeccompFilter::new(rules, otherwise, matched, target)?.try_into()
}

fn listed() -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let plain = [MEMORY, FILES, SOCKETS, EVENTS, PROCESS, OLDER].concat();
    let mut rules: BTreeMap<_, _> = plain.into_iter().map(|call| (call, Vec::new())).collect();
    let not_executed = || MaskedEq(libc::PROT_EXEC as u64);
    rules.insert(libc::SYS_mmap, vec![where_is(2, not_executed(), 0)?]);
    rules.insert(libc::SYS_mprotect, vec![where_is(2, not_executed(), 0)?]);
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![where_is(0, MaskedEq(thread), thread)?]);
    // It fails there, and not here.
    rules.insert(libc::SYS_clone3, Vec::new());
    rules.insert(libc::SYS_ioctl, vec![where_is(1, Eq, libc::FIONBIO)?]);
    let any_of = |argument, values: &[i32]| {
        values.iter().map(|value| where_is(argument, Eq, *value as u64)).collect::<Result<_, _>>()
    };
    rules.insert(libc::SYS_socket, any_of(0, &FAMILIES)?);
    rules.insert(libc::SYS_socketpair, vec![where_is(0, Eq, libc::AF_UNIX as u64)?]);
    rules.insert(libc::SYS_prctl, any_of(0, &PROCESS_CONTROLS)?);
    Ok(rules)
}

fn where_is(argument: u8, how: SeccompCmpOp, value: u64) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)?;
    SeccompRule::new(vec![condition])
}

#[cfg(test)]
mod tests {
    use std::{io, ptr, thread};

    use super::*;

    /// The error number of a call with these arguments; 0 if it is made.
    fn call(number: c_long, arguments: [usize; 4]) -> i32 {
        let [a, b, c, d] = arguments;
        // SAFETY: the calls of these tests have arguments that do nothing: no pointers but
        // null ones, no lengths, no flags.
        let answer = unsafe { libc::syscall(number, a, b, c, d, 0, 0) };
        if answer < 0 { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
    }

    /// In a thread of its own, which alone is confined.
    fn confined(otherwise: Otherwise, does: impl FnOnce() + Send) {
        let run = || {
            for program in programs(otherwise).expect("compiled") {
                seccompiler::apply_filter(&program).expect("in force");
            }
            does();
        };
        thread::scope(|scope| scope.spawn(run).join().expect("as it is to be"));
    }

    const NULL: usize = 0;
    const PAGE: usize = 4096;

    fn map(protection: i32) -> i32 {
        // SAFETY: a new page, which nobody else has.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(ptr::null_mut(), PAGE, protection, flags, -1, 0)
        };
        if page == libc::MAP_FAILED {
            io::Error::last_os_error().raw_os_error().unwrap_or(-1)
        } else {
            0
        }
    }

    #[test]
    fn what_the_daemon_never_does_is_refused() {
        confined(Otherwise::Refuse, || {
            let refused = [
                call(libc::SYS_execve, [NULL; 4]),
                call(libc::SYS_ptrace, [NULL; 4]),
                call(libc::SYS_unshare, [0; 4]),
                call(libc::SYS_bpf, [usize::MAX; 4]),
                call(libc::SYS_io_uring_setup, [0; 4]),
                call(libc::SYS_kill, [0; 4]),
                call(libc::SYS_socket, [libc::AF_PACKET as usize, libc::SOCK_RAW as usize, 0, 0]),
                call(libc::SYS_clone, [0; 4]),
                map(libc::PROT_READ | libc::PROT_EXEC),
            ];
            assert_eq!(refused, [libc::EPERM; 9]);
            assert_eq!(call(libc::SYS_clone3, [NULL; 4]), libc::ENOSYS);
            assert_eq!(map(libc::PROT_READ | libc::PROT_WRITE), 0);
            assert_eq!(thread::spawn(|| 7).join().expect("a thread"), 7);
            drop(std::os::unix::net::UnixStream::pair().expect("a pair"));
        });
    }

    #[test]
    fn where_it_is_to_be_told_it_is_done() {
        confined(Otherwise::Log, || assert_eq!(call(libc::SYS_unshare, [0; 4]), 0));
    }
}
