/*
 * agent.c - the parent of the workers (the design is in agent.h): reads frames from the controller,
 * starts workers, reports how they end, and kills what is left when the controller goes away. It
 * uses no event loop and no thread, so that fork is safe.
 *
 * Workers are forked and exec'd. In a template (hooks are given) those that run functions are
 * forked only: the child comes out of uni__agent_keep with its own descriptors, limits, directory
 * and environment, and everything that the template had loaded.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unisono/value.h>

#include "group/agent.h"

#include "base/shared.h"
#include "group/agent_child.h"
#include "group/agent_tree.h"
#include "group/oom.h"
#include "group/wire.h"

#define SEND_TIMEOUT_MS 5000
#define KILL_TIMEOUT_MS 2000
#define LOOK_AROUND_MS 1000

typedef struct worker {
    int rank;
    pid_t pid; /* 0: gone */
    char *log;
} worker;

typedef struct agent {
    uni__wire wire;
    int signals;
    worker *workers;
    size_t num_workers;
    uni__oom_watch oom;
    bool orphaned; /* the controller is gone */
    const uni__fork_hooks *hooks; /* this is a template: workers are forked only; or NULL */
    bool is_worker; /* in such a worker: back to the caller of uni__agent_keep */
} agent;

static void send_to_controller(agent *self, int type, uni_value *message)
{
    if (!message ||
        uni__wire_send_value(&self->wire, type, message, NULL, 0, SEND_TIMEOUT_MS, NULL) < 0)
        self->orphaned = true;
    uni_value_free(message);
}

/* {"rank": rank, "pid": pid}; further keys are added by the caller. */
static uni_value *about(int rank, pid_t pid)
{
    uni_value *message = uni_value_dict();
    if (message && (uni_dict_take(message, "rank", uni_value_int(rank)) < 0 ||
                    uni_dict_take(message, "pid", uni_value_int(pid)) < 0)) {
        uni_value_free(message);
        return NULL;
    }
    return message;
}

static uni_value *with_int(uni_value *message, const char *key, int64_t number)
{
    if (message && uni_dict_take(message, key, uni_value_int(number)) < 0) {
        uni_value_free(message);
        return NULL;
    }
    return message;
}

static worker *worker_of_pid(agent *self, pid_t pid)
{
    for (size_t i = 0; i < self->num_workers; i++)
        if (self->workers[i].pid == pid)
            return &self->workers[i];
    return NULL;
}

static void report_exit(agent *self, worker *gone, int status, uni__oom oom)
{
    pid_t pid = gone->pid;
    uni_value *message = about(gone->rank, pid);
    message = with_int(message, "exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    message = with_int(message, "signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    message = with_int(message, "core", WIFSIGNALED(status) && WCOREDUMP(status));
    message = with_int(message, "oom", oom);
    gone->pid = 0;
    send_to_controller(self, UNI__AGENT_EXITED, message);
    /* What it left behind in its process group goes with it. */
    kill(-pid, SIGKILL);
}

static void reap(agent *self)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (pid <= 0)
            return;
        worker *about_whom = worker_of_pid(self, pid);
        if (!about_whom)
            continue; /* an orphan of some worker */
        if (WIFSTOPPED(status) || WIFCONTINUED(status))
            send_to_controller(
                self, UNI__AGENT_STOPPED,
                with_int(about(about_whom->rank, pid), "stopped", WIFSTOPPED(status)));
        else
            report_exit(self, about_whom, status,
                        WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                            ? uni__oom_of(&self->oom, pid)
                            : UNI__OOM_NO);
    }
}

static void reaped_by_kill(void *context, pid_t pid, int status)
{
    agent *self = context;
    worker *gone = worker_of_pid(self, pid);
    if (gone)
        report_exit(self, gone, status, UNI__OOM_NO);
}

static void kill_all(agent *self)
{
    for (size_t i = 0; i < self->num_workers; i++)
        if (self->workers[i].pid > 0)
            kill(-self->workers[i].pid, SIGKILL);
    int left = uni__tree_kill(KILL_TIMEOUT_MS, reaped_by_kill, self);
    if (!self->orphaned)
        send_to_controller(self, UNI__AGENT_ALL_DEAD, with_int(about(-1, 0), "left", left));
}

/* ---- spawning ---- */

/* A NULL-terminated vector that points into the list's strings; `extra` more strings may be
 * appended. */
static char **strings_of(const uni_value *list, size_t extra)
{
    size_t count = uni_list_size(list);
    char **strings = calloc(count + extra + 1, sizeof *strings);
    for (size_t i = 0; strings && i < count; i++)
        strings[i] = (char *)uni_value_as_string(uni_list_get(list, i), "");
    return strings;
}

static bool add_worker(agent *self, int rank, pid_t pid, const char *log)
{
    worker fresh = { .rank = rank, .pid = pid, .log = strdup(log) };
    for (size_t i = 0; i < self->num_workers; i++)
        if (self->workers[i].pid == 0) {
            free(self->workers[i].log);
            self->workers[i] = fresh;
            return true;
        }
    worker *grown = realloc(self->workers, (self->num_workers + 1) * sizeof *grown);
    if (!grown) {
        free(fresh.log);
        return false;
    }
    self->workers = grown;
    self->workers[self->num_workers++] = fresh;
    return true;
}

static void spawn(agent *self, const uni_value *order, uni__wire_frame *frame)
{
    int rank = (int)uni_dict_get_int(order, "rank", -1), step = UNI__CHILD_EXEC, error = ENOMEM;
    char session[96], report[48];
    uni__child plan = {
        .exe = uni_dict_get_string(order, "exe", ""),
        .cwd = uni_dict_get_string(order, "cwd", ""),
        .log = uni_dict_get_string(order, "log", "/dev/null"),
        .address_space = (uint64_t)uni_dict_get_int(order, "address_space", 0),
        .argv = strings_of(uni_dict_get(order, "argv"), 0),
        .env = strings_of(uni_dict_get(order, "env"), 2),
        .num_fds = frame->num_fds,
        .agent = getpid(),
        .wire = &self->wire,
        .hooks = strcmp(uni_dict_get_string(order, "mode", "p"), "f") == 0 ? self->hooks : NULL,
    };
    memcpy(plan.fds, frame->fds, sizeof plan.fds);
    pid_t pid = -1;
    if (plan.argv && plan.env) {
        size_t count = uni_list_size(uni_dict_get(order, "env"));
        snprintf(session, sizeof session, UNI__SESSION_VARIABLE "=1:%s:%d:%d:%d:%d",
                 uni_dict_get_string(order, "mode", "p"), getpid(), UNI__WORKER_FIRST_FD,
                 UNI__WORKER_FIRST_FD + 1, UNI__WORKER_FIRST_FD + 2);
        snprintf(report, sizeof report, UNI__REPORT_VARIABLE "=%d", UNI__WORKER_REPORT_FD);
        if (frame->num_fds >= 3) /* a launcher has no session */
            plan.env[count] = session;
        if (frame->num_fds > 3)
            plan.env[count + 1] = report;
        pid = uni__child_start(&plan, &step, &error);
    }
    free(plan.argv);
    free(plan.env);
    if (pid == 0) {
        frame->num_fds = 0; /* the child closed them, and has put others at their numbers */
        self->is_worker = true;
        return;
    }
    if (pid > 0 && add_worker(self, rank, pid, plan.log)) {
        send_to_controller(self, UNI__AGENT_SPAWNED, about(rank, pid));
        return;
    }
    if (pid > 0)
        kill(-pid, SIGKILL);
    uni_value *message = with_int(about(rank, 0), "errno", error);
    if (message && uni_dict_take(message, "what", uni_value_string(uni__child_step(step))) < 0) {
        uni_value_free(message);
        message = NULL;
    }
    send_to_controller(self, UNI__AGENT_SPAWN_FAILED, message);
}

/* ---- the loop ---- */

static void handle(agent *self, uni__wire_frame *frame)
{
    uni_value *order = NULL;
    if (uni__msgpack_read(&order, frame->payload, frame->size, NULL) < 0) {
        self->orphaned = true; /* not our controller's language: treat it as gone */
        return;
    }
    int rank = (int)uni_dict_get_int(order, "rank", -1);
    switch (frame->type) {
    case UNI__AGENT_SPAWN:
        spawn(self, order, frame);
        break;
    case UNI__AGENT_KILL:
        for (size_t i = 0; i < self->num_workers; i++)
            if (self->workers[i].pid > 0 && (rank < 0 || self->workers[i].rank == rank))
                kill(-self->workers[i].pid, (int)uni_dict_get_int(order, "signal", SIGTERM));
        break;
    case UNI__AGENT_KILL_ALL:
        kill_all(self);
        break;
    default:
        /* from a newer controller: the version in the header would have refused a real
         * difference */
        break;
    }
    uni_value_free(order);
}

static void serve(agent *self)
{
    struct pollfd ends[2] = { { .fd = self->wire.fd, .events = POLLIN },
                              { .fd = self->signals, .events = POLLIN } };
    while (!self->orphaned && !self->is_worker) {
        uni__oom_watch_tick(&self->oom);
        int ready = poll(ends, 2, LOOK_AROUND_MS);
        if (ready < 0 && errno != EINTR)
            break;
        if (ready == 0)
            continue;
        if (ends[1].revents) {
            struct signalfd_siginfo ignored[16];
            while (read(self->signals, ignored, sizeof ignored) > 0)
                ;
            reap(self);
        }
        if (!ends[0].revents)
            continue;
        uni__wire_frame frame;
        if (uni__wire_fill(&self->wire, NULL) < 0)
            self->orphaned = true;
        int found = 0;
        while (!self->is_worker && (found = uni__wire_next(&self->wire, &frame, NULL)) > 0) {
            handle(self, &frame);
            uni__wire_frame_done(&frame);
        }
        if (found < 0)
            self->orphaned = true;
    }
}

/* The controller can no longer write down when the run ended: the logs of those who are ended with
 * it show it (`unisono why`). */
static void date_logs(const agent *self)
{
    for (size_t i = 0; i < self->num_workers; i++)
        if (self->workers[i].pid > 0 && self->workers[i].log)
            (void)utimensat(AT_FDCWD, self->workers[i].log, NULL, 0);
}

static void forget(agent *self)
{
    uni__wire_close(&self->wire);
    if (self->signals >= 0)
        close(self->signals);
    for (size_t i = 0; i < self->num_workers; i++)
        free(self->workers[i].log);
    free(self->workers);
}

/* Returns in a forked worker only. */
static void agent_run(int channel, pid_t keeper, const uni__fork_hooks *hooks)
{
    agent self = { .hooks = hooks };
    char name[16] = "";
    sigset_t child;
    prctl(PR_GET_NAME, name);
    prctl(PR_SET_NAME, "unisono-agent");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    self.signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    int high = uni__child_high_fd(self.signals);
    self.signals = high >= 0 ? high : self.signals;
    high = uni__child_high_fd(channel);
    uni__wire_init(&self.wire, high >= 0 ? high : channel);
    uni__oom_watch_begin(&self.oom);
    send_to_controller(&self, UNI__AGENT_HELLO, with_int(about(-1, getpid()), "keeper", keeper));
    if (self.signals >= 0)
        serve(&self);
    if (self.is_worker) {
        prctl(PR_SET_NAME, name);
        forget(&self);
        return;
    }
    self.orphaned = true;
    date_logs(&self);
    kill_all(&self);
    forget(&self);
    _exit(0);
}

void uni__agent_keep(int channel, int alive, const uni__fork_hooks *hooks)
{
    setsid();
    const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGTSTP };
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        signal(ignored[i], SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t keeper = getpid(), agent_pid = uni__fork(hooks);
    if (agent_pid == 0) {
        close(alive);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        agent_run(channel, keeper, hooks);
        return;
    }
    prctl(PR_SET_NAME, "unisono-keeper");
    close(channel);
    while (agent_pid > 0 && waitpid(agent_pid, NULL, 0) < 0 && errno == EINTR)
        ;
    uni__tree_kill(KILL_TIMEOUT_MS, NULL, NULL);
    _exit(0);
}
