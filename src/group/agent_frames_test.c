/*
 * agent_frames_test.c - what the controller makes of the agent's messages and of what workers write
 * to their report pipes: starts, ends and stops reach the owner once and of the right process, and
 * every line that was written, whole. The agent and the workers are the other ends of sockets and
 * pipes.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/dict.h"
#include "group/agent.h"
#include "group/internal.h"

#define SLOTS 2

typedef struct fixture {
    uni__group group;
    uni__worker_slot slots[SLOTS];
    uni__wire agent; /* its end */
    int pipe; /* the writing end of slot 0's report pipe */
    char told[4096];
    bool holds; /* the owner holds slot 0 at every line */
} fixture;

static void tell(void *context, const char *format, ...) UNI_PRINTF(2, 3);
static void tell(void *context, const char *format, ...)
{
    fixture *all = context;
    size_t used = strlen(all->told);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(all->told + used, sizeof all->told - used, format, arguments);
    va_end(arguments);
}

static void on_spawned(void *context, int rank, int pid)
{
    tell(context, "spawned %d %d; ", rank, pid);
}

static void on_spawn_failed(void *context, int rank, const char *sentence)
{
    tell(context, "failed %d %s; ", rank, sentence);
}

static void on_exited(void *context, int rank, const uni__exit *how)
{
    tell(context, "exited %d %d %d %d %d %d; ", rank, how->pid, how->exit_code, how->signal,
         how->core, (int)how->oom);
}

static void on_stopped(void *context, int rank, bool stopped)
{
    tell(context, "%s %d; ", stopped ? "stopped" : "continued", rank);
}

static void on_all_dead(void *context, int left)
{
    tell(context, "dead %d; ", left);
}

static void on_line(void *context, int rank, const char *line, size_t size)
{
    fixture *all = context;
    if (!line)
        tell(context, "too long; ");
    else if (size > 20)
        tell(context, "%zu bytes; ", size);
    else
        tell(context, "[%.*s] ", (int)size, line);
    if (all->holds)
        uni__group_hold(&all->group, rank, true);
}

static const uni__group_events events = { .spawned = on_spawned,
                                          .spawn_failed = on_spawn_failed,
                                          .exited = on_exited,
                                          .stopped = on_stopped,
                                          .all_dead = on_all_dead,
                                          .line = on_line };

static int setup(void **state)
{
    int pair[2], pipes[2];
    fixture *all = calloc(1, sizeof *all);
    *state = all;
    if (!all || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 ||
        pipe2(pipes, O_CLOEXEC | O_NONBLOCK) < 0 || uv_loop_init(&all->group.loop) < 0)
        return -1;
    all->group.events = &events;
    all->group.context = all;
    all->group.slots = all->slots;
    all->group.num_slots = SLOTS;
    all->group.alive_fd = -1;
    uv_timer_init(&all->group.loop, &all->group.deaf);
    uv_async_init(&all->group.loop, &all->group.async, NULL);
    uni__wire_init(&all->group.agent, pair[0]);
    uni__wire_init(&all->agent, pair[1]);
    for (int i = 0; i < SLOTS; i++) {
        all->slots[i] = (uni__worker_slot){ .group = &all->group, .rank = i, .report_fd = -1 };
        uni__wire_init(&all->slots[i].wire, -1);
        uni__worker_spawned(&all->slots[i].life, true, 1);
    }
    all->slots[0].report_fd = pipes[0];
    all->pipe = pipes[1];
    return 0;
}

static int teardown(void **state)
{
    fixture *all = *state;
    for (int i = 0; i < SLOTS; i++)
        uni__links_empty_slot(&all->slots[i]);
    if (all->pipe >= 0)
        close(all->pipe);
    uni__wire_close(&all->group.agent);
    uni__wire_close(&all->agent);
    uv_close((uv_handle_t *)&all->group.deaf, NULL);
    uv_close((uv_handle_t *)&all->group.async, NULL);
    uv_run(&all->group.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&all->group.loop), 0);
    free(all);
    return 0;
}

/* The agent says something; takes the message. */
static void say(fixture *all, int type, uni_value *message)
{
    assert_non_null(message);
    assert_int_equal(uni__wire_send_value(&all->agent, type, message, NULL, 0, 1000, NULL), 0);
    uni_value_free(message);
    assert_int_equal(uni__wire_fill(&all->group.agent, NULL), 0);
    uni__links_take_agent_frames(&all->group);
}

#define INT(name, value)                                                                           \
    {                                                                                              \
        name, uni_value_int(value)                                                                 \
    }

static void expect(fixture *all, const char *told)
{
    assert_string_equal(all->told, told);
    all->told[0] = '\0';
}

static void a_life(void **state)
{
    fixture *all = *state;
    say(all, UNI__AGENT_HELLO, UNI__DICT(INT("pid", 50), INT("keeper", 51)));
    assert_int_equal(all->group.agent_pid, 50);
    assert_int_equal(all->group.keeper_pid, 51);
    say(all, UNI__AGENT_SPAWNED, UNI__DICT(INT("rank", 1), INT("pid", 60)));
    expect(all, "spawned 1 60; ");
    assert_int_equal(all->slots[1].life.pid, 60);
    say(all, UNI__AGENT_STOPPED, UNI__DICT(INT("rank", 1), INT("stopped", 1)));
    expect(all, "stopped 1; ");
    assert_true(all->slots[1].life.stopped_ns > 0);
    say(all, UNI__AGENT_STOPPED, UNI__DICT(INT("rank", 1), INT("stopped", 0)));
    expect(all, "continued 1; ");
    assert_int_equal(all->slots[1].life.stopped_ns, 0);
    say(all, UNI__AGENT_EXITED,
        UNI__DICT(INT("rank", 1), INT("pid", 60), INT("exit_code", 3), INT("signal", 0)));
    expect(all, "exited 1 60 3 0 0 0; ");
    assert_int_equal(all->slots[1].life.state, UNI__WORKER_ENDED);
    /* It has ended once. */
    say(all, UNI__AGENT_EXITED, UNI__DICT(INT("rank", 1), INT("pid", 60), INT("exit_code", 3)));
    say(all, UNI__AGENT_STOPPED, UNI__DICT(INT("rank", 1), INT("stopped", 1)));
    expect(all, "");
}

static void how_it_ended(void **state)
{
    fixture *all = *state;
    say(all, UNI__AGENT_SPAWNED, UNI__DICT(INT("rank", 0), INT("pid", 60)));
    expect(all, "spawned 0 60; ");
    /* Of an earlier life of this rank. */
    say(all, UNI__AGENT_EXITED, UNI__DICT(INT("rank", 0), INT("pid", 59), INT("exit_code", 0)));
    expect(all, "");
    assert_true(uni__worker_is_live(&all->slots[0].life));
    say(all, UNI__AGENT_EXITED,
        UNI__DICT(INT("rank", 0), INT("pid", 60), INT("exit_code", -1), INT("signal", SIGSEGV),
                  INT("core", 1), INT("oom", UNI__OOM_NEAR)));
    char expected[64];
    snprintf(expected, sizeof expected, "exited 0 60 -1 %d 1 %d; ", SIGSEGV, UNI__OOM_NEAR);
    expect(all, expected);
}

static void it_could_not_start(void **state)
{
    fixture *all = *state;
    say(all, UNI__AGENT_SPAWN_FAILED,
        UNI__DICT(INT("rank", 0), INT("errno", ENOENT), { "what", uni_value_string("exec x") }));
    expect(all, "failed 0 exec x: No such file or directory; ");
    assert_int_equal(all->slots[0].life.state, UNI__WORKER_ENDED);
    say(all, UNI__AGENT_SPAWN_FAILED, UNI__DICT(INT("rank", 1), INT("errno", EAGAIN)));
    expect(all, "failed 1 cannot start it: Resource temporarily unavailable; ");
}

static void all_are_dead(void **state)
{
    fixture *all = *state;
    say(all, UNI__AGENT_SPAWNED, UNI__DICT(INT("rank", 0), INT("pid", 60)));
    say(all, UNI__AGENT_ALL_DEAD, UNI__DICT(INT("left", 3)));
    expect(all, "spawned 0 60; dead 3; ");
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(all->slots[i].life.state, UNI__WORKER_ENDED);
}

/* What has no meaning changes nothing. */
static void nonsense(void **state)
{
    fixture *all = *state;
    say(all, UNI__AGENT_SPAWNED, UNI__DICT(INT("rank", SLOTS + 1), INT("pid", 60)));
    say(all, UNI__AGENT_SPAWNED, UNI__DICT(INT("rank", -1), INT("pid", 60)));
    say(all, UNI__AGENT_SPAWN_FAILED, UNI__DICT(INT("rank", -1)));
    say(all, UNI__AGENT_EXITED, UNI__DICT(INT("rank", 99), INT("pid", 0)));
    say(all, UNI__AGENT_STOPPED, UNI__DICT(INT("rank", 99), INT("stopped", 1)));
    say(all, 77, UNI__DICT(INT("rank", 0), INT("pid", 60)));
    expect(all, "");
    /* The rank after the last one is the launcher: mpirun or srun. */
    say(all, UNI__AGENT_SPAWNED, UNI__DICT(INT("rank", SLOTS), INT("pid", 61)));
    expect(all, "");
    assert_int_equal(all->group.launcher.pid, 61);
    for (int i = 0; i < SLOTS; i++)
        assert_int_equal(all->slots[i].life.pid, 0);
    /* A broken stream ends the agent. */
    assert_int_equal(write(all->agent.fd, "this is not a frame at all, is it?", 34), 34);
    assert_int_equal(uni__wire_fill(&all->group.agent, NULL), 0);
    all->group.closing = true; /* it expects no answer any more */
    uni__links_take_agent_frames(&all->group);
    assert_int_equal(all->group.agent.fd, -1);
}

/* ---- report pipes ---- */

static void put(fixture *all, const char *text)
{
    assert_int_equal(write(all->pipe, text, strlen(text)), strlen(text));
}

static void lines_of_a_program(void **state)
{
    fixture *all = *state;
    put(all, "one\n\ntwo words\n{}\nnot the end");
    uni__links_read_rest(&all->slots[0]);
    expect(all, "[one] [two words] [{}] "); /* a line without its end was cut off */
    assert_int_equal(all->slots[0].report_fd, -1);
}

/* Slot 0 gets a new pipe that the loop watches, and all of this comes through it. */
static void write_through_the_loop(fixture *all, const char *data, size_t size)
{
    int pipes[2], pair[2];
    uni__worker_slot *slot = &all->slots[0];
    uni__links_empty_slot(slot);
    uni__worker_spawned(&slot->life, true, 1);
    assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    slot->report_fd = pipes[0];
    uni__wire_init(&slot->wire, pair[0]);
    assert_int_equal(uni__links_watch_worker(slot, NULL), 0);
    for (size_t sent = 0; sent < size;) {
        ssize_t now = write(pipes[1], data + sent, size - sent);
        assert_true(now > 0 || errno == EAGAIN);
        sent += now > 0 ? (size_t)now : 0;
        uv_run(&all->group.loop, UV_RUN_NOWAIT);
    }
    close(pipes[1]);
    for (int round = 0; round < 1000 && slot->report_fd >= 0; round++)
        uv_run(&all->group.loop, UV_RUN_NOWAIT);
    assert_int_equal(slot->report_fd, -1); /* its end was seen */
    uni__links_empty_slot(slot);
    close(pair[1]);
}

/* A line may come in any number of pieces; one longer than 1 MiB is told of as such, and those
 * behind it are read again. */
static void lines_in_pieces(void **state)
{
    fixture *all = *state;
    static const struct {
        size_t size;
        const char *told;
    } cases[] = { { 21, "21 bytes; [next] " },
                  { 70000, "70000 bytes; [next] " },
                  { 1 << 20, "1048576 bytes; [next] " },
                  { (1 << 20) + 65536 + 100, "too long; [next] " } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = malloc(cases[i].size + 6);
        memset(text, 'x', cases[i].size);
        memcpy(text + cases[i].size, "\nnext\n", 6);
        write_through_the_loop(all, text, cases[i].size + 6);
        expect(all, cases[i].told);
        free(text);
    }
}

/* While it is held nothing is taken; at the worker's end everything is. */
static void a_rank_that_is_held(void **state)
{
    fixture *all = *state;
    all->holds = true;
    put(all, "one\ntwo\nthree\n");
    uni__group_hold(&all->group, 0, true);
    assert_true(all->slots[0].held && all->slots[0].was_held);
    uni__group_drain(&all->group, 0);
    expect(all, "");
    all->holds = false;
    uni__links_read_rest(&all->slots[0]);
    expect(all, "[one] [two] [three] ");
    assert_true(all->slots[0].held);
    uni__group_hold(&all->group, 0, false);
    assert_false(all->slots[0].held);
}

/* Frames with the MORE flag are one message; another worker's are its own. */
static void messages_in_parts(void **state)
{
    fixture *all = *state;
    uni__worker_slot *slot = &all->slots[0];
    for (int i = 0; i < 3; i++)
        uni__links_take_frame(slot, (const uint8_t *)"abcd", 4, UNI__SAYS_REPORT, UNI__FRAME_MORE);
    assert_int_equal(slot->joined_size, 12);
    assert_memory_equal(slot->joined, "abcdabcdabcd", 12);
    assert_int_equal(all->slots[1].joined_size, 0);
    uni__links_empty_slot(slot);
    assert_int_equal(slot->joined_size, 0);
    assert_null(slot->joined);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_life),
        TEST(how_it_ended),
        TEST(it_could_not_start),
        TEST(all_are_dead),
        TEST(nonsense),
        TEST(lines_of_a_program),
        TEST(lines_in_pieces),
        TEST(a_rank_that_is_held),
        TEST(messages_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
