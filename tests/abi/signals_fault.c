// SPDX-License-Identifier: Apache-2.0
//
// Signals the CPU raises, and the registers a handler must leave untouched.
#include "harness.h"
#include <immintrin.h>
#include <ucontext.h>

static volatile struct {
    int signal, code, trap;
    uintptr_t address, rip;
} seen;
static sigjmp_buf out;

static void notes_and_leaves(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    seen.signal = signal;
    seen.code = info->si_code;
    seen.trap = (int)registers[REG_TRAPNO];
    seen.address = (uintptr_t)info->si_addr;
    seen.rip = (uintptr_t)registers[REG_RIP];
    siglongjmp(out, 1);
}

static void catch(int signal) {
    struct sigaction action = {.sa_sigaction = notes_and_leaves, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(signal, &action, NULL) == 0);
    memset((void *)&seen, 0, sizeof seen);
}

CASE(integer_division_by_zero_is_sigfpe) {
    catch(SIGFPE);
    if (sigsetjmp(out, 1) == 0)
        __asm__ volatile("xor %%ecx, %%ecx; mov $1, %%eax; cltd; idiv %%ecx" ::: "eax", "ecx", "edx");
    CHECK_EQ(seen.signal, SIGFPE);
    CHECK_EQ(seen.code, FPE_INTDIV);
    CHECK_EQ(seen.trap, 0);
    CHECK_EQ(seen.address, seen.rip);
}

CASE(integer_division_overflow_is_sigfpe) {
    catch(SIGFPE);
    if (sigsetjmp(out, 1) == 0)
        __asm__ volatile("mov $-1, %%ecx; mov $0x80000000, %%eax; cltd; idiv %%ecx" ::: "eax", "ecx", "edx");
    CHECK_EQ(seen.signal, SIGFPE);
    CHECK_EQ(seen.code, FPE_INTDIV);
}

// x87, not SSE: QEMU's software emulation never raises SSE exceptions.
CASE(unmasked_x87_exception_is_sigfpe) {
    catch(SIGFPE);
    uint16_t before, unmasked;
    __asm__ volatile("fnstcw %0" : "=m"(before));
    unmasked = before & (uint16_t)~0x4; // division by zero
    if (sigsetjmp(out, 1) == 0)
        __asm__ volatile("fldcw %0; fld1; fldz; fdivrp; fwait" ::"m"(unmasked));
    __asm__ volatile("fninit; fldcw %0" ::"m"(before));
    CHECK_EQ(seen.signal, SIGFPE);
    CHECK_EQ(seen.code, FPE_FLTDIV);
    CHECK_EQ(seen.trap, 16);
}

CASE(undefined_instruction_is_sigill) {
    catch(SIGILL);
    if (sigsetjmp(out, 1) == 0)
        __asm__ volatile("ud2");
    CHECK_EQ(seen.signal, SIGILL);
    CHECK_EQ(seen.code, ILL_ILLOPN);
    CHECK_EQ(seen.trap, 6);
    CHECK_EQ(seen.address, seen.rip);
}

CASE(breakpoint_is_sigtrap_behind_the_instruction) {
    catch(SIGTRAP);
    uintptr_t at;
    if (sigsetjmp(out, 1) == 0)
        __asm__ volatile("1: int3");
    __asm__ volatile("lea 1b(%%rip), %0" : "=r"(at));
    CHECK_EQ(seen.signal, SIGTRAP);
    CHECK_EQ(seen.code, SI_KERNEL);
    CHECK_EQ(seen.trap, 3);
    CHECK_EQ(seen.rip, at + 1);
}

CASE(page_fault_context_tells_address_and_kind) {
    catch(SIGSEGV);
    char *hole = unmapped_page();
    if (sigsetjmp(out, 1) == 0)
        *(volatile char *)(hole + 5) = 1;
    CHECK_EQ(seen.signal, SIGSEGV);
    CHECK_EQ(seen.code, SEGV_MAPERR);
    CHECK_EQ(seen.trap, 14);
    CHECK_EQ(seen.address, (uintptr_t)hole + 5);
}

CASE(call_into_nowhere_faults_at_the_target) {
    catch(SIGSEGV);
    char *hole = unmapped_page();
    if (sigsetjmp(out, 1) == 0)
        touch_call(hole + 16);
    CHECK_EQ(seen.address, (uintptr_t)hole + 16);
    CHECK_EQ(seen.rip, (uintptr_t)hole + 16);
}

CASE(sigbus_beyond_the_end_of_a_file) {
    catch(SIGBUS);
    write_file("short", "x");
    int fd = open("short", O_RDWR);
    char *at = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    if (sigsetjmp(out, 1) == 0)
        (void)*(volatile char *)(at + PAGE + 3);
    CHECK_EQ(seen.signal, SIGBUS);
    CHECK_EQ(seen.code, BUS_ADRERR);
    CHECK_EQ(seen.address, (uintptr_t)at + PAGE + 3);
}

static volatile sig_atomic_t repairs;

static void maps_the_page(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    void *page = (void *)((uintptr_t)info->si_addr & ~(PAGE - 1));
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0)
        repairs++;
}

// Garbage collectors work like this: the handler repairs the page and the access is repeated.
CASE(handler_repairs_and_the_access_is_repeated) {
    struct sigaction action = {.sa_sigaction = maps_the_page, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    repairs = 0;
    char *at = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < 8; i++)
        at[i * PAGE + i] = (char)(i + 1);
    CHECK_EQ(repairs, 8);
    for (size_t i = 0; i < 8; i++)
        CHECK_EQ(at[i * PAGE + i], i + 1);
}

static void faults_again(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    repairs++;
    if (repairs < 3)
        *(volatile char *)(uintptr_t)((uintptr_t)info->si_addr + PAGE) = 1; // a fault inside the handler
    for (int i = 0; i < 4; i++)
        mprotect((void *)(((uintptr_t)info->si_addr & ~(PAGE - 1))), PAGE, PROT_READ | PROT_WRITE);
}

CASE(faults_nest_with_sa_nodefer) {
    struct sigaction action = {.sa_sigaction = faults_again, .sa_flags = SA_SIGINFO | SA_NODEFER};
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    repairs = 0;
    char *at = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char *)at = 1;
    CHECK_EQ(repairs, 3);
    CHECK_EQ(at[PAGE], 1);
    CHECK_EQ(at[2 * PAGE], 1);
}

// ---- registers ----

static void clobbers_vector_state(int signal) {
    (void)signal;
    // As hostile as a handler can be: every vector register, the flags, the rounding modes.
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0; movdqa %%xmm0, %%xmm1; movdqa %%xmm0, %%xmm2; movdqa %%xmm0, %%xmm3\n\t"
                     "movdqa %%xmm0, %%xmm4; movdqa %%xmm0, %%xmm5; movdqa %%xmm0, %%xmm6; movdqa %%xmm0, %%xmm7\n\t"
                     "movdqa %%xmm0, %%xmm8; movdqa %%xmm0, %%xmm9; movdqa %%xmm0, %%xmm10; movdqa %%xmm0, %%xmm11\n\t"
                     "movdqa %%xmm0, %%xmm12; movdqa %%xmm0, %%xmm13; movdqa %%xmm0, %%xmm14; movdqa %%xmm0, %%xmm15\n\t"
                     "fninit; fldpi; fldpi; stc" ::
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                           "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc", "memory");
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroall" ::: "memory");
    _mm_setcsr(_mm_getcsr() | _MM_ROUND_UP);
}

#define KILL_SELF(signal_number) "a"(SYS_tgkill), "D"((long)getpid()), "S"((long)tid()), "d"((long)(signal_number))

static void install_clobber(void) {
    struct sigaction action = {.sa_handler = clobbers_vector_state};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

CASE(sse_registers_survive_a_handler) {
    install_clobber();
    uint64_t in[2] = {0x0123456789abcdef, 0xfedcba9876543210}, first[2] = {0}, last[2] = {0};
    __asm__ volatile("movdqu (%[in]), %%xmm3\n\t"
                     "movdqu (%[in]), %%xmm15\n\t"
                     "syscall\n\t"
                     "movdqu %%xmm3, (%[first])\n\t"
                     "movdqu %%xmm15, (%[last])"
                     :
                     : KILL_SELF(SIGUSR1), [in] "r"(in), [first] "r"(first), [last] "r"(last)
                     : "rcx", "r11", "xmm3", "xmm15", "memory");
    CHECK(memcmp(in, first, sizeof in) == 0);
    CHECK(memcmp(in, last, sizeof in) == 0);
}

__attribute__((target("avx"))) static bool avx_survives(void) {
    uint64_t in[4] = {1, 2, 0x3333333333333333, 0x4444444444444444}, kept[4] = {0};
    __asm__ volatile("vmovdqu (%[in]), %%ymm7\n\t"
                     "syscall\n\t"
                     "vmovdqu %%ymm7, (%[kept])"
                     :
                     : KILL_SELF(SIGUSR1), [in] "r"(in), [kept] "r"(kept)
                     : "rcx", "r11", "xmm7", "memory");
    return memcmp(in, kept, sizeof in) == 0;
}

CASE(avx_registers_survive_a_handler) {
    install_clobber();
    if (__builtin_cpu_supports("avx")) // a CPU model without it has nothing to lose
        CHECK(avx_survives());
}

CASE(x87_stack_and_control_words_survive_a_handler) {
    install_clobber();
    unsigned csr = _mm_getcsr();
    uint16_t control_before, control_after;
    long double kept = 0;
    __asm__ volatile("fnstcw %0" : "=m"(control_before));
    __asm__ volatile("fld1\n\t"
                     "syscall\n\t"
                     "fstpt %0\n\t"
                     : "=m"(kept)
                     : KILL_SELF(SIGUSR1)
                     : "rcx", "r11", "memory", "st");
    __asm__ volatile("fnstcw %0" : "=m"(control_after));
    CHECK(kept == 1.0L);
    CHECK_EQ(control_before, control_after);
    CHECK_EQ(_mm_getcsr(), csr);
}

static volatile sig_atomic_t handler_csr;

static void reads_its_csr(int signal) {
    (void)signal;
    handler_csr = (sig_atomic_t)_mm_getcsr();
}

CASE(handler_inherits_or_resets_the_rounding_mode) {
    struct sigaction action = {.sa_handler = reads_its_csr};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    unsigned before = _mm_getcsr();
    _mm_setcsr((before & ~0x6000U) | _MM_ROUND_DOWN);
    raise(SIGUSR1);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    CHECK_EQ(after & 0x6000, _MM_ROUND_DOWN); // whatever the handler saw, the interrupted code keeps its own
    CHECK_EQ(handler_csr & 0x1f80, 0x1f80);   // exceptions stay masked in the handler
}

static volatile sig_atomic_t ticks;
static void ticks_and_clobbers(int signal) {
    ticks++;
    clobbers_vector_state(signal);
}

// Signals that arrive between any two instructions, not only at system calls.
CASE(timer_signals_do_not_disturb_a_computation) {
    struct sigaction action = {.sa_handler = ticks_and_clobbers, .sa_flags = SA_RESTART};
    ticks = 0;
    double plain = 0;
    for (int i = 1; i < 100000; i++)
        plain += 1.0 / i;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval every = {{0, 1000}, {0, 1000}};
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
    int rounds = 0;
    while (ticks < 20 || rounds < 5) {
        double disturbed = 0;
        for (int i = 1; i < 100000; i++)
            disturbed += 1.0 / i;
        CHECK(disturbed == plain);
        rounds++;
    }
}

CASE(flags_and_general_registers_survive_a_handler) {
    install_clobber();
    unsigned long rbx, r15, flags;
    __asm__ volatile("mov $0x1111, %%rbx\n\t"
                     "mov $0x2222, %%r15\n\t"
                     "std\n\t" // the direction flag: cleared in the handler, set again behind it
                     "syscall\n\t"
                     "pushfq\n\t"
                     "pop %2\n\t"
                     "cld\n\t"
                     "mov %%rbx, %0\n\t"
                     "mov %%r15, %1"
                     : "=&r"(rbx), "=&r"(r15), "=&r"(flags)
                     : KILL_SELF(SIGUSR1)
                     : "rcx", "r11", "rbx", "r15", "memory", "cc");
    CHECK_EQ(rbx, 0x1111);
    CHECK_EQ(r15, 0x2222);
    CHECK((flags & 0x400) != 0);
}

static uint64_t frame_low;

static void edits_the_frame(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    struct _libc_fpstate *state = ((ucontext_t *)context)->uc_mcontext.fpregs;
    memcpy(&frame_low, &state->_xmm[5], 8);
    memset(&state->_xmm[5], 0xab, 8);
}

CASE(frame_shows_vector_registers_and_takes_changes) {
    struct sigaction action = {.sa_sigaction = edits_the_frame, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    uint64_t in = 0x0102030405060708, out_value = 0;
    frame_low = 0;
    __asm__ volatile("movq (%[in]), %%xmm5\n\t"
                     "syscall\n\t"
                     "movq %%xmm5, (%[out_value])"
                     :
                     : KILL_SELF(SIGUSR1), [in] "r"(&in), [out_value] "r"(&out_value)
                     : "rcx", "r11", "xmm5", "memory");
    CHECK_EQ(frame_low, in);
    CHECK_EQ(out_value, 0xabababababababab);
}
