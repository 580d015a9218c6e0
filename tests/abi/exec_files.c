// SPDX-License-Identifier: Apache-2.0
//
// execve(2), execveat(2): scripts, what is refused, and files without a path.
#include "exec.h"

#include <sys/wait.h>

// ---- scripts ----

CASE(exec_script_gets_its_path_and_arguments) {
    if (abi_step == 0) {
        char line[600];
        snprintf(line, sizeof line, "#! \t%s  one argument \t\nrest\n", SELF);
        executable("script", line);
        char *argv[] = {"lost", "kept", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./script", argv, envp);
    }
    CHECK_EQ(abi_step, 1);
    CHECK(strstr(argument(0), "exec"));
    CHECK(!strcmp(argument(1), "one argument"));
    CHECK(!strcmp(argument(2), "./script"));
    CHECK(!strcmp(argument(3), "kept"));
    CHECK(argument(4) == NULL);
    char name[16];
    prctl(PR_GET_NAME, name);
    CHECK(!strcmp(name, "script"));
    CHECK(!strcmp((char *)getauxval(AT_EXECFN), "./script"));
}

static void make_script(const char *path, const char *interpreter, const char *behind) {
    char line[1200];
    snprintf(line, sizeof line, "#!%s%s", interpreter, behind);
    executable(path, line);
}

CASE(exec_script_run_by_a_script) {
    if (abi_step == 0) {
        make_script("1", SELF, " a\n");
        make_script("2", "./1", " b\n");
        make_script("3", "./2", " c\n");
        char *argv[] = {"lost", "kept", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./3", argv, envp);
    }
    CHECK(!strcmp(argument(1), "a") && !strcmp(argument(2), "./1") && !strcmp(argument(3), "b"));
    CHECK(!strcmp(argument(4), "./2") && !strcmp(argument(5), "c") && !strcmp(argument(6), "./3"));
    CHECK(!strcmp(argument(7), "kept") && argument(8) == NULL);
}

CASE(exec_scripts_may_nest_five_times) {
    if (abi_step == 0) {
        make_script("1", SELF, "\n");
        make_script("2", "./1", "\n");
        make_script("3", "./2", "\n");
        make_script("4", "./3", "\n");
        make_script("5", "./4", "\n");
        make_script("6", "./5", "\n");
        make_script("loop", "./loop", "\n");
        FAILS(execve("./6", no_strings, no_strings), ELOOP);
        FAILS(execve("./loop", no_strings, no_strings), ELOOP);
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./5", argv, envp);
    }
    CHECK_EQ(abi_step, 1);
}

CASE(exec_script_lines_without_end) {
    if (abi_step == 0) {
        make_script("bare", SELF, "");
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./bare", argv, envp);
    }
    if (abi_step == 1) {
        CHECK(!strcmp(argument(1), "./bare"));
        make_script("blank", SELF, " ");
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./blank", argv, envp);
    }
    if (abi_step == 2) {
        CHECK(!strcmp(argument(1), "")); // to the letter
        CHECK(!strcmp(argument(2), "./blank"));
        char filler[400];
        memset(filler, 'x', sizeof filler);
        filler[0] = ' ';
        filler[399] = 0;
        make_script("long", SELF, filler);
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./long", argv, envp);
    }
    CHECK_EQ(abi_step, 3);
    CHECK_EQ(strlen(argument(1)), 255 - 2 - strlen(SELF) - 1);
}

CASE(exec_script_errors) {
    char longer[400];
    memset(longer, 'y', sizeof longer);
    longer[399] = 0;
    longer[0] = '/';
    make_script("long", longer, "\n");
    FAILS(execve("./long", no_strings, no_strings), ENOEXEC);
    executable("empty", "#!\n");
    FAILS(execve("./empty", no_strings, no_strings), ENOEXEC);
    executable("blank", "#! \t \n");
    FAILS(execve("./blank", no_strings, no_strings), ENOEXEC);
    executable("only", "#!");
    FAILS(execve("./only", no_strings, no_strings), EACCES); // no path means the working directory here
    make_script("missing", "/no/such/interpreter", "\n");
    FAILS(execve("./missing", no_strings, no_strings), ENOENT);
    make_script("folder", "/proc", "\n");
    FAILS(execve("./folder", no_strings, no_strings), EACCES);
    write_file("plain", "text");
    make_script("forbidden", "./plain", "\n");
    FAILS(execve("./forbidden", no_strings, no_strings), EACCES);
    make_script("through", "./plain/x", "\n");
    FAILS(execve("./through", no_strings, no_strings), ENOTDIR);
    executable("text", "text");
    make_script("textual", "./text", "\n");
    FAILS(execve("./textual", no_strings, no_strings), ENOEXEC);
}

// ---- errors before the point of no return ----

CASE(exec_errors_of_paths) {
    FAILS(execve("nothing", no_strings, no_strings), ENOENT);
    FAILS(execve("", no_strings, no_strings), ENOENT);
    FAILS(execve(".", no_strings, no_strings), EACCES);
    write_file("plain", "#!/bin/sh\n");
    FAILS(execve("plain", no_strings, no_strings), EACCES);
    FAILS(execve("plain/x", no_strings, no_strings), ENOTDIR);
    CHECK(symlink("loop", "loop") == 0);
    FAILS(execve("loop", no_strings, no_strings), ELOOP);
    CHECK(mkfifo("fifo", 0755) == 0);
    FAILS(execve("fifo", no_strings, no_strings), EACCES);
    FAILS(execve("/dev/null", no_strings, no_strings), EACCES);
    char longer[5000];
    memset(longer, 'a', sizeof longer);
    longer[4999] = 0;
    FAILS(execve(longer, no_strings, no_strings), ENAMETOOLONG);
    longer[300] = 0;
    FAILS(execve(longer, no_strings, no_strings), ENAMETOOLONG);
}

CASE(exec_errors_of_pointers) {
    char *bad[] = {"x", unmapped_page(), NULL};
    FAILS(execve((char *)8, no_strings, no_strings), EFAULT);
    FAILS(execve(SELF, (char **)8, no_strings), EFAULT);
    FAILS(execve(SELF, no_strings, (char **)8), EFAULT);
    FAILS(execve(SELF, bad, no_strings), EFAULT);
    FAILS(execve(SELF, no_strings, bad), EFAULT);
    char *edge = page_before_a_hole();
    char **array = (char **)(edge + PAGE - 8);
    *array = "unterminated";
    FAILS(execve(SELF, array, no_strings), EFAULT);
}

CASE(exec_errors_of_formats) {
    executable("empty", "");
    FAILS(execve("./empty", no_strings, no_strings), ENOEXEC);
    executable("text", "hello\n");
    FAILS(execve("./text", no_strings, no_strings), ENOEXEC);
    executable("short", "\x7f" "ELF");
    FAILS(execve("./short", no_strings, no_strings), ENOEXEC);
    static char head[4096];
    int fd = open(SELF, O_RDONLY);
    CHECK_EQ(read(fd, head, sizeof head), sizeof head);
    close(fd);
    Elf64_Ehdr *header = (Elf64_Ehdr *)head;
    void try_with(const char *name) {
        int out = open(name, O_WRONLY | O_CREAT, 0755);
        CHECK_EQ(write(out, head, sizeof head), sizeof head);
        close(out);
        char path[64];
        snprintf(path, sizeof path, "./%s", name);
        FAILS(execve(path, no_strings, no_strings), ENOEXEC);
    }
    header->e_machine = EM_AARCH64;
    try_with("machine");
    header->e_machine = EM_X86_64;
    header->e_type = ET_REL;
    try_with("object");
    header->e_type = ET_EXEC;
    header->e_phentsize = 20;
    try_with("phentsize");
    header->e_phentsize = sizeof(Elf64_Phdr);
    header->e_phnum = 0;
    try_with("phnum");
}

// A small program with an interpreter.
static void with_interpreter(const char *path, const char *interpreter) {
    struct {
        Elf64_Ehdr header;
        Elf64_Phdr segments[2];
        char code[16], text[256];
    } file = {0};
    memcpy(file.header.e_ident, ELFMAG, SELFMAG);
    file.header.e_ident[EI_CLASS] = ELFCLASS64;
    file.header.e_ident[EI_DATA] = ELFDATA2LSB;
    file.header.e_ident[EI_VERSION] = EV_CURRENT;
    file.header.e_type = ET_DYN;
    file.header.e_machine = EM_X86_64;
    file.header.e_version = EV_CURRENT;
    file.header.e_entry = offsetof(__typeof__(file), code);
    file.header.e_phoff = sizeof file.header;
    file.header.e_ehsize = sizeof file.header;
    file.header.e_phentsize = sizeof(Elf64_Phdr);
    file.header.e_phnum = 2;
    strcpy(file.text, interpreter);
    file.segments[0] = (Elf64_Phdr){.p_type = PT_INTERP, .p_offset = offsetof(__typeof__(file), text),
                                    .p_filesz = strlen(interpreter) + 1, .p_memsz = strlen(interpreter) + 1};
    file.segments[1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = sizeof file,
                                    .p_memsz = sizeof file, .p_align = 4096};
    int fd = open(path, O_WRONLY | O_CREAT, 0755);
    CHECK_EQ(write(fd, &file, sizeof file), sizeof file);
    close(fd);
}

CASE(exec_errors_of_dynamic_loaders) {
    with_interpreter("missing", "/no/such/loader.so");
    FAILS(execve("./missing", no_strings, no_strings), ENOENT);
    with_interpreter("folder", "/proc");
    FAILS(execve("./folder", no_strings, no_strings), EACCES);
    write_file("plain", "text");
    with_interpreter("forbidden", "./plain");
    FAILS(execve("./forbidden", no_strings, no_strings), EACCES);
    char text[200];
    memset(text, 'x', sizeof text);
    text[199] = 0;
    executable("text", text);
    with_interpreter("bad", "./text");
    FAILS(execve("./bad", no_strings, no_strings), ELIBBAD);
    executable("sh", "#!/bin/sh\n# a script is no loader, whatever its length is; it must be longer than a header\n");
    with_interpreter("script", "./sh");
    FAILS(execve("./script", no_strings, no_strings), ELIBBAD);
}

CASE(exec_of_a_file_open_for_writing) {
    executable("script", "#!/no/such\n");
    int fd = open("script", O_WRONLY);
    FAILS(execve("./script", no_strings, no_strings), ETXTBSY);
    close(fd);
    FAILS(execve("./script", no_strings, no_strings), ENOENT);
    fd = open("script", O_RDWR | O_APPEND);
    FAILS(execve("./script", no_strings, no_strings), ETXTBSY);
    close(fd);
}

CASE(running_program_cannot_be_written) {
    if (abi_step == 0) {
        copy_self("program");
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        execve("./program", argv, envp);
    }
    CHECK_EQ(abi_step, 1);
    FAILS(open("program", O_WRONLY), ETXTBSY);
    FAILS(open("program", O_RDWR), ETXTBSY);
    FAILS(open("program", O_RDONLY | O_TRUNC), ETXTBSY);
    FAILS(truncate("program", 0), ETXTBSY);
    CHECK(access("program", R_OK) == 0);
    CHECK(rename("program", "moved") == 0);
    FAILS(open("moved", O_WRONLY), ETXTBSY);
}

CASE(exec_argument_limits) {
    static char longest[131073];
    memset(longest, 'x', sizeof longest);
    char *argv[] = {"x", longest, NULL};
    longest[131072] = 0;
    FAILS(execve(SELF, argv, no_strings), E2BIG);
    FAILS(execve(SELF, no_strings, argv), E2BIG);
    // A quarter of the stack's limit for all together: 2 MiB of 8.
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_STACK, &limit) == 0);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 8 << 20;
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    longest[131071] = 0;
    char *many[32] = {0};
    for (int i = 0; i < 17; i++)
        many[i] = longest;
    FAILS(execve(SELF, many, no_strings), E2BIG);
    FAILS(execve(SELF, no_strings, many), E2BIG);
    many[9] = NULL;
    FAILS(execve(SELF, many, many), E2BIG);
    // However small the limit is, 128 KiB are allowed.
    limit.rlim_cur = 64 << 10;
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
    many[1] = NULL;
    FAILS(execve("nothing", many, no_strings), ENOENT);
    many[1] = longest, many[2] = NULL;
    FAILS(execve(SELF, many, no_strings), E2BIG);
    limit.rlim_cur = before;
    CHECK(setrlimit(RLIMIT_STACK, &limit) == 0);
}

CASE(exec_with_large_arguments) {
    static char text[100001];
    if (abi_step == 0) {
        memset(text, 'a', sizeof text - 1);
        char *argv[] = {"x", text, text, text, text, text, text, text, text, text, text, NULL};
        char *envp[] = {abi_resume(), text, text, text, NULL};
        execve(SELF, argv, envp);
    }
    CHECK_EQ(abi_step, 1);
    for (int i = 1; i < 4; i++)
        CHECK_EQ(strlen(environ[i]), 100000);
    char **argv = environ - 1;
    for (int i = 1; i <= 10; i++)
        CHECK_EQ(strlen(argv[-i]), 100000);
    // The stack below is as deep as ever.
    volatile char deep[4 << 20];
    deep[0] = 1;
    CHECK_EQ(deep[0], 1);
}

CASE(exec_with_many_arguments) {
    static char *many[20002];
    if (abi_step == 0) {
        for (int i = 0; i < 20000; i++)
            many[i] = i % 2 ? "" : "y";
        many[20000] = abi_resume();
        execve(SELF, many, no_strings);
    }
    CHECK_EQ(abi_step, 1);
    char **argv = environ - 1;
    CHECK(!strncmp(argv[-1], ABI_RESUME, strlen(ABI_RESUME)));
    CHECK(!strcmp(argv[-2], "") && !strcmp(argv[-3], "y") && !strcmp(argv[-20001], "y"));
}

CASE(exec_failure_leaves_everything) {
    // Whatever goes wrong before the point of no return, the program goes on as if nothing had been.
    static atomic_int counter;
    if (abi_step > 0)
        return;
    CHECK(signal(SIGUSR1, handler) != SIG_ERR);
    int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0755);
    prctl(PR_SET_NAME, "named");
    pthread_t thread = spawn(spinner, &counter);
    executable("bad", "#!/no/such/interpreter\n");
    char *argv[] = {"x", NULL};
    for (int i = 0; i < 20; i++)
        FAILS(execve("./bad", argv, environ), ENOENT);
    FAILS(execve("./f", argv, environ), ETXTBSY);
    CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    struct sigaction now;
    CHECK(sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == handler);
    char name[16];
    prctl(PR_GET_NAME, name);
    CHECK(!strcmp(name, "named"));
    int before = atomic_load(&counter);
    while (atomic_load(&counter) == before)
        sleep_ms(1);
    CHECK(pthread_kill(thread, 0) == 0);
    REEXEC(); // the spinning thread cannot be ended otherwise
}

// ---- execveat ----

static int exec_at(int fd, const char *path, char *const argv[], char *const envp[], int flags) {
    return (int)syscall(SYS_execveat, fd, path, argv, envp, flags);
}

CASE(execveat_of_a_script_by_descriptor) {
    if (abi_step == 0) {
        make_script("script", SELF, "\n");
        int closing = open("script", O_RDONLY | O_CLOEXEC), staying = open("script", O_RDONLY);
        CHECK_EQ(staying, 4);
        char *argv[] = {"x", "y", NULL}, *envp[] = {abi_resume(), NULL};
        // The interpreter could not open the script any more.
        FAILS(exec_at(closing, "", argv, envp, AT_EMPTY_PATH), ENOENT);
        exec_at(staying, "", argv, envp, AT_EMPTY_PATH);
    }
    CHECK_EQ(abi_step, 1);
    CHECK(!strcmp(argument(1), "/dev/fd/4") && !strcmp(argument(2), "y"));
}

CASE(execveat_relative_to_a_directory) {
    if (abi_step == 0) {
        CHECK(mkdir("d", 0755) == 0);
        copy_self("d/program");
        int fd = open("d", O_RDONLY | O_DIRECTORY);
        CHECK_EQ(fd, 3);
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        exec_at(fd, "program", argv, envp, 0);
    }
    CHECK_EQ(abi_step, 1);
    CHECK(!strcmp((char *)getauxval(AT_EXECFN), "/dev/fd/3/program"));
}

CASE(execveat_of_a_descriptor) {
    if (abi_step == 0) {
        copy_self("program");
        int fd = open("program", O_RDONLY | O_CLOEXEC);
        CHECK(unlink("program") == 0);
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        exec_at(fd, "", argv, envp, AT_EMPTY_PATH);
    }
    CHECK_EQ(abi_step, 1);
    CHECK(!strcmp((char *)getauxval(AT_EXECFN), "/dev/fd/3"));
    FAILS(fcntl(3, F_GETFD), EBADF);
}

CASE(execveat_of_a_path_descriptor) {
    if (abi_step == 0) {
        int fd = open(SELF, O_PATH | O_CLOEXEC);
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        exec_at(fd, "", argv, envp, AT_EMPTY_PATH);
    }
    CHECK_EQ(abi_step, 1);
}

CASE(execveat_of_a_memory_file) {
    if (abi_step == 0) {
        static char block[1 << 16];
        int in = open(SELF, O_RDONLY | O_CLOEXEC), out = memfd_create("program", MFD_CLOEXEC);
        for (ssize_t got; (got = read(in, block, sizeof block)) > 0;)
            CHECK_EQ(write(out, block, (size_t)got), got);
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL}, path[64];
        FAILS(exec_at(out, "", argv, envp, AT_EMPTY_PATH), ETXTBSY);
        snprintf(path, sizeof path, "/proc/self/fd/%d", out);
        int again = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(again >= 0);
        close(out);
        exec_at(again, "", argv, envp, AT_EMPTY_PATH);
    }
    CHECK_EQ(abi_step, 1);
    char path[512];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    path[size] = 0;
    CHECK(!strcmp(path, "/memfd:program (deleted)"));
}

CASE(execveat_errors) {
    int folder = open(".", O_RDONLY | O_DIRECTORY);
    FAILS(exec_at(folder, "", no_strings, no_strings, 0), ENOENT);
    FAILS(exec_at(folder, "", no_strings, no_strings, AT_EMPTY_PATH), EACCES);
    FAILS(exec_at(-1, "x", no_strings, no_strings, 0), EBADF);
    FAILS(exec_at(99, "", no_strings, no_strings, AT_EMPTY_PATH), EBADF);
    FAILS(exec_at(folder, "nothing", no_strings, no_strings, 0), ENOENT);
    FAILS(exec_at(folder, SELF, no_strings, no_strings, 0x80), EINVAL);
    write_file("plain", "x");
    int plain = open("plain", O_RDONLY);
    FAILS(exec_at(plain, "x", no_strings, no_strings, 0), ENOTDIR);
    FAILS(exec_at(plain, "", no_strings, no_strings, AT_EMPTY_PATH), EACCES);
    CHECK(symlink(SELF, "link") == 0);
    FAILS(exec_at(folder, "link", no_strings, no_strings, AT_SYMLINK_NOFOLLOW), ELOOP);
    int fds[2];
    CHECK(pipe(fds) == 0);
    FAILS(exec_at(fds[0], "", no_strings, no_strings, AT_EMPTY_PATH), EACCES);
}

CASE(fexecve_of_the_library) {
    if (abi_step == 0) {
        int fd = open(SELF, O_RDONLY | O_CLOEXEC);
        char *argv[] = {"x", NULL}, *envp[] = {abi_resume(), NULL};
        fexecve(fd, argv, envp);
    }
    CHECK_EQ(abi_step, 1);
}

CASE(execvp_searches_the_path) {
    if (abi_step == 0) {
        CHECK(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0);
        copy_self("b/tool");
        write_file("a/tool", "not executable");
        setenv("PATH", "/nothing:a:b", 1);
        char resume[1200];
        snprintf(resume, sizeof resume, "%s", abi_resume() + strlen(ABI_RESUME));
        setenv("ABI_RESUME", resume, 1);
        execlp("tool", "tool", "argument", NULL);
    }
    CHECK_EQ(abi_step, 1);
    CHECK(!strcmp(argument(1), "argument"));
    CHECK(!strcmp((char *)getauxval(AT_EXECFN), "b/tool"));
}

// ---- processes that cannot be ----

CASE(wait_without_children) {
    int status;
    FAILS(waitpid(-1, &status, 0), ECHILD);
    FAILS(waitpid(-1, &status, WNOHANG), ECHILD);
    siginfo_t info;
    FAILS(waitid(P_ALL, 0, &info, WEXITED), ECHILD);
}
