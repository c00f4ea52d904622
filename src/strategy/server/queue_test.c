/* queue_test.c - the coordinator's calls: handed to workers that ask, done once whatever dies,
 * given up when they kill their worker every time. The workers are the other end of their links. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "strategy/server/internal.h"

#define WORKERS 2

static uni__ps ps;
static uni__server_link ends[WORKERS]; /* the workers' */
static char results[512]; /* "0:ok " for every result that arrived */

static void take(void *context, int status, const void *data, size_t size)
{
    size_t used = strlen(results);
    snprintf(results + used, sizeof results - used, "%s%s:%.*s ", (const char *)context,
             status < 0 ? "!" : "", (int)size, (const char *)data);
}

static void set_up(uni_parameter_server_mode mode)
{
    const uni__server_board_shape shape = {
        .workers = WORKERS, .servers = 1, .log_length = 1, .mode = mode
    };
    const uni__span span = { 0, 16 };
    ps = (uni__ps){ .cluster = { .workers = WORKERS, .servers = 1 },
                    .options = { .mode = mode },
                    .phase = 3 };
    results[0] = '\0';
    assert_int_equal(uni__server_board_new(&ps.board, &shape, &span, NULL), 0);
    for (int i = 0; i < WORKERS; i++) {
        atomic_store(&ps.board.header->members[1 + i].epoch, 1);
        ends[i] = uni__server_board_link(&ps.board, 1 + i, -1);
    }
    assert_int_equal(uni__ps_open_queue(&ps, NULL), 0);
}

static void take_down(void)
{
    uni__ps_close_queue(&ps);
    assert_null(ps.queue);
    uni__server_board_close(&ps.board);
}

static void schedule(const char *arguments, uint32_t function)
{
    assert_int_equal(uni__ps_schedule(&ps, function, arguments, strlen(arguments), take,
                                      (void *)arguments, NULL),
                     0);
}

static void ask(int worker, uint32_t flags, uint64_t id, int status, const char *result)
{
    uni__ps_message question = { .kind = UNI__PS_NEXT,
                                 .flags = flags | (result ? UNI__PS_HAS_RESULT : 0),
                                 .epoch = atomic_load(&ps.board.header->members[1 + worker].epoch),
                                 .phase = ps.phase,
                                 .id = id,
                                 .status = status,
                                 .size = result ? strlen(result) : 0 };
    uni__server_link *end = &ends[worker];
    if (result)
        memcpy(end->class_->room(end), result, question.size);
    end->class_->ask(end, &question);
    (void)uni__ps_progress(&ps);
}

/* What the worker was answered: "7 a 5": call 7, arguments a, function 5; "-": nothing. */
static const char *answer_of(int worker)
{
    static char text[128];
    uni__ps_message answer;
    const void *payload;
    if (!ends[worker].class_->answered(&ends[worker], &answer, &payload))
        return "-";
    if (answer.status != 0)
        return answer.status == UNI_EEND        ? "nothing now"
               : answer.status == UNI_ECANCELED ? "canceled"
                                                : "?";
    assert_int_equal(answer.carried, answer.size);
    snprintf(text, sizeof text, "%llu %.*s %u%s", (unsigned long long)answer.id, (int)answer.size,
             (const char *)payload, answer.number, answer.flags & UNI__PS_RETRY ? " again" : "");
    return text;
}

static void calls_go_to_who_asks(void **state)
{
    set_up(UNI_PS_ASYNCHRONOUS);
    ask(0, 0, 0, 0, NULL);
    assert_string_equal(answer_of(0), "-"); /* there is none yet: it waits */
    schedule("a", 5);
    assert_string_equal(answer_of(0), "0 a 5");
    schedule("b", 6);
    schedule("c", 5);
    ask(1, 0, 0, 0, NULL);
    assert_string_equal(answer_of(1), "1 b 6");
    assert_true(uni__ps_worker_has_call(&ps, 0));
    ask(0, 0, 0, 0, "ok");
    assert_string_equal(results, "a:ok ");
    assert_string_equal(answer_of(0), "2 c 5");
    /* It still works on another step: it does not wait. */
    ask(1, UNI__PS_RUNS, 1, 0, "good");
    assert_string_equal(answer_of(1), "nothing now");
    assert_false(uni__ps_worker_has_call(&ps, 1));
    assert_true(uni__ps_worker_has_call(&ps, 0));
    assert_int_equal(uni__ps_join(&ps, 1, NULL), 0);
    ask(0, 0, 2, 0, "fine");
    assert_int_equal(uni__ps_join(&ps, 0, NULL), 0);
    assert_string_equal(results, "a:ok b:good c:fine ");
    take_down();
    assert_string_equal(results, "a:ok b:good c:fine ");
}

/* Synchronous: call i is worker i % workers', so that every worker has a part of every step. */
static void each_worker_has_its_lane(void **state)
{
    set_up(UNI_PS_SYNCHRONOUS);
    schedule("a", 1);
    schedule("b", 1);
    schedule("c", 1);
    schedule("d", 1);
    ask(1, 0, 0, 0, NULL);
    assert_string_equal(answer_of(1), "1 b 1");
    ask(1, 0, 1, 0, "ok");
    assert_string_equal(answer_of(1), "3 d 1");
    ask(1, 0, 3, 0, "ok");
    assert_string_equal(answer_of(1), "-");
    ask(0, 0, 0, 0, NULL);
    assert_string_equal(answer_of(0), "0 a 1");
    ask(0, 0, 0, 0, "ok");
    assert_string_equal(answer_of(0), "2 c 1");
    assert_string_equal(results, "b:ok d:ok a:ok ");
    /* An incomplete step is filled with empty calls. */
    ask(0, 0, 2, 0, "ok");
    schedule("e", 1);
    assert_int_equal(uni__ps_complete_step(&ps, NULL), 0);
    assert_string_equal(answer_of(0), "4 e 1");
    assert_string_equal(answer_of(1), "5  0");
    assert_int_equal(uni__ps_complete_step(&ps, NULL), 0);
    assert_int_equal(ps.queue->next, 6);
    take_down();
}

static void a_worker_dies(void **state)
{
    set_up(UNI_PS_ASYNCHRONOUS);
    schedule("a", 1);
    schedule("b", 1);
    ask(0, 0, 0, 0, NULL);
    assert_string_equal(answer_of(0), "0 a 1");
    atomic_store(&ps.board.header->members[1].epoch, 2);
    uni__ps_worker_is_back(&ps, 0);
    assert_int_equal(ps.queue->rescheduled, 1);
    ask(1, 0, 0, 0, NULL);
    assert_string_equal(answer_of(1), "0 a 1 again"); /* under the same number, before the others */
    ask(1, 0, 0, 0, "of 1");
    assert_string_equal(answer_of(1), "1 b 1");
    /* The dead worker's result of it arrives late: it counted once. */
    ask(0, 0, 0, 0, "of 0");
    assert_string_equal(results, "a:of 1 ");
    take_down();
}

static void a_call_that_kills_its_workers(void **state)
{
    uni_error err = { 0 };
    set_up(UNI_PS_ASYNCHRONOUS);
    schedule("a", 1);
    for (int death = 1; death <= 6; death++) {
        ask(0, 0, 0, 0, NULL);
        assert_string_equal(answer_of(0), death == 1 ? "0 a 1" : "0 a 1 again");
        assert_string_equal(results, "");
        uni__ps_worker_is_back(&ps, 0);
    }
    assert_string_equal(results,
                        "a!:this call ended its worker 6 times; what does its step function do "
                        "there? (`unisono why` has the causes) ");
    assert_int_equal(uni__ps_join(&ps, 0, &err), UNI_EWORKER);
    assert_non_null(strstr(err.message, "worker 0, call 0: this call ended its worker 6 times"));
    assert_int_equal(uni__ps_join(&ps, 0, &err), 0); /* told once */
    take_down();
}

static void the_first_error_is_told(void **state)
{
    uni_error err = { 0 };
    set_up(UNI_PS_ASYNCHRONOUS);
    schedule("a", 1);
    schedule("b", 1);
    ask(0, 0, 0, 0, NULL);
    ask(1, 0, 0, 0, NULL);
    ask(1, 0, 1, UNI_EFUNCTION, "no such file");
    ask(0, 0, 0, UNI_EIO, "later");
    assert_string_equal(results, "b!:no such file a!:later ");
    assert_int_equal(uni__ps_join(&ps, 0, &err), UNI_EFUNCTION);
    assert_string_equal(err.message, "worker 1, call 1: no such file");
    take_down();
}

/* Those of a fit that has ended, or of a process that has died. */
static void questions_of_the_past(void **state)
{
    set_up(UNI_PS_ASYNCHRONOUS);
    schedule("a", 1);
    ps.phase = 2;
    uni__ps_message question = { .kind = UNI__PS_NEXT, .epoch = 1, .phase = 2 };
    ends[0].class_->ask(&ends[0], &question);
    ps.phase = 3;
    assert_true(uni__ps_progress(&ps));
    assert_string_equal(answer_of(0), "canceled");
    question = (uni__ps_message){ .kind = UNI__PS_NEXT, .epoch = 9, .phase = 3 };
    ends[0].class_->ask(&ends[0], &question);
    assert_true(uni__ps_progress(&ps));
    assert_string_equal(answer_of(0), "canceled");
    assert_false(uni__ps_progress(&ps)); /* nothing is asked */
    take_down();
    assert_string_equal(results, "a!:the coordinator was closed before this call was done ");
}

/* Whole steps that no worker has begun are withdrawn from the end; their numbers are used again. */
static void calls_that_are_taken_back(void **state)
{
    set_up(UNI_PS_ASYNCHRONOUS);
    schedule("a", 1);
    ask(0, 0, 0, 0, NULL);
    ask(0, UNI__PS_RUNS, 0, 0, "ok");
    schedule("b", 1);
    schedule("c", 1);
    uni__ps_end_calls(&ps);
    assert_string_equal(results, "a:ok c!:the coordinator was closed before this call was done "
                                 "b!:the coordinator was closed before this call was done ");
    assert_int_equal(ps.queue->next, 1);
    assert_int_equal(ps.queue->low, 1);
    schedule("d", 1);
    ask(1, 0, 0, 0, NULL);
    assert_string_equal(answer_of(1), "1 d 1");
    ps.queue->ending = true;
    ask(1, 0, 1, 0, "last");
    assert_string_equal(answer_of(1), "canceled");
    assert_non_null(strstr(results, "d:last "));
    take_down();
}

/* Of a step that is not complete, too; steps that are done stay. */
static void a_part_of_a_step_is_taken_back(void **state)
{
    set_up(UNI_PS_SYNCHRONOUS);
    schedule("a", 1);
    schedule("b", 1);
    schedule("c", 1);
    ask(0, 0, 0, 0, NULL);
    ask(1, 0, 0, 0, NULL);
    ask(1, UNI__PS_RUNS, 1, 0, "ok");
    ps.queue->ending = true; /* worker 0 gets no other call */
    ask(0, 0, 0, 0, "ok");
    assert_string_equal(results, "b:ok a:ok ");
    uni__ps_end_calls(&ps);
    assert_non_null(strstr(results, "c!:the coordinator was closed before this call was done"));
    assert_int_equal(ps.queue->next, 2);
    take_down();
}

static void arguments_of_any_size(void **state)
{
    set_up(UNI_PS_ASYNCHRONOUS);
    uni_error err = { 0 };
    char *large = calloc(1, UNI__PS_VALUE_MAX + 1);
    assert_int_equal(uni__ps_schedule(&ps, 1, large, UNI__PS_VALUE_MAX + 1, NULL, NULL, &err),
                     UNI_ELIMIT);
    assert_non_null(strstr(err.message, "4194305 bytes"));
    large[UNI__PS_VALUE_MAX - 1] = 'z';
    assert_int_equal(uni__ps_schedule(&ps, 1, large, UNI__PS_VALUE_MAX, NULL, NULL, &err), 0);
    uni__ps_message answer;
    const void *payload;
    ask(0, 0, 0, 0, NULL);
    assert_true(ends[0].class_->answered(&ends[0], &answer, &payload));
    assert_int_equal(answer.size, UNI__PS_VALUE_MAX);
    assert_int_equal(((const char *)payload)[UNI__PS_VALUE_MAX - 1], 'z');
    free(large);
    take_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_go_to_who_asks),
        cmocka_unit_test(each_worker_has_its_lane),
        cmocka_unit_test(a_worker_dies),
        cmocka_unit_test(a_call_that_kills_its_workers),
        cmocka_unit_test(the_first_error_is_told),
        cmocka_unit_test(questions_of_the_past),
        cmocka_unit_test(calls_that_are_taken_back),
        cmocka_unit_test(a_part_of_a_step_is_taken_back),
        cmocka_unit_test(arguments_of_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
