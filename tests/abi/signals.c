// SPDX-License-Identifier: Apache-2.0
//
// Installing handlers, masks, and what a handler changes for the code it interrupts.
#include "harness.h"
#include <ucontext.h>

static volatile sig_atomic_t calls, last_signal, order[16];
static volatile siginfo_t last_info;

static void reset(void) {
    calls = last_signal = 0;
    memset((void *)&last_info, 0, sizeof last_info);
}

static void counts(int signal) {
    last_signal = signal;
    order[calls % 16] = signal;
    calls++;
}

static void records(int signal, siginfo_t *info, void *context) {
    (void)context;
    last_info = *info;
    counts(signal);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static void handle_simply(int signal, int flags) {
    struct sigaction action = {.sa_handler = counts, .sa_flags = flags};
    CHECK(sigaction(signal, &action, NULL) == 0);
}

static sigset_t set_of(int first, int second) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first);
    if (second)
        sigaddset(&set, second);
    return set;
}

CASE(raise_runs_the_handler_before_returning) {
    reset();
    handle_simply(SIGUSR1, 0);
    CHECK(raise(SIGUSR1) == 0);
    CHECK_EQ(calls, 1);
    CHECK_EQ(last_signal, SIGUSR1);
}

CASE(sigaction_returns_the_previous_action) {
    struct sigaction action = {.sa_handler = counts, .sa_flags = SA_RESTART}, old;
    sigaddset(&action.sa_mask, SIGTERM);
    CHECK(sigaction(SIGUSR1, &action, &old) == 0);
    CHECK(old.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGUSR1, NULL, &old) == 0);
    CHECK(old.sa_handler == counts);
    CHECK((old.sa_flags & SA_RESTART) != 0);
    CHECK(sigismember(&old.sa_mask, SIGTERM) == 1);
    CHECK(sigismember(&old.sa_mask, SIGHUP) == 0);
}

CASE(sigaction_refuses_what_cannot_be_caught) {
    struct sigaction action = {.sa_handler = counts};
    FAILS(sigaction(SIGKILL, &action, NULL), EINVAL);
    FAILS(sigaction(SIGSTOP, &action, NULL), EINVAL);
    FAILS(sigaction(0, &action, NULL), EINVAL);
    FAILS(sigaction(65, &action, NULL), EINVAL);
    FAILS(sigaction(-1, &action, NULL), EINVAL);
    FAILS(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4), EINVAL); // the set's size is 8
}

CASE(ignored_signal_does_nothing) {
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    CHECK(sigaction(SIGTERM, &ignore, NULL) == 0);
    CHECK(kill(getpid(), SIGTERM) == 0);
    CHECK(raise(SIGTERM) == 0);
}

CASE(default_of_some_signals_is_ignore) {
    CHECK(raise(SIGCHLD) == 0);
    CHECK(raise(SIGURG) == 0);
    CHECK(raise(SIGWINCH) == 0);
    CHECK(raise(SIGCONT) == 0);
}

CASE(kill_zero_checks_existence) {
    CHECK(kill(getpid(), 0) == 0);
    FAILS(kill(999999, 0), ESRCH);
    FAILS(kill(getpid(), 65), EINVAL);
    FAILS(kill(getpid(), -1), EINVAL);
}

CASE(kill_reports_its_sender) {
    reset();
    handle(SIGUSR2, records, 0);
    CHECK(kill(getpid(), SIGUSR2) == 0);
    CHECK_EQ(calls, 1);
    CHECK_EQ(last_info.si_signo, SIGUSR2);
    CHECK_EQ(last_info.si_code, SI_USER);
    CHECK_EQ(last_info.si_pid, getpid());
    CHECK_EQ(last_info.si_uid, getuid());
}

CASE(tgkill_reports_its_kind) {
    reset();
    handle(SIGUSR2, records, 0);
    CHECK(syscall(SYS_tgkill, getpid(), tid(), SIGUSR2) == 0);
    CHECK_EQ(calls, 1);
    CHECK_EQ(last_info.si_code, SI_TKILL);
    CHECK_EQ(last_info.si_pid, getpid());
    FAILS(syscall(SYS_tgkill, getpid(), 999999, SIGUSR2), ESRCH);
    FAILS(syscall(SYS_tgkill, getpid() + 1, tid(), SIGUSR2), ESRCH);
    FAILS(syscall(SYS_tgkill, -1, tid(), SIGUSR2), EINVAL);
    FAILS(syscall(SYS_tgkill, getpid(), 0, SIGUSR2), EINVAL);
    FAILS(syscall(SYS_tgkill, getpid(), tid(), 65), EINVAL);
}

CASE(blocked_signal_waits_until_unblocked) {
    reset();
    handle_simply(SIGUSR1, 0);
    sigset_t set = set_of(SIGUSR1, 0), old, pending;
    CHECK(sigprocmask(SIG_BLOCK, &set, &old) == 0);
    CHECK(sigismember(&old, SIGUSR1) == 0);
    raise(SIGUSR1);
    raise(SIGUSR1); // a standard signal is pending once
    CHECK_EQ(calls, 0);
    CHECK(sigpending(&pending) == 0);
    CHECK(sigismember(&pending, SIGUSR1) == 1);
    CHECK(sigismember(&pending, SIGUSR2) == 0);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
    CHECK_EQ(calls, 1);
    CHECK(sigpending(&pending) == 0);
    CHECK(sigismember(&pending, SIGUSR1) == 0);
}

CASE(sigprocmask_forms) {
    sigset_t one = set_of(SIGUSR1, 0), two = set_of(SIGUSR2, 0), now;
    CHECK(sigprocmask(SIG_SETMASK, &one, NULL) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &two, NULL) == 0);
    CHECK(sigprocmask(SIG_UNBLOCK, &one, NULL) == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGUSR1) == 0);
    FAILS(sigprocmask(77, &one, NULL), EINVAL);
    CHECK(sigprocmask(77, NULL, &now) == 0); // `how` does not matter without a set
    FAILS(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &one, NULL, 16), EINVAL);
}

CASE(kill_and_stop_cannot_be_blocked) {
    sigset_t all, now;
    sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGKILL) == 0 && sigismember(&now, SIGSTOP) == 0 && sigismember(&now, SIGINT) == 1);
}

CASE(ignoring_discards_a_pending_signal) {
    reset();
    sigset_t set = set_of(SIGUSR1, 0), pending;
    sigprocmask(SIG_BLOCK, &set, NULL);
    handle_simply(SIGUSR1, 0);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_IGN);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 0);
    handle_simply(SIGUSR1, 0);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    CHECK_EQ(calls, 0);
}

static volatile sig_atomic_t inside, depth, deepest;

static void raises_itself(int signal) {
    depth++;
    if (depth > deepest)
        deepest = depth;
    if (++inside <= 3)
        raise(signal);
    depth--;
}

CASE(handler_runs_with_its_signal_blocked) {
    struct sigaction action = {.sa_handler = raises_itself};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    inside = depth = deepest = 0;
    raise(SIGUSR1);
    CHECK_EQ(inside, 4);  // each raise() is delivered when the handler before it has returned
    CHECK_EQ(deepest, 1); // never nested
}

CASE(sa_nodefer_nests) {
    struct sigaction action = {.sa_handler = raises_itself, .sa_flags = SA_NODEFER};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    inside = depth = deepest = 0;
    raise(SIGUSR1);
    CHECK_EQ(inside, 4);
    CHECK_EQ(deepest, 4);
}

static volatile sig_atomic_t calls_at_start_of_outer, calls_at_end_of_outer;

static void raises_another(int signal) {
    (void)signal;
    calls_at_start_of_outer = calls;
    raise(SIGUSR2);
    calls_at_end_of_outer = calls;
}

CASE(sa_mask_holds_other_signals_back) {
    struct sigaction action = {.sa_handler = raises_another};
    reset();
    handle_simply(SIGUSR2, 0);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    CHECK_EQ(calls_at_end_of_outer, 1); // not masked: nested at once
    sigaddset(&action.sa_mask, SIGUSR2);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    reset();
    raise(SIGUSR1);
    CHECK_EQ(calls_at_end_of_outer, 0); // masked: after the handler
    CHECK_EQ(calls, 1);
}

CASE(mask_is_restored_after_the_handler) {
    sigset_t before, after;
    handle_simply(SIGUSR1, 0);
    sigset_t set = set_of(SIGHUP, 0);
    sigprocmask(SIG_SETMASK, &set, NULL);
    sigprocmask(SIG_BLOCK, NULL, &before);
    raise(SIGUSR1);
    sigprocmask(SIG_BLOCK, NULL, &after);
    CHECK(memcmp(&before, &after, 8) == 0);
}

CASE(sa_resethand_is_used_once) {
    reset();
    handle_simply(SIGUSR1, SA_RESETHAND);
    raise(SIGUSR1);
    struct sigaction now;
    CHECK(sigaction(SIGUSR1, NULL, &now) == 0);
    CHECK_EQ(calls, 1);
    CHECK(now.sa_handler == SIG_DFL);
}

static void changes_the_mask(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    sigaddset(&((ucontext_t *)context)->uc_sigmask, SIGWINCH);
}

CASE(handler_may_change_the_mask_to_return_to) {
    handle(SIGUSR1, changes_the_mask, 0);
    raise(SIGUSR1);
    sigset_t now;
    sigprocmask(SIG_BLOCK, NULL, &now);
    CHECK(sigismember(&now, SIGWINCH) == 1);
}

static void changes_a_register(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    registers[REG_R12] = 0x1234;
    registers[REG_RIP] += 2; // over the ud2
}

CASE(handler_may_change_registers) {
    handle(SIGILL, changes_a_register, 0);
    long value = 1;
    __asm__ volatile("mov $5, %%r12\n\t"
                     "ud2\n\t"
                     "mov %%r12, %0"
                     : "=r"(value)
                     :
                     : "r12");
    CHECK_EQ(value, 0x1234);
}

static sigjmp_buf jump;

static void jumps_out(int signal) { siglongjmp(jump, signal); }

CASE(siglongjmp_leaves_a_handler_and_restores_the_mask) {
    struct sigaction action = {.sa_handler = jumps_out};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (volatile int i = 0; i < 3; i++) {
        int how = sigsetjmp(jump, 1);
        if (how == 0) {
            raise(SIGUSR1);
            CHECK(!"raise() comes back");
        }
        CHECK_EQ(how, SIGUSR1);
        sigset_t now;
        sigprocmask(SIG_BLOCK, NULL, &now);
        CHECK(sigismember(&now, SIGUSR1) == 0);
    }
}

static char alternate[65536];
static volatile sig_atomic_t was_on_alternate, flags_inside;

static void looks_at_its_stack(int signal) {
    (void)signal;
    char here;
    stack_t now;
    was_on_alternate = &here >= alternate && &here < alternate + sizeof alternate;
    sigaltstack(NULL, &now);
    flags_inside = now.ss_flags;
}

CASE(sigaltstack_is_used_only_when_asked) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, now;
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = looks_at_its_stack, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    CHECK_EQ(was_on_alternate, 1);
    CHECK_EQ(flags_inside, SS_ONSTACK);
    action.sa_flags = 0;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    CHECK_EQ(was_on_alternate, 0);
    CHECK_EQ(flags_inside, 0);
    CHECK(sigaltstack(NULL, &now) == 0);
    CHECK(now.ss_sp == alternate && now.ss_size == sizeof alternate);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, NULL) == 0);
    CHECK(sigaltstack(NULL, &now) == 0);
    CHECK_EQ(now.ss_flags, SS_DISABLE);
}

static volatile sig_atomic_t change_error;

static void changes_its_stack(int signal) {
    (void)signal;
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate / 2};
    change_error = sigaltstack(&stack, NULL) == -1 ? errno : 0;
}

CASE(sigaltstack_errors) {
    stack_t stack = {.ss_sp = alternate, .ss_size = 512};
    FAILS(sigaltstack(&stack, NULL), ENOMEM);
    stack = (stack_t){.ss_sp = alternate, .ss_size = sizeof alternate, .ss_flags = 1 << 9};
    FAILS(sigaltstack(&stack, NULL), EINVAL);
    stack.ss_flags = 0;
    CHECK(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = changes_its_stack, .sa_flags = SA_ONSTACK};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    raise(SIGUSR1);
    CHECK_EQ(change_error, EPERM);
}

static pthread_t target;
static void *signals_soon(void *signal) {
    sleep_ms(40);
    pthread_kill(target, (int)(intptr_t)signal);
    return NULL;
}

static void *writes_later(void *fd) {
    sleep_ms(120);
    CHECK(write((int)(intptr_t)fd, "x", 1) == 1);
    return NULL;
}

CASE(blocking_read_is_interrupted_without_sa_restart) {
    int ends[2];
    char byte;
    reset();
    handle_simply(SIGUSR1, 0);
    CHECK(pipe(ends) == 0);
    target = pthread_self();
    pthread_t other = spawn(signals_soon, (void *)SIGUSR1);
    FAILS(read(ends[0], &byte, 1), EINTR);
    CHECK_EQ(calls, 1);
    join(other);
}

CASE(blocking_read_is_restarted_with_sa_restart) {
    int ends[2];
    char byte = 0;
    reset();
    handle_simply(SIGUSR1, SA_RESTART);
    CHECK(pipe(ends) == 0);
    target = pthread_self();
    pthread_t one = spawn(signals_soon, (void *)SIGUSR1), two = spawn(writes_later, (void *)(intptr_t)ends[1]);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EQ(byte, 'x');
    CHECK_EQ(calls, 1);
    join(one);
    join(two);
}

CASE(poll_is_interrupted_even_with_sa_restart) {
    int ends[2];
    reset();
    handle_simply(SIGUSR1, SA_RESTART);
    CHECK(pipe(ends) == 0);
    struct pollfd wanted = {.fd = ends[0], .events = POLLIN};
    target = pthread_self();
    pthread_t other = spawn(signals_soon, (void *)SIGUSR1);
    FAILS(poll(&wanted, 1, 10000), EINTR);
    CHECK_EQ(calls, 1);
    join(other);
}

CASE(ignored_signal_does_not_interrupt) {
    int ends[2];
    char byte;
    signal(SIGUSR1, SIG_IGN);
    CHECK(pipe(ends) == 0);
    target = pthread_self();
    pthread_t one = spawn(signals_soon, (void *)SIGUSR1), two = spawn(writes_later, (void *)(intptr_t)ends[1]);
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    join(one);
    join(two);
}

CASE(sigsuspend_swaps_the_mask_and_returns_eintr) {
    reset();
    handle_simply(SIGUSR1, 0);
    sigset_t blocked = set_of(SIGUSR1, 0), none, now;
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGUSR1);
    CHECK_EQ(calls, 0);
    sigemptyset(&none);
    FAILS(sigsuspend(&none), EINTR);
    CHECK_EQ(calls, 1);
    sigprocmask(SIG_BLOCK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR1) == 1);
}

CASE(pause_returns_after_a_handler) {
    reset();
    handle_simply(SIGUSR1, SA_RESTART);
    target = pthread_self();
    pthread_t other = spawn(signals_soon, (void *)SIGUSR1);
    FAILS(pause(), EINTR);
    CHECK_EQ(calls, 1);
    join(other);
}

CASE(red_zone_below_the_stack_pointer_survives) {
    handle_simply(SIGUSR1, 0);
    long kept = 0;
    // tgkill from assembly with a value in the red zone, which no compiler may move.
    __asm__ volatile("movq $0x77, -120(%%rsp)\n\t"
                     "syscall\n\t"
                     "movq -120(%%rsp), %0"
                     : "=r"(kept)
                     : "a"(SYS_tgkill), "D"((long)getpid()), "S"((long)tid()), "d"((long)SIGUSR1)
                     : "rcx", "r11", "memory");
    CHECK_EQ(kept, 0x77);
}
