/* test_helpers.c - see test_helpers.h. Stand-ins are weak: the part under test brings its own
 * functions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"
#include "train/test_helpers.h"

#define WEAK __attribute__((weak))

fake *the;

int fake_setup(void **state)
{
    uni_error err = { 0 };
    int fd = -1;
    the = calloc(1, sizeof *the);
    *state = the;
    if (!the)
        return -1;
    the->now = 1000 * SECOND;
    the->missing = -1;
    the->trainer.options = (uni_trainer_options){ .backend = "native", .grace_seconds = 10 };
    the->trainer.roles.workers = FAKE_RANKS;
    the->trainer.run = &the->run;
    the->trainer.ranks = the->run.ranks = the->ranks;
    the->run.trainer = &the->trainer;
    the->run.num_workers = FAKE_RANKS;
    the->run.state = UNI__RUN_RUNNING;
    the->run.attempt.number = 1;
    uni__cause_clear(&the->run.budget.before);
    for (int i = 0; i < FAKE_RANKS; i++) {
        the->workers[i] = (uni__worker){ .state = UNI__WORKER_RUNNING, .pid = FAKE_PID + i };
        the->ranks[i].worker = &the->workers[i];
        if (uni__page_new(&the->pages[i], &fd, &err) < 0)
            return -1;
        close(fd);
        atomic_store(&the->pages[i]->owner, (uint32_t)(FAKE_PID + i));
    }
    return 0;
}

int fake_teardown(void **state)
{
    (void)state;
    for (int i = 0; i < FAKE_RANKS; i++)
        uni__page_unmap(the->pages[i]);
    free(the);
    the = NULL;
    return 0;
}

void fake_assert_calls(const char *expected, const char *file, int line)
{
    if (strcmp(the->calls, expected) != 0) {
        print_error("called: \"%s\"\n expected: \"%s\"\n", the->calls, expected);
        _fail(file, line);
    }
    the->calls[0] = '\0';
}

static void called(const char *format, ...) UNI_PRINTF(1, 2);
static void called(const char *format, ...)
{
    size_t used = strlen(the->calls);
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is above it */
    vsnprintf(the->calls + used, sizeof the->calls - used, format, arguments);
    va_end(arguments);
}

/* ---- the clock and the kernel; the linker puts them in place of base's ---- */

uint64_t __wrap_uni__monotonic_ns(void);
uint64_t __wrap_uni__monotonic_ns(void)
{
    return the->now;
}

bool __wrap_uni__process_is_ending(int pid);
bool __wrap_uni__process_is_ending(int pid)
{
    assert_in_range(pid, FAKE_PID, FAKE_PID + FAKE_RANKS - 1);
    return the->is_ending[pid - FAKE_PID];
}

/* ---- control.c, run_dir.c ---- */

WEAK void uni__run_fail(uni__run *run, const uni__cause *cause)
{
    the->failed = *cause;
    run->state = UNI__RUN_FAILING;
    called("fail %d; ", cause->rank);
}

WEAK void uni__run_fatal(uni__run *run, uni__cause_class kind, const uni_error *error)
{
    run->state = UNI__RUN_FAILING;
    called("fatal %d; ", (int)kind);
}

WEAK void uni__run_finish_stopped(uni__run *run)
{
    run->state = UNI__RUN_FINISHING;
    called("finish; ");
}

WEAK void uni__run_rank_done(uni__run *run, int rank)
{
    run->ranks[rank].done = true;
    called("done %d; ", rank);
}

WEAK void uni__run_suspect(uni__run *run, int rank, bool frozen)
{
    called("%s %d; ", frozen ? "suspect" : "trust", rank);
}

WEAK void uni__run_tell(uni__run *run, uni_event_kind kind, int rank, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is above it */
    vsnprintf(the->told, sizeof the->told, format, arguments);
    va_end(arguments);
    called("tell %d; ", rank);
}

WEAK void uni__run_describe(uni__run *run, const char *status)
{
    called("describe %s; ", status);
}

WEAK void uni__run_note(uni__run *run, const char *event, uni_value *record, bool durable)
{
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(uni_json_write(&text, &size, record, 0, NULL), 0);
    snprintf(the->note, sizeof the->note, "%s", text);
    free(text);
    uni_value_free(record);
    called("note %s; ", event);
}

/* ---- the group ---- */

WEAK uni__page *uni__group_page(uni__group *group, int rank)
{
    return the->pages[rank];
}

WEAK void uni__group_kill(uni__group *group, int rank, int signal)
{
    called("kill %d %d; ", rank, signal);
}

WEAK void uni__group_kill_all(uni__group *group)
{
    called("kill all; ");
}

WEAK void uni__group_after(uni__group *group, int milliseconds, void (*function)(void *context))
{
    the->later = function;
    called("after %d; ", milliseconds);
}

WEAK void uni__group_drain(uni__group *group, int rank)
{
    called("drain %d; ", rank);
}

WEAK bool uni__group_saw_stopping(uni__group *group)
{
    return !the->hosts_have_not_seen;
}

WEAK bool uni__group_place(uni__group *group, int rank, uni__rank_place *out)
{
    *out = (uni__rank_place){ .shares_storage = !the->own_storage };
    return the->own_storage;
}

WEAK int uni__group_send(uni__group *group, int rank, int type, const void *payload, size_t size,
                         int fd, uni_error *err)
{
    size_t header = sizeof(uni__mail_header);
    assert_true(size >= header);
    snprintf(the->sent, sizeof the->sent, "%s: %.*s", ((const uni__mail_header *)payload)->key,
             (int)(size - header), (const char *)payload + header);
    called("send %d; ", rank);
    return the->send_status ? uni_error_set(err, the->send_status, "the channel is broken") : 0;
}

/* ---- other parts of the controller ---- */

WEAK int uni__attempt_start_rank(uni__run *run, int rank, uni_error *err)
{
    called("start %d; ", rank);
    return the->start_status ? uni_error_set(err, UNI_EIO, "cannot start it") : 0;
}

WEAK int uni__attempt_replace_rank(uni__run *run, int rank, uni_error *err)
{
    run->ranks[rank].joining = true;
    called("replace %d; ", rank);
    return the->start_status ? uni_error_set(err, UNI_EIO, "cannot start it") : 0;
}

WEAK bool uni__run_is_member(const uni__run *run, int rank)
{
    return run->trainer->roles.servers > 0 && rank > 0;
}

WEAK int uni__run_first_ended(const uni__run *run)
{
    for (int i = 0; i < run->num_workers; i++)
        if (run->ranks[i].done)
            return i;
    return -1;
}

WEAK void uni__rank_end(uni__run *run, const uni__cause *cause)
{
    called("end %d; ", cause->rank);
}

WEAK void uni__resize_tell(uni__run *run, int rank, const char *what)
{
    called("%s %d; ", what, rank);
}

WEAK int uni__results_writer_rank_ended(uni__results_writer *writer, int rank, uni_error *err)
{
    called("no lines of %d; ", rank);
    return 0;
}

WEAK int uni__persist_waits_for(const uni__persist *persist, int64_t *iteration, int *from)
{
    *iteration = the->missing_iteration;
    *from = the->giver;
    return the->missing;
}

WEAK void uni__persist_newest(uni__persist *persist, int rank, uint32_t serial)
{
    called("newest %d %u; ", rank, serial);
}
