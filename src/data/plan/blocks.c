/*
 * blocks.c - blocks of a dataset: how many a shuffle window holds, the shape of the dataset's
 * order, and the rows of each block, from which batch_counts.h computes the shares. Several threads
 * count rows at once; the calling thread waits and can be interrupted. Any thread.
 */
#include <errno.h>
#include <time.h>
#include "data/shared.h"
#include "data/run/execute.h"

#define MAX_WINDOW_BLOCKS 64
#define COUNTING_THREADS 4

int64_t uni__block_bytes(const uni__source *source)
{
    if (source->block_rows > 0 && source->row_bytes > 0)
        return source->block_rows * source->row_bytes;
    int64_t bytes = source->bytes > 0 && source->num_blocks > 0 ? source->bytes / source->num_blocks
                                                                : (int64_t)1 << 20;
    return bytes > 0 ? bytes : 1;
}

int64_t uni__window_blocks(const uni_dataset *dataset, int64_t budget)
{
    const uni__order *order = &dataset->order;
    const uni__source *source = &dataset->root->source;
    int64_t window = UNI__WINDOW_BYTES / uni__block_bytes(source);
    if (!order->shuffle || source->kind != UNI__SOURCE_SPLIT)
        return 1;
    window = window > MAX_WINDOW_BLOCKS ? MAX_WINDOW_BLOCKS : window;
    if (order->window_blocks > 0)
        window = order->window_blocks;
    else if (order->buffer > 0 && source->block_rows > 0)
        window = (order->buffer + source->block_rows - 1) / source->block_rows;
    /* A quarter of the budget: the current window, the next one being built, and some slack. */
    int64_t most = budget / 4 / uni__block_bytes(source);
    window = window > most ? most : window;
    return window > 0 ? window : 1;
}

static int put_bool(uni_value *dict, const char *key, bool value)
{
    return uni_dict_take(dict, key, uni_value_bool(value));
}

int uni__dataset_shape(const uni_dataset *dataset, uni_value **out, uni_error *err)
{
    static const char *const kinds[] = { "", "global", "block", "stream" };
    const uni__order *order = &dataset->order;
    uni_value *shape = uni_value_dict();
    *out = NULL;
    if (uni_dict_take(shape, "kind", uni_value_string(kinds[dataset->root->source.kind])) < 0 ||
        put_bool(shape, "one_to_one", uni__dataset_one_to_one(dataset)) < 0 ||
        put_bool(shape, "in_order", uni__dataset_in_order(dataset)) < 0 ||
        put_bool(shape, "shuffle", order->shuffle) < 0 ||
        uni_dict_take(shape, "batch_size", uni_value_int(order->batch_size)) < 0 ||
        put_bool(shape, "drop_remainder", order->drop_remainder) < 0) {
        uni_value_free(shape);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the shape of a dataset");
    }
    *out = shape;
    return 0;
}

/* Only split sources have blocks, which can be read independently. */
static int check_blocks(const uni_dataset *dataset, int64_t begin, int64_t end, uni_error *err)
{
    const uni__source *source = &dataset->root->source;
    if (source->kind != UNI__SOURCE_SPLIT)
        return uni_error_set(err, UNI_EUNSUPPORTED,
                             "only datasets of the block order have blocks to count");
    if (begin < 0 || begin > end || end > source->num_blocks)
        return uni_error_set(err, UNI_EINVAL, "blocks %lld to %lld of %lld", (long long)begin,
                             (long long)end, (long long)source->num_blocks);
    return 0;
}

struct counting {
    uni_dataset *dataset;
    int64_t begin, end, *rows;
    atomic_llong next; /* next block to count */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int running;
    atomic_int status; /* first failure; makes the other threads stop */
    uni_error err;
};

static void *count_some(void *self)
{
    struct counting *counting = self;
    uni__reader *reader = NULL;
    uni_error err = { 0 };
    int status = uni__reader_new(&reader, counting->dataset->root->bad.skip, &err);
    while (status == 0 && atomic_load(&counting->status) == 0) {
        int64_t i = atomic_fetch_add(&counting->next, 1);
        if (i >= counting->end)
            break;
        status = uni__dataset_count_block(counting->dataset, reader, i,
                                          &counting->rows[i - counting->begin], &err);
    }
    uni__reader_free(reader);
    pthread_mutex_lock(&counting->lock);
    if (status < 0 && atomic_load(&counting->status) == 0) {
        atomic_store(&counting->status, status);
        counting->err = err;
    }
    counting->running--;
    pthread_cond_signal(&counting->ended);
    pthread_mutex_unlock(&counting->lock);
    return NULL;
}

bool uni__wait_or_ask(pthread_cond_t *condition, pthread_mutex_t *lock, uni__interrupt check)
{
    struct timespec until;
    if (check == NULL) {
        pthread_cond_wait(condition, lock);
        return true;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(condition, lock, &until) != ETIMEDOUT)
        return true;
    pthread_mutex_unlock(lock);
    bool goes_on = check() == 0;
    pthread_mutex_lock(lock);
    return goes_on;
}

/* Waits until all threads have ended. An interrupt makes them stop. */
static void wait_for_counts(struct counting *counting)
{
    uni__interrupt check = atomic_load(&counting->dataset->root->interrupted);
    pthread_mutex_lock(&counting->lock);
    while (counting->running > 0) {
        if (!uni__wait_or_ask(&counting->ended, &counting->lock, check) &&
            atomic_load(&counting->status) == 0)
            atomic_store(&counting->status,
                         uni_error_set(&counting->err, UNI_ECANCELED,
                                       "counting the rows of blocks was interrupted"));
    }
    pthread_mutex_unlock(&counting->lock);
}

int uni__dataset_count_blocks(uni_dataset *dataset, int64_t begin, int64_t end, int64_t *rows,
                              uni_error *err)
{
    pthread_t threads[COUNTING_THREADS];
    int count = 0;
    UNI_TRY(check_blocks(dataset, begin, end, err));
    struct counting counting = { .dataset = dataset, .begin = begin, .end = end, .rows = rows };
    atomic_init(&counting.next, begin);
    pthread_mutex_init(&counting.lock, NULL);
    pthread_cond_init(&counting.ended, NULL);
    while (count < COUNTING_THREADS && count < end - begin &&
           pthread_create(&threads[count], NULL, count_some, &counting) == 0) {
        pthread_mutex_lock(&counting.lock);
        counting.running++;
        pthread_mutex_unlock(&counting.lock);
        count++;
    }
    if (count == 0 && begin < end) { /* no thread could be started: count here */
        counting.running++;
        (void)count_some(&counting);
    }
    wait_for_counts(&counting);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&counting.ended);
    pthread_mutex_destroy(&counting.lock);
    int status = atomic_load(&counting.status);
    if (status < 0 && err != NULL)
        *err = counting.err;
    return status;
}
