/*
 * check_hosts.c - `unisono check --hosts a,b`: is every host ready for a run? All hosts are asked
 * at the same time, each through its own launcher, with the command line that a run would use and
 * the same agent (unisono-host), which reports what it finds (train/remote/host_check.c). So this
 * checks what a run needs: the launcher reaches the host, the agent exists there in the same
 * release, it can connect back to this machine, and there is room. Thread: main.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <unisono/run.h>
#include <unisono/version.h>

#include "train/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/check.h"
#include "cli/format.h"
#include "cli/table.h"
#include "group/launch.h"
#include "group/launchers.h"
#include "group/network.h"

#define ANSWER_SECONDS 20
#define ANSWER_BYTES (64u << 10)
#define END_TRIES 300 /* of 10 ms */
#define LEAST_ROOM (64.0 * 1024 * 1024) /* Open MPI takes 8 MB per job */
#define CLOCK_SECONDS 2.0

typedef enum verdict { READY, WARNED, UNUSABLE } verdict;

typedef struct asked {
    const char *name;
    pid_t pid;
    int from;
    char *text; /* output of its launcher */
    size_t size;
    bool too_long;
    double begun, ended;
    uni_value *answer; /* NULL: no answer */
    verdict verdict;
    char note[400], clock[32];
} asked;

typedef struct checking {
    uni__host_slots *hosts;
    int num_hosts, socket_count, port;
    int sockets[UNI__NETWORK_MAX];
    char agent[4200], token[4200], join[6000];
    const uni__launcher *launcher;
    asked *all;
} checking;

/* ---- the address that hosts connect to ---- */

static int listen_on(const char *address, int *port)
{
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM },
                    *found = NULL;
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    char text[16];
    snprintf(text, sizeof text, "%d", *port);
    if (getaddrinfo(address, text, &hints, &found) != 0)
        return -1;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* There is no accept: the kernel completes connections, and a connection is all that has to be
     * proved. */
    bool fine = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                listen(fd, 1024) == 0 && getsockname(fd, (struct sockaddr *)&bound, &size) == 0 &&
                getnameinfo((struct sockaddr *)&bound, size, NULL, 0, text, sizeof text,
                            NI_NUMERICSERV) == 0;
    freeaddrinfo(found);
    if (!fine) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    *port = atoi(text);
    return fd;
}

static int open_doors(checking *all, const char *interface, uni_error *err)
{
    uni__address addresses[UNI__NETWORK_MAX];
    bool local = true;
    for (int i = 0; i < all->num_hosts; i++)
        local &= uni__network_is_this_host(all->hosts[i].name);
    int count = uni__network_choose(interface, local, addresses, err);
    UNI_TRY(count);
    int used = 0;
    char list[1200] = "";
    for (int i = 0; i < count; i++) {
        int fd = listen_on(addresses[i].text, &all->port);
        if (fd < 0)
            continue;
        all->sockets[all->socket_count++] = fd;
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", used ? "," : "",
                         addresses[i].text);
    }
    if (all->socket_count == 0)
        return uni_error_set_errno(err, errno, "cannot listen on any address of this machine");
    snprintf(all->join, sizeof all->join, "check:%d:%s:%s", all->port, all->token, list);
    return 0;
}

/* ---- signals ---- */

static volatile sig_atomic_t stopped_by;

static void stop(int number)
{
    stopped_by = number;
}

/* The launchers are ended and the token is removed before the signal has its usual effect. One that
 * is ignored stays so. */
static void watch_signals(bool on)
{
    static const int numbers[] = { SIGINT, SIGTERM };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction before, action = { .sa_handler = on ? stop : SIG_DFL };
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            (void)sigaction(numbers[i], &action, NULL);
    }
    if (!on && stopped_by)
        (void)raise(stopped_by);
}

/* ---- asking ---- */

static int start(checking *all, asked *one, uni_error *err)
{
    uni__host_slots alone = { .slots = 1 };
    snprintf(alone.name, sizeof alone.name, "%s", one->name);
    uni__launcher_plan plan = {
        .hosts = &alone, .num_hosts = 1, .num_workers = 1, .agent = all->agent
    };
    uni_value *words = NULL;
    int ends[2] = { -1, -1 };
    UNI_TRY(all->launcher->words(&plan, &words, err));
    size_t count = uni_list_size(words);
    char **argv = calloc(count + 1, sizeof *argv);
    for (size_t i = 0; argv && i < count; i++)
        argv[i] = (char *)uni_value_as_string(uni_list_get(words, i), "");
    if (!argv || pipe2(ends, O_CLOEXEC) < 0) {
        free(argv);
        uni_value_free(words);
        return uni_error_set_errno(err, errno, "cannot query host %s", one->name);
    }
    assert(argv[0] != NULL); /* a launcher gives at least its own name */
    one->begun = uni__wall_seconds();
    pid_t parent = getpid();
    one->pid = fork();
    if (one->pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* launchers end what they have started */
        int nothing = open("/dev/null", O_RDONLY);
        if (getppid() == parent && nothing >= 0 && dup2(nothing, 0) >= 0 && dup2(ends[1], 1) >= 0 &&
            dup2(ends[1], 2) >= 0)
            execv(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    one->from = ends[0];
    free(argv);
    uni_value_free(words);
    return one->pid > 0 ? 0 : uni_error_set_errno(err, errno, "cannot query host %s", one->name);
}

static void take_text(asked *one)
{
    char buffer[4096];
    ssize_t got = read(one->from, buffer, sizeof buffer);
    one->too_long = got > 0 && one->size + (size_t)got >= ANSWER_BYTES;
    char *grown =
        got > 0 && !one->too_long ? realloc(one->text, one->size + (size_t)got + 1) : NULL;
    if (!grown) {
        close(one->from);
        one->from = -1;
        return;
    }
    one->text = grown;
    memcpy(one->text + one->size, buffer, (size_t)got);
    one->size += (size_t)got;
    one->text[one->size] = '\0';
    if (!one->ended && strstr(one->text, "unisono-check {"))
        one->ended = uni__wall_seconds();
}

/* One that has said all gets a moment to clean up. One that never ends, or says too much, does
 * not. */
static void end_launcher(asked *one)
{
    bool said_all = one->from < 0 && !one->too_long;
    for (int tries = 0; said_all && tries < END_TRIES; tries++) {
        if (waitpid(one->pid, NULL, WNOHANG) != 0)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    }
    kill(-one->pid, SIGKILL);
    waitpid(one->pid, NULL, 0);
}

/* Waits until all have answered or their launchers have ended. */
static void gather(checking *all)
{
    uint64_t deadline = uni__monotonic_ns() + ANSWER_SECONDS * 1000000000ull;
    struct pollfd *waiting = calloc((size_t)all->num_hosts, sizeof *waiting);
    for (int open = 1; open > 0 && waiting && !stopped_by;) {
        uint64_t now = uni__monotonic_ns();
        open = 0;
        for (int i = 0; i < all->num_hosts; i++) {
            waiting[i] = (struct pollfd){ .fd = all->all[i].from, .events = POLLIN };
            open += all->all[i].from >= 0;
        }
        if (open == 0 || now >= deadline ||
            poll(waiting, (nfds_t)all->num_hosts, (int)((deadline - now) / 1000000u) + 1) <= 0)
            break;
        for (int i = 0; i < all->num_hosts; i++)
            if (all->all[i].from >= 0 && waiting[i].revents)
                take_text(&all->all[i]);
    }
    free(waiting);
    for (int i = 0; i < all->num_hosts; i++) {
        if (all->all[i].pid <= 0)
            continue;
        end_launcher(&all->all[i]);
        if (all->launcher->offers_mpi && !all->launcher->has_allocation)
            uni__launcher_remove_session_of(all->all[i].pid);
    }
}

/* ---- judging ---- */

static void judge(asked *one, verdict level, const char *format, ...) UNI_PRINTF(3, 4);
static void judge(asked *one, verdict level, const char *format, ...)
{
    size_t used = strlen(one->note);
    va_list arguments;
    one->verdict = level > one->verdict ? level : one->verdict;
    used += (size_t)snprintf(one->note + used, sizeof one->note - used, "%s", used ? "; " : "");
    va_start(arguments, format);
    vsnprintf(one->note + used, sizeof one->note - used, format, arguments);
    va_end(arguments);
}

/* Reports the most informative line of a launcher's output. */
static void complain(asked *one)
{
    static const char *const telling[] = {
        "unisono-ssh:", "ssh:",         "Permission denied",   "Host key",     "not access",
        "not found",    "No such file", "error while loading", "Invalid node", "error:"
    };
    char *rest = NULL, *first = NULL;
    for (char *line = one->text ? strtok_r(one->text, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        while (*line == ' ' || *line == '-')
            line++;
        line[strcspn(line, "\r")] = '\0';
        for (size_t i = 0; i < sizeof telling / sizeof telling[0]; i++)
            if (strstr(line, telling[i])) {
                judge(one, UNUSABLE, "cannot start a process there: %.200s", line);
                return;
            }
        if (!first && *line)
            first = line;
    }
    if (first)
        judge(one, UNUSABLE, "cannot start a process there: %.200s", first);
    else
        judge(one, UNUSABLE,
              "no answer within %d s: the host is down, or processes cannot be started on it",
              ANSWER_SECONDS);
}

static void judge_clock(asked *one)
{
    double there = uni_dict_get_float(one->answer, "time", 0);
    double early = there - one->ended, late = there - one->begun;
    double off = early > 0 ? early : late < 0 ? late : 0;
    if (off == 0)
        snprintf(one->clock, sizeof one->clock, "ok");
    else
        snprintf(one->clock, sizeof one->clock, "%+.1f s", off);
    if (fabs(off) > CLOCK_SECONDS)
        judge(one, WARNED, "its clock is %.1f s %s: times in logs will not match", fabs(off),
              off > 0 ? "ahead" : "behind");
}

static void judge_host(asked *one)
{
    char *line = one->text ? strstr(one->text, "unisono-check {") : NULL, size[CLI_SHORT];
    if (line) {
        line += strlen("unisono-check ");
        line[strcspn(line, "\n")] = '\0';
    }
    if (!line || uni_json_read(&one->answer, line, strlen(line), NULL) < 0) {
        complain(one);
        return;
    }
    const char *version = uni_dict_get_string(one->answer, "version", "?");
    double room = uni_dict_get_float(one->answer, "temporary_free", -1);
    if (strcmp(version, UNI_VERSION) != 0)
        judge(one, UNUSABLE, "it has unisono %.40s, this machine has %s: install the same release",
              version, UNI_VERSION);
    if (!uni_value_as_string(uni_dict_get(one->answer, "reaches"), NULL))
        judge(one, UNUSABLE,
              "it cannot connect to this machine: check the firewall, or choose another network "
              "(--interface)");
    if (room >= 0 && room < LEAST_ROOM)
        judge(one, UNUSABLE, "%.100s has only %s free",
              uni_dict_get_string(one->answer, "temporary", "/tmp"), cli_bytes(room, size));
    if (uni_list_size(uni_dict_get(one->answer, "plugins")) == 0)
        judge(one, WARNED,
              "no plug-in for UCX or MPI: programs that use the native engine cannot train there");
    judge_clock(one);
}

/* ---- reporting ---- */

static void list_plugins(const asked *one, char *out, size_t size)
{
    const uni_value *plugins = uni_dict_get(one->answer, "plugins");
    size_t used = 0;
    snprintf(out, size, "-");
    for (size_t i = 0; i < uni_list_size(plugins) && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "," : "",
                                 uni_value_as_string(uni_list_get(plugins, i), "?"));
}

static void print_table(cli_context *context, const checking *all)
{
    static const cli_column columns[] = {
        { .title = "host" },
        { .title = "state" },
        { .title = "version" },
        { .title = "CPUs", .right = true },
        { .title = "plug-ins", .drop = 2 },
        { .title = "free", .right = true },
        { .title = "storage", .drop = 3 },
        { .title = "clock", .right = true, .drop = 1 },
    };
    static const char *const states[] = { "ready", "warning", "unusable" };
    static const int styles[] = { CLI_GOOD, CLI_WARN, CLI_BAD };
    cli_table *table = cli_table_new(columns, sizeof columns / sizeof columns[0]);
    char text[CLI_SHORT], plugins[100];
    for (int i = 0; i < all->num_hosts && table; i++) {
        const asked *one = &all->all[i];
        const uni_value *answer = one->answer;
        double room = uni_dict_get_float(answer, "temporary_free", -1);
        list_plugins(one, plugins, sizeof plugins);
        cli_table_cell(table, CLI_BOLD, "%s", one->name);
        cli_table_cell(table, styles[one->verdict], "%s", states[one->verdict]);
        cli_table_cell(table, CLI_PLAIN, "%s", uni_dict_get_string(answer, "version", "-"));
        cli_table_cell(table, CLI_PLAIN, "%s",
                       answer ? cli_number(uni_dict_get_float(answer, "cpus", 0), text) : "-");
        cli_table_cell(table, CLI_PLAIN, "%s", plugins);
        cli_table_cell(table, CLI_PLAIN, "%s", room >= 0 ? cli_bytes(room, text) : "-");
        cli_table_cell(table, CLI_PLAIN, "%s",
                       !answer                                              ? "-"
                       : uni_dict_get_bool(answer, "shares_storage", false) ? "shared"
                                                                            : "its own");
        cli_table_cell(table, CLI_PLAIN, "%s", one->clock[0] ? one->clock : "-");
    }
    if (table)
        cli_table_print(table, &context->out, 0);
    cli_table_free(table);
    const char *before = "\n";
    for (int i = 0; i < all->num_hosts; i++) {
        const asked *one = &all->all[i];
        if (!one->note[0])
            continue;
        fprintf(context->out.out, "%s%s: %s", before, one->name,
                cli_begin(&context->out, styles[one->verdict]));
        cli_print_clean(context->out.out, one->note);
        fprintf(context->out.out, "%s\n", cli_end(&context->out, styles[one->verdict]));
        before = "";
    }
}

static int print_json(cli_context *context, const checking *all)
{
    static const char *const states[] = { "ready", "warning", "unusable" };
    uni_value *list = uni_value_list();
    int status = 0;
    for (int i = 0; i < all->num_hosts; i++) {
        const asked *one = &all->all[i];
        uni_value *entry = one->answer ? uni_value_copy(one->answer) : uni_value_dict();
        status |= uni_dict_take(entry, "host", uni_value_string(one->name));
        status |= uni_dict_take(entry, "state", uni_value_string(states[one->verdict]));
        status |= uni_dict_take(entry, "note", uni_value_string(one->note));
        status |= uni_list_take(list, entry);
    }
    if (status == 0)
        return cli_print_json(context, list);
    uni_value_free(list);
    return UNI_EXIT_INTERNAL;
}

/* ---- the whole check ---- */

static int prepare(checking *all, const cli_hosts_request *request, uni_error *err)
{
    char *storage = NULL;
    const char *nodes = getenv("SLURM_JOB_NODELIST");
    all->launcher = uni__launcher_find(request->launcher);
    if (!all->launcher)
        return uni_error_set(
            err, UNI_EINVAL,
            "--launcher \"%s\" cannot start workers on other hosts: use ssh, mpi or slurm",
            request->launcher);
    if (request->hosts)
        UNI_TRY(uni__hosts_parse(request->hosts, &all->hosts, &all->num_hosts, err));
    else if (all->launcher->has_allocation && nodes)
        UNI_TRY(uni__hosts_parse_slurm(nodes, NULL, &all->hosts, &all->num_hosts, err));
    else
        return uni_error_set(
            err, UNI_EINVAL,
            "no hosts given: use --hosts a,b, or --launcher slurm inside an allocation");
    UNI_TRY(
        uni__find_helper("unisono-host", "UNISONO_HOST_AGENT", all->agent, sizeof all->agent, err));
    UNI_TRY(uni__run_storage(&storage, request->storage, err));
    int status = uni__make_dirs(storage, 0700, err);
    snprintf(all->token, sizeof all->token, "%s/.check_%d", storage, (int)getpid());
    free(storage);
    UNI_TRY(status);
    UNI_TRY(uni__write_file(all->token, "", 0, false, err));
    UNI_TRY(open_doors(all, request->interface, err));
    all->all = calloc((size_t)all->num_hosts, sizeof *all->all);
    if (!all->all)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d hosts", all->num_hosts);
    setenv(UNI__JOIN_VARIABLE, all->join, 1);
    /* mpirun warns about a variable that it is told to export and that is not set. */
    setenv(UNI__SECRET_FILE_VARIABLE, "", 0);
    return 0;
}

static int ask_all(checking *all, uni_error *err)
{
    for (int i = 0; i < all->num_hosts; i++)
        all->all[i] = (asked){ .name = all->hosts[i].name, .from = -1 };
    for (int i = 0; i < all->num_hosts; i++)
        UNI_TRY(start(all, &all->all[i], err));
    return 0;
}

int cli_check_hosts(cli_context *context, const cli_hosts_request *request, bool json,
                    uni_error *err)
{
    checking all = { 0 };
    watch_signals(true);
    int code = UNI_EXIT_OK, status = prepare(&all, request, err);
    if (status == 0)
        status = ask_all(&all, err);
    if (all.all)
        gather(&all);
    if (status == 0 && !stopped_by) {
        assert(all.all != NULL);
        for (int i = 0; i < all.num_hosts; i++)
            judge_host(&all.all[i]);
        code = json ? print_json(context, &all) : (print_table(context, &all), UNI_EXIT_OK);
    }
    for (int i = 0; i < all.num_hosts && all.all; i++) {
        if (all.all[i].verdict == UNUSABLE && code == UNI_EXIT_OK)
            code = UNI_EXIT_FAILURE;
        if (all.all[i].from >= 0)
            close(all.all[i].from);
        uni_value_free(all.all[i].answer);
        free(all.all[i].text);
    }
    for (int i = 0; i < all.socket_count; i++)
        close(all.sockets[i]);
    if (all.token[0])
        unlink(all.token);
    free(all.all);
    free(all.hosts);
    watch_signals(false);
    return status < 0 ? status : code;
}
