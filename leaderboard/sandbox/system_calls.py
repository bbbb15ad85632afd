"""Which system calls a sandbox may make, and their numbers on x86-64 and 64-bit ARM.

The lists name what is allowed: a call that is in no list is refused. The lists have what Python, PyTorch and compilers
need. A call is missing here for one of these reasons:

* It changes or reads a state that outlives the sandbox or that other processes share, such as keyrings (keyctl), the
  page cache (mincore, cachestat, fadvise64, readahead), page faults (getrusage), the disk (sync).
* It traces processes or reads their memory, or it configures the machine.
* It gives a process much of the kernel to attack, and few programs need it (bpf, io_uring, userfaultfd, splice).
"""

from __future__ import annotations

from dataclasses import dataclass

# Name, number on x86-64, number on 64-bit ARM; "-" where the call does not exist.
_ALLOWED = """
read 0 63; write 1 64; readv 19 65; writev 20 66; pread64 17 67; pwrite64 18 68; preadv 295 69; pwritev 296 70;
open 2 -; openat 257 56; creat 85 -; close 3 57; close_range 436 436; lseek 8 62; stat 4 -; fstat 5 80; lstat 6 -;
newfstatat 262 79; statx 332 291; access 21 -; faccessat 269 48; faccessat2 439 439; readlink 89 -; readlinkat 267 78;
getdents 78 -; getdents64 217 61; getcwd 79 17; chdir 80 49; fchdir 81 50; mkdir 83 -; mkdirat 258 34; rmdir 84 -;
unlink 87 -; unlinkat 263 35; rename 82 -; renameat 264 38; renameat2 316 276; link 86 -; linkat 265 37; symlink 88 -;
symlinkat 266 36; mknod 133 -; mknodat 259 33; chmod 90 -; fchmod 91 52; fchmodat 268 53; chown 92 -; fchown 93 55;
lchown 94 -; fchownat 260 54; umask 95 166; truncate 76 45; ftruncate 77 46; fallocate 285 47; fsync 74 82;
fdatasync 75 83; utime 132 -; utimes 235 -; futimesat 261 -; utimensat 280 88; statfs 137 43; fstatfs 138 44;
dup 32 23; dup2 33 -; dup3 292 24; pipe 22 -; pipe2 293 59; sendfile 40 71; copy_file_range 326 285; getxattr 191 8;
lgetxattr 192 9; fgetxattr 193 10; listxattr 194 11; llistxattr 195 12; flistxattr 196 13; setxattr 188 5;
lsetxattr 189 6; fsetxattr 190 7; removexattr 197 14; lremovexattr 198 15; fremovexattr 199 16; memfd_create 319 279;
brk 12 214; mmap 9 222; munmap 11 215; mremap 25 216; mprotect 10 226; msync 26 227; mlock 149 228; mlock2 325 284;
munlock 150 229; mlockall 151 230; munlockall 152 231; pkey_alloc 330 289; pkey_free 331 290; pkey_mprotect 329 288;
membarrier 324 283; shmget 29 194; shmat 30 196; shmctl 31 195; shmdt 67 197;
fork 57 -; vfork 58 -; execve 59 221; execveat 322 281; exit 60 93; exit_group 231 94; getpid 39 172; getppid 110 173;
gettid 186 178; getpgid 121 155; getpgrp 111 -; setpgid 109 154; getsid 124 156; setsid 112 157; kill 62 129;
tkill 200 130; tgkill 234 131; pidfd_open 434 434; pidfd_send_signal 424 424; arch_prctl 158 -; set_tid_address 218 96;
set_robust_list 273 99; get_robust_list 274 100; rseq 334 293; uname 63 160; sysinfo 99 179; getrandom 318 278;
restart_syscall 219 128; getuid 102 174; geteuid 107 175; getgid 104 176; getegid 108 177; getresuid 118 148;
getresgid 120 150; getgroups 115 158; setuid 105 146; setgid 106 144; setreuid 113 145; setregid 114 143;
setresuid 117 147; setresgid 119 149; setfsuid 122 151; setfsgid 123 152; setgroups 116 159; capget 125 90;
capset 126 91; getrlimit 97 163; setrlimit 160 164; prlimit64 302 261; getpriority 140 141; setpriority 141 140;
ioprio_get 252 31; ioprio_set 251 30; times 100 153; getcpu 309 168;
sched_yield 24 124; sched_getaffinity 204 123; sched_setaffinity 203 122; sched_getparam 143 121;
sched_setparam 142 118; sched_getscheduler 145 120; sched_setscheduler 144 119; sched_get_priority_max 146 125;
sched_get_priority_min 147 126; sched_rr_get_interval 148 127; sched_getattr 315 275; sched_setattr 314 274;
futex 202 98; futex_waitv 449 449; semget 64 190; semop 65 193; semtimedop 220 192; semctl 66 191; msgget 68 186;
msgsnd 69 189; msgrcv 70 188; msgctl 71 187;
rt_sigaction 13 134; rt_sigprocmask 14 135; rt_sigpending 127 136; rt_sigtimedwait 128 137; rt_sigqueueinfo 129 138;
rt_tgsigqueueinfo 297 240; rt_sigsuspend 130 133; rt_sigreturn 15 139; sigaltstack 131 132; pause 34 -; alarm 37 -;
getitimer 36 102; setitimer 38 103; nanosleep 35 101; clock_nanosleep 230 115; clock_gettime 228 113;
clock_getres 229 114; gettimeofday 96 169; time 201 -; timer_create 222 107; timer_settime 223 110;
timer_gettime 224 108; timer_getoverrun 225 109; timer_delete 226 111; timerfd_create 283 85; timerfd_settime 286 86;
timerfd_gettime 287 87;
select 23 -; pselect6 270 72; poll 7 -; ppoll 271 73; epoll_create 213 -; epoll_create1 291 20; epoll_ctl 233 21;
epoll_wait 232 -; epoll_pwait 281 22; epoll_pwait2 441 441; eventfd 284 -; eventfd2 290 19; signalfd 282 -;
signalfd4 289 74;
bind 49 200; listen 50 201; accept 43 202; accept4 288 242; connect 42 203; shutdown 48 210; getsockname 51 204;
getpeername 52 205; getsockopt 55 209; setsockopt 54 208; sendto 44 206; recvfrom 45 207; sendmsg 46 211;
recvmsg 47 212; sendmmsg 307 269; recvmmsg 299 243;
"""
_CONDITIONAL = """
clone 56 220; fcntl 72 25; ioctl 16 29; madvise 28 233; prctl 157 167; socket 41 198; socketpair 53 199; wait4 61 260;
waitid 247 95;
"""
# Libraries fall back to older calls, or to lock files, when the kernel does not have these calls. The filter cannot see
# the arguments of clone3 and openat2, which lie in memory. preadv2 and openat2 tell what is cached.
_MISSING = """
clone3 435 435; openat2 437 437; preadv2 327 286; pwritev2 328 287; flock 73 32;
"""
HIGHEST = 451  # cachestat: newer calls do not exist in the sandbox


@dataclass(frozen=True)
class OneOf:
    """An argument (32 bits) is one of these values."""

    argument: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Without:
    """An argument has none of these bits, which must be among the lower 32."""

    argument: int
    bits: int


@dataclass(frozen=True)
class Zero:
    """An argument (64 bits) is 0."""

    argument: int


Condition = OneOf | Without | Zero

# All conditions of a call must hold.
CONDITIONS: dict[str, tuple[Condition, ...]] = {
    # No new namespaces, and no tracing.
    "clone": (Without(0, 0x7E022000),),
    # Descriptors, flags, signals, sizes of pipes, seals of memory files. Missing: locks, leases, notifications, and the
    # hints about a file's use, which its inode keeps.
    "fcntl": (OneOf(1, (0, 1, 2, 3, 4, 8, 9, 10, 11, 15, 16, 1030, 1032, 1033, 1034)),),
    # Terminals, pending bytes, flags of descriptors, names and addresses of network devices. Missing: calls of file
    # systems, which read and change caches.
    "ioctl": (
        OneOf(
            1,
            (
                *(0x5401, 0x802C542A, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451),
                *(0x8910, 0x8912, 0x8913, 0x8915, 0x8933),
            ),
        ),
    ),
    # Missing: COLD, PAGEOUT and COLLAPSE, which change the cached pages of files; MERGEABLE, which shares pages with
    # other processes; HWPOISON, SOFT_OFFLINE.
    "madvise": (OneOf(2, (0, 1, 2, 3, 4, 8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 22, 23, 24, 102, 103)),),
    # The signal at the parent's death, dumps, names of threads and mappings, capabilities (read), timer slack,
    # subreapers, no_new_privs, huge pages.
    "prctl": (OneOf(0, (1, 2, 3, 4, 15, 16, 23, 29, 30, 36, 37, 38, 39, 40, 41, 42, 0x53564D41)),),
    # Unix and netlink; of netlink only routes, which is protocol 0. Missing: IPv4 and IPv6, because there is no network
    # and control groups of version 1 do not count the memory of connections; vsock, which connects to other machines
    # and is in no namespace; interfaces to the kernel's cryptography and to devices.
    "socket": (OneOf(0, (1, 16)), OneOf(2, (0,))),
    "socketpair": (OneOf(0, (1,)),),
    # Without the use of resources, which counts the page faults that had to read a disk.
    "wait4": (Zero(3),),
    "waitid": (Zero(4),),
}


@dataclass(frozen=True)
class Calls:
    """The system calls of an architecture.

    Attributes:
        architecture: its number in the kernel's audit (AUDIT_ARCH).
        allowed, missing: numbers of calls that work, and that report that they do not exist.
        conditional: number → conditions under which a call works.
    """

    architecture: int
    allowed: tuple[int, ...]
    missing: tuple[int, ...]
    conditional: dict[int, tuple[Condition, ...]]


_ARCHITECTURES = {"x86_64": (0xC000003E, 1), "aarch64": (0xC00000B7, 2)}  # number in the audit, column in the lists


def numbers(machine: str) -> dict[str, int]:
    """Return the number of every system call in the lists on a machine, such as ``x86_64``.

    Raises:
        KeyError: there are no lists for this machine.
    """
    return {name: number for text in (_ALLOWED, _CONDITIONAL, _MISSING) for name, number in _read(text, machine)}


def calls(machine: str) -> Calls:
    """Return the system calls of a machine, such as ``x86_64``.

    Raises:
        KeyError: there are no lists for this machine.
    """
    return Calls(
        architecture=_ARCHITECTURES[machine][0],
        allowed=tuple(number for _, number in _read(_ALLOWED, machine)),
        missing=tuple(number for _, number in _read(_MISSING, machine)),
        conditional={number: CONDITIONS[name] for name, number in _read(_CONDITIONAL, machine)},
    )


def _read(text: str, machine: str) -> list[tuple[str, int]]:
    column = _ARCHITECTURES[machine][1]
    words = [line.split() for line in text.split(";") if line.strip()]
    return [(word[0], int(word[column])) for word in words if word[column] != "-"]
