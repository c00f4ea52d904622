/*
 * client_test.c - a worker and a server other than server 0 die in one step, in the order that left
 * the step incomplete forever: the server after it took the worker's part, the worker after its
 * part reached server 0.
 *
 * The members are threads, and a mailbox replaces the session. A member "dies" when the mailbox
 * tells it that the run is over: it returns from whatever it waits for, and loses its own memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/experimental/coordinator.h>
#include <unisono/layers.h>
#include <unisono/nn.h>

#include "strategy/server/internal.h"

enum { COORDINATOR, WORKER_A, WORKER_B, SERVER_0, SERVER_1, MEMBERS };
#define FEATURES 5
#define LETTERS 16

/* ---- the mailbox ---- */

typedef struct letter {
    int from, fd;
    char key[UNI__CLUSTER_KEY_SIZE];
    uint8_t data[64];
    size_t size;
} letter;

typedef struct box {
    letter letters[LETTERS];
    int count;
} box;

static struct {
    pthread_mutex_t lock;
    box boxes[MEMBERS];
} office = { .lock = PTHREAD_MUTEX_INITIALIZER };

typedef struct member {
    int rank;
    _Atomic bool dead;
    uni_model *model;
    uni__ps *ps;
    pthread_t thread;
    uint64_t id;
    double sums[2];
    int status;
    uni_error err;
} member;

static int post(void *context, int to, const char *key, const void *data, size_t size, int fd,
                uni_error *err)
{
    member *from = context;
    pthread_mutex_lock(&office.lock);
    box *b = &office.boxes[to];
    letter *l = &b->letters[b->count++];
    *l = (letter){ .from = from->rank, .fd = fd < 0 ? -1 : dup(fd), .size = size };
    snprintf(l->key, sizeof l->key, "%s", key);
    memcpy(l->data, data, size);
    pthread_mutex_unlock(&office.lock);
    return 0;
}

static int collect(void *context, const char *prefix, int *from, char key[UNI__CLUSTER_KEY_SIZE],
                   void *data, size_t capacity, size_t *size, int *fd, int timeout_ms,
                   uni_error *err)
{
    member *to = context;
    int found = 0;
    pthread_mutex_lock(&office.lock);
    box *b = &office.boxes[to->rank];
    for (int i = 0; i < b->count && !found; i++) {
        letter *l = &b->letters[i];
        if (strncmp(l->key, prefix, strlen(prefix)) != 0 || l->size > capacity)
            continue;
        *from = l->from;
        *fd = l->fd;
        *size = l->size;
        memcpy(key, l->key, sizeof l->key);
        memcpy(data, l->data, l->size);
        memmove(l, l + 1, (size_t)(--b->count - i) * sizeof *l);
        found = 1;
    }
    pthread_mutex_unlock(&office.lock);
    if (!found && timeout_ms > 0)
        usleep(1000);
    return found;
}

static bool is_over(void *context, char *why, size_t why_size)
{
    const member *m = context;
    if (m->dead)
        snprintf(why, why_size, "this member was killed");
    return m->dead;
}

/* Drops messages to members that never joined, from the previous test. */
static int clear_office(void **state)
{
    for (int i = 0; i < MEMBERS; i++) {
        for (int j = 0; j < office.boxes[i].count; j++)
            if (office.boxes[i].letters[j].fd >= 0)
                close(office.boxes[i].letters[j].fd);
        office.boxes[i].count = 0;
    }
    return 0;
}

static const uni__cluster_vtable office_class = {
    .name = "threads", .send = post, .receive = collect, .over = is_over
};

/* ---- members ---- */

static uni_parameter_server_mode mode;

static int make_member(member *m, int rank)
{
    *m = (member){ .rank = rank };
    uni_error *err = &m->err;
    uni_layer *input = uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES });
    UNI_TRY(
        uni_sequential_new(&m->model, "line", UNI_LAYERS(input, uni_layer_dense(3, NULL)), err));
    uni_model_set_seed(m->model, 11);
    UNI_TRY(uni_model_compile(
        m->model, &(uni_compile_options){ .optimizer_name = "sgd", .loss_name = "mse" }, err));
    return uni__ps_new(
        &m->ps,
        &(uni__cluster){
            .vtable = &office_class, .context = m, .rank = rank, .workers = 2, .servers = 2 },
        &(uni_parameter_server_options){ .mode = mode, .staleness = 0 }, err);
}

static int place(member *m)
{
    UNI_TRY(uni__ps_place(m->ps, m->model, uni_model_optimizer(m->model), &m->err));
    uni__ps_begin_phase(m->ps);
    return 0;
}

static void *serve(void *argument)
{
    member *m = argument;
    m->status = place(m);
    if (m->status == 0)
        m->status = uni__ps_serve(m->ps, &m->err);
    return NULL;
}

static void *join_only(void *argument)
{
    member *m = argument;
    m->status = place(m);
    return NULL;
}

/* Pushes the part of a step whose gradient is 1 everywhere. */
static void *push(void *argument)
{
    member *m = argument;
    size_t count = 0;
    uni_parameters_weights(uni_model_parameters(m->model), &count);
    float *gradient = malloc(count * sizeof *gradient);
    for (size_t i = 0; i < count; i++)
        gradient[i] = 1;
    m->status = uni__ps_push(m->ps,
                             &(uni__push){ .id = m->id,
                                           .gradient = gradient,
                                           .samples = 1,
                                           .sums = m->sums,
                                           .num_sums = 2,
                                           .want_weights = true },
                             &m->err);
    free(gradient);
    return NULL;
}

static void start(member *m, void *(*function)(void *))
{
    assert_int_equal(pthread_create(&m->thread, NULL, function, m), 0);
}

static void finish(member *m)
{
    assert_int_equal(pthread_join(m->thread, NULL), 0);
    if (m->status < 0 && !m->dead)
        fail_msg("rank %d: %s", m->rank, m->err.message);
}

static void end(member *m)
{
    uni__ps_free(m->ps);
    uni_model_free(m->model);
}

/* The coordinator admits members until this one is in its n-th incarnation. */
static void let_in(member *coordinator, int rank, uint32_t life)
{
    _Atomic uint32_t *epoch = &coordinator->ps->board.header->members[rank].epoch;
    while (atomic_load(epoch) < life) {
        assert_int_equal(uni__ps_attend(coordinator->ps, &coordinator->err), 0);
        usleep(200);
    }
}

static void join_group(member *coordinator, member *m, int rank, uint32_t life,
                       void *(*function)(void *))
{
    assert_int_equal(make_member(m, rank), 0);
    start(m, function);
    let_in(coordinator, rank, life);
    if (function == join_only)
        finish(m);
}

static void kill_member(member *m)
{
    m->dead = true;
    finish(m);
    end(m);
}

static uni__server_link *link_of(const member *m, int server)
{
    return &m->ps->servers[server];
}

static void wait_until_taken(const member *m, int server, uint32_t before)
{
    while (atomic_load((_Atomic uint32_t *)link_of(m, server)->memory) == before ||
           !link_of(m, server)->class_->free_to_ask(link_of(m, server)))
        usleep(200);
}

/* The number of questions so far: the first word of a link in shared memory. */
static uint32_t asked(const member *m, int server)
{
    return atomic_load((_Atomic uint32_t *)link_of(m, server)->memory);
}

static void make_group(member *c, member *zero, member *one, member *a, member *b)
{
    assert_int_equal(make_member(c, COORDINATOR), 0);
    assert_int_equal(place(c), 0);
    join_group(c, zero, SERVER_0, 1, serve);
    join_group(c, one, SERVER_1, 1, serve);
    join_group(c, a, WORKER_A, 1, join_only);
    join_group(c, b, WORKER_B, 1, join_only);
}

static void worker_and_server_die_in_one_step(void **state)
{
    member c, a, b, zero, one;
    double sums[2] = { 0 };
    uint64_t step = 0;
    mode = UNI_PS_SYNCHRONOUS;
    make_group(&c, &zero, &one, &a, &b);

    /* Both servers have A's part; then A and server 1 die. */
    a.id = 2 * step;
    a.sums[1] = 7;
    uint32_t before = asked(&a, 0);
    start(&a, push);
    wait_until_taken(&a, 0, before);
    kill_member(&one);
    kill_member(&a);
    /* A's next incarnation begins first: server 1 drops the questions of the previous one. */
    join_group(&c, &a, WORKER_A, 2, join_only);
    join_group(&c, &one, SERVER_1, 2, serve);

    /* B's part completes the step on server 0. */
    b.id = 2 * step + 1;
    before = asked(&b, 0);
    start(&b, push);
    wait_until_taken(&b, 0, before);
    while (!link_of(&b, 0)->class_->answered(link_of(&b, 0), &(uni__ps_message){ 0 },
                                             &(const void *){ NULL }))
        usleep(200);

    /* Server 1 still lacks A's part: the step is not done, and pushing it again ends B's wait. */
    a.id = 2 * step;
    assert_int_equal(uni__ps_query(a.ps, a.id, sums, 2, &a.err), 0);
    start(&a, push);
    finish(&a);
    finish(&b);
    assert_int_equal(uni__ps_query(a.ps, a.id, sums, 2, &a.err), 1);
    assert_true(sums[1] == 7);

    /* Both shards have one update: the mean gradient 1 at rate 0.01. */
    size_t count = 0;
    const float *first = uni_parameters_weights(uni_model_parameters(c.model), &count),
                *last = uni_parameters_weights(uni_model_parameters(b.model), NULL);
    for (size_t i = 0; i < count; i++)
        assert_true(fabsf(first[i] - 0.01f - last[i]) < 1e-6f);

    zero.dead = one.dead = true;
    finish(&zero);
    finish(&one);
    for (int i = 0; i < 5; i++)
        end((member *[]){ &zero, &one, &a, &b, &c }[i]);
}

/* The numbers that a dead worker reported with its push are reported again. They are not recomputed
 * with the weights that its own push has changed. */
static void asynchronous_worker_dies_after_its_push(void **state)
{
    member c, a, zero, one;
    double sums[2] = { 0 };
    mode = UNI_PS_ASYNCHRONOUS;
    assert_int_equal(make_member(&c, COORDINATOR), 0);
    assert_int_equal(place(&c), 0);
    join_group(&c, &zero, SERVER_0, 1, serve);
    join_group(&c, &one, SERVER_1, 1, serve);
    join_group(&c, &a, WORKER_A, 1, join_only);
    a.id = 5;
    a.sums[1] = 7;
    start(&a, push);
    finish(&a);
    end(&a);
    join_group(&c, &a, WORKER_A, 2, join_only);
    assert_int_equal(uni__ps_query(a.ps, 6, sums, 2, &a.err), 0);
    assert_int_equal(uni__ps_query(a.ps, 5, sums, 2, &a.err), 1);
    assert_true(sums[1] == 7);
    /* The next push replaces the last one; what was applied stays applied. */
    a.id = 6;
    a.sums[1] = 8;
    start(&a, push);
    finish(&a);
    assert_int_equal(uni__ps_query(a.ps, 6, sums, 2, &a.err), 1);
    assert_true(sums[1] == 8);
    zero.dead = one.dead = true;
    finish(&zero);
    finish(&one);
    for (int i = 0; i < 4; i++)
        end((member *[]){ &zero, &one, &a, &c }[i]);
}

static void *pull(void *argument)
{
    member *m = argument;
    m->status = uni__ps_pull(m->ps, UNI__PULL_FOR_STEP, 0, &m->err);
    return NULL;
}

/* Under bounded staleness 0 only one worker at a time reads and updates, even when server 0 dies
 * while a worker is between the two. */
static void bound_survives_the_server(void **state)
{
    member c, a, b, zero, one;
    mode = UNI_PS_BOUNDED;
    make_group(&c, &zero, &one, &a, &b);
    start(&a, pull);
    finish(&a);
    kill_member(&zero);
    join_group(&c, &zero, SERVER_0, 2, serve);
    start(&b, pull);
    usleep(100000);
    assert_false(link_of(&b, 0)->class_->answered(link_of(&b, 0), &(uni__ps_message){ 0 },
                                                  &(const void *){ NULL }));
    a.id = 0;
    start(&a, push);
    finish(&a);
    finish(&b);
    assert_true(b.ps->version == 1);
    zero.dead = one.dead = true;
    finish(&zero);
    finish(&one);
    for (int i = 0; i < 5; i++)
        end((member *[]){ &zero, &one, &a, &b, &c }[i]);
}

int main(void)
{
    alarm(60); /* kill a test that hangs */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(worker_and_server_die_in_one_step, clear_office),
        cmocka_unit_test_setup(asynchronous_worker_dies_after_its_push, clear_office),
        cmocka_unit_test_setup(bound_survives_the_server, clear_office),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
