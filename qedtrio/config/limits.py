"""The limits of sessions and runs: one key each, with its page of the manual."""

from dataclasses import dataclass

from qedtrio.config.setting import Manual, Section, setting

__all__ = ["Limits"]

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

BY_WATCH = (
    "by the daemon's watch, which looks every `limits.watch_seconds`, in every tier"
    " alike."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Section):
    """What one session and one run may use. A session may ask for less."""

    deadline_seconds: float = setting(
        30.0,
        "A run without a deadline of its own gets this one. When it passes the run"
        " is interrupted, then killed: `timed_out`.",
        least=0.01,
        most=86400,
        manual=Manual(
            scope="a run, from its dispatch to a worker.",
            reached="status `timed_out`, error `DeadlineExceeded`. State is kept where"
            " the code obeys an interrupt, lost where it must be killed.",
        ),
    )
    max_deadline_seconds: float = setting(
        600.0,
        "The longest deadline that a request may ask for; more is refused with 400.",
        least=0.01,
        most=86400,
        manual=Manual(scope="a run.", reached="400 `invalid_request`; nothing is run."),
    )
    cpu_seconds: float = setting(
        600.0,
        "Processor time of one run, its threads and children included. The default"
        " is the longest deadline: code on one processor meets its deadline first,"
        " and only parallel code meets this.",
        least=0.01,
        most=2592000,
        manual=Manual(
            scope="a run, summed over all processes of its session; noticed within"
            " `limits.watch_seconds`.",
            reached="status `timed_out`, error `CpuTimeExceeded`. The run is interrupted,"
            " then killed, as at its deadline; state is kept or lost as there. What it"
            " left running may use as much again between runs; then the session is"
            " killed, and its next run is told and not started.",
            enforced="by the daemon's watch. Tier A counts ended children too; tiers B"
            " and C lose the time of orphans that have ended, so there the deadline is"
            " the bound of code that hides that way. RLIMIT_CPU is not used: it counts"
            " the life of a process, not a run.",
        ),
    )
    queue_seconds: float = setting(
        30.0,
        "The longest wait for a turn in a session or for a free worker; then 503"
        " `queue_timeout`.",
        least=0.01,
        most=3600,
        manual=Manual(
            scope="a request.", reached="503 `queue_timeout`; nothing is run."
        ),
    )
    waiting_runs: int = setting(
        64,
        "Runs that may wait for their turn in one session; more are refused with"
        " 503 `overloaded`.",
        least=1,
        most=65536,
        manual=Manual(scope="a session.", reached="503 `overloaded`; nothing is run."),
    )
    sessions: int = setting(
        512,
        "Open sessions at most; more are refused with 503 `overloaded`.",
        least=1,
        most=65536,
        manual=Manual(
            scope="the daemon.", reached="503 `overloaded`; others are untouched."
        ),
    )
    sessions_per_principal: int = setting(
        512,
        "Open sessions of one principal at most; more are refused with 429"
        " `quota_exceeded`. Without tokens everybody is the same principal.",
        least=1,
        most=65536,
        manual=Manual(
            scope="a principal.",
            reached="429 `quota_exceeded`; the open sessions are untouched.",
        ),
    )
    idle_seconds: float = setting(
        1800.0,
        "A session unused for this long is closed and its worker killed.",
        least=0.05,
        most=2592000,
        manual=Manual(
            scope="a session, from the end of its last run.",
            reached="the session is closed and its state lost; later requests get 410"
            " `session_closed`.",
        ),
    )
    lifetime_seconds: float = setting(
        86400.0,
        "A session of this age is closed even while in use.",
        least=0.05,
        most=2592000,
        manual=Manual(
            scope="a session, from its opening.",
            reached="the session is closed and its state lost; a run in it and later"
            " requests get 410 `session_closed`.",
        ),
    )
    memory_bytes: int = setting(
        2 * GIB,
        "Address space of each process of a session, and memory of all of them"
        " together. An allocation beyond it raises MemoryError; a session beyond it"
        " is killed: `memory_exceeded` either way.",
        least=256 * MIB,
        manual=Manual(
            scope="each process by its address space, at once; the session by the"
            " memory that its processes really occupy, within `limits.watch_seconds`.",
            reached="status `memory_exceeded`. An allocation refused to the interpreter"
            " is a MemoryError and keeps the state. A session killed for the sum of its"
            " processes loses it, with error `MemoryLimitExceeded`; killed between two"
            " runs, the next one is told and not started.",
            enforced="RLIMIT_AS for each process and the watch for the session, in"
            " every tier; memory.max as well where a control group with a memory"
            " controller was delegated. Pages shared with the preload are not counted"
            " in full for each process (PSS).",
        ),
    )
    total_memory_bytes: int = setting(
        0,
        "Memory of all sessions together; 0 means 80 % of the host's memory, or of"
        " the daemon's control group where that is smaller. From nine tenths of it"
        " nothing more is admitted; beyond it the biggest session is killed.",
        least=0,
        manual=Manual(
            scope="the daemon.",
            reached="new sessions and stateless runs get 503 `overloaded`. The biggest"
            " session alone is killed: its run, or its next one, ends as"
            " `memory_exceeded` with error `HostMemoryExceeded`, state lost.",
            enforced=BY_WATCH,
        ),
    )
    free_memory_bytes: int = setting(
        256 * MIB,
        "Memory that the host must keep available (MemAvailable), whoever uses the"
        " rest. Below it nothing more is admitted; below half of it the biggest"
        " session is killed. 0 turns it off.",
        least=0,
        manual=Manual(
            scope="the host.",
            reached="as `limits.total_memory_bytes`. Nothing under 64 MiB is killed:"
            " that would free too little to help.",
            enforced=BY_WATCH,
        ),
    )
    processes: int = setting(
        64,
        "Processes and threads of a session; more fail to start.",
        least=1,
        most=4096,
        manual=Manual(
            scope="a session.",
            reached="fork and thread starts fail in the code (BlockingIOError,"
            " RuntimeError) and state is kept. Where the watch finds more, the session"
            " is killed: status `signalled`, error `ProcessLimitExceeded`.",
            enforced="tier A: RLIMIT_NPROC, counted in the worker's own user namespace."
            " Tiers B and C share one user, so RLIMIT_NPROC only bounds all workers"
            " together, and the watch holds each session to its own bound. pids.max as"
            " well where a control group with a pids controller was delegated.",
        ),
    )
    open_files: int = setting(
        256,
        "Open descriptors of each process.",
        least=32,
        most=65536,
        manual=Manual(
            scope="a process.",
            reached="OSError (EMFILE) in the code; state is kept.",
            enforced="RLIMIT_NOFILE, in every tier.",
        ),
    )
    file_bytes: int = setting(
        64 * MIB,
        "Largest file that may be written; beyond it EFBIG.",
        least=4096,
        manual=Manual(
            scope="a file.",
            reached="OSError (EFBIG) in the code; state is kept.",
            enforced="RLIMIT_FSIZE, in every tier.",
        ),
    )
    disk_bytes: int = setting(
        64 * MIB,
        "Size of the session's private directory, /tmp and /dev/shm together. Tier A"
        " holds them in memory and answers ENOSPC beyond it; elsewhere the session"
        " is killed.",
        least=64 * KIB,
        manual=Manual(
            scope="a session. A session cannot lower it: in tier A the folders are made"
            " before the worker is leased, and cannot be made smaller afterwards.",
            reached="tier A: OSError (ENOSPC) in the code; state is kept. Tiers B and C:"
            " status `signalled`, error `DiskLimitExceeded`, state lost.",
            enforced="tier A: the size of a tmpfs. Tiers B and C: the watch adds up the"
            " folder, 512 bytes an entry included; files that are deleted but still"
            " open escape it, and are bounded by `file_bytes` times `open_files`.",
        ),
    )
    output_bytes: int = setting(
        1 * MIB,
        "Bytes kept of each of stdout and stderr per run: the first and the last"
        " half, with a marker between.",
        least=1024,
        most=256 * MIB,
        manual=Manual(
            scope="a stream of a run.",
            reached="the middle is dropped and `truncated` counts it; the run goes on"
            " and state is kept. With `limits.output_policy` `kill`: see there.",
        ),
    )
    output_policy: str = setting(
        "cut",
        "cut: output beyond the limit is dropped from the middle. kill: the run is"
        " killed as `output_exceeded`.",
        choices=("cut", "kill"),
        manual=Manual(
            scope="a run.",
            reached="with `kill`: status `output_exceeded`, state lost.",
        ),
    )
    result_bytes: int = setting(
        64 * KIB,
        "Longest repr returned as `result`; beyond it is cut with a marker.",
        least=64,
        most=16 * MIB,
        manual=Manual(
            scope="a run.",
            reached="the middle is dropped; state is kept.",
            enforced="in the worker, in every tier.",
        ),
    )
    code_bytes: int = setting(
        1 * MIB,
        "Longest code of a run in UTF-8; more is refused with 413.",
        least=1,
        most=64 * MIB,
        manual=Manual(scope="a run.", reached="413 `code_too_large`; nothing is run."),
    )
    watch_seconds: float = setting(
        1.0,
        "Between two looks of the watch at what the sessions use. What it enforces"
        " may be exceeded for this long.",
        least=0.05,
        most=60,
        manual=Manual(
            scope="the daemon.",
            reached="nothing; a shorter time costs more of a processor: a look takes"
            " some 25 µs for each process of the host, in a thread of its own.",
        ),
    )
