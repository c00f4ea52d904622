/*
 * dataset.c - a dataset as a source of batches for fit: columns are views of the iterator's rows,
 * valid until the next batch is taken. fit's thread only.
 *
 * If the iterator is at the beginning of the wanted epoch, reading continues there. If it has
 * reached its end, it is rewound (validation: the same epoch after every training epoch). Otherwise
 * a new iterator is opened (threads, files). uni__batches_expect announces coming epochs and lets
 * the iterator prefetch across the end of an epoch, so that fit does not wait at the next
 * beginning. Without it, nothing is read that may never be used. Batches are the same either way:
 * the order of an epoch depends only on its number.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/nn_dataset.h>
#include "nn/shared.h"
#include "data/shared.h"
#include "base/clock.h"
#include "nn/model/loop.h"

/* Time spent waiting for data, over batches and their parts: all the time that fit spent here after
 * the batches were created. */
struct stall {
    atomic_int references;
    _Atomic uint64_t ns;
};

struct feed {
    struct stall *stall;
    uni_dataset *dataset; /* selected and cast */
    uni_dataset *settled; /* the same, as it is read */
    bool repeats; /* all epochs are the same, and the iterator is endless */
    uni_data_options options;
    int num_x, num_y;
    bool weighted;
    bool part; /* part of a global batch */
    uni_dataset_iterator *it;
    uint64_t end; /* epochs before this one are expected */
    bool begun; /* a batch of the current epoch was taken, or failed */
    bool over; /* The end of the epoch was reported; the iterator may already be in the next one. */
    const uni_table *table; /* the current batch is `rows` rows of it, starting at `first` */
    int64_t first, rows;
    int num_strings; /* columns of text */
    uni_string *strings[2 * UNI_MODEL_MAX_INPUTS + 1];
};

static void let_go(struct feed *feed)
{
    feed->table = NULL;
    while (feed->num_strings > 0) {
        free(feed->strings[--feed->num_strings]);
        feed->strings[feed->num_strings] = NULL;
    }
}

static void feed_free(void *self)
{
    struct feed *feed = self;
    if (feed == NULL)
        return;
    let_go(feed);
    uni_dataset_iterator_free(feed->it);
    uni_dataset_unref(feed->settled);
    uni_dataset_unref(feed->dataset);
    if (feed->stall != NULL && atomic_fetch_sub(&feed->stall->references, 1) == 1)
        free(feed->stall);
    free(feed);
}

/* True at the beginning of that epoch. */
static bool stands_at(const struct feed *feed, uint64_t epoch)
{
    return feed->it != NULL && !feed->begun && !uni_dataset_iterator_done(feed->it) &&
           (feed->repeats || uni_dataset_iterator_epoch(feed->it) == epoch);
}

/* Goes to the beginning of an epoch; epochs before `end` are then expected. */
static int go_to(struct feed *feed, uint64_t epoch, uint64_t end, uni_error *err)
{
    let_go(feed);
    feed->end = end;
    feed->over = false;
    if (!stands_at(feed, epoch) &&
        !(feed->it != NULL && uni__dataset_iterator_rewind(feed->it, epoch))) {
        uni_data_options options = feed->options;
        uni_dataset_iterator_free(feed->it);
        feed->it = NULL;
        options.first_epoch = epoch;
        options.epochs = feed->repeats ? -1 : 1;
        UNI_TRY(uni_dataset_iterate(&feed->it, feed->settled, &options, err));
    }
    feed->begun = false;
    if (end > epoch &&
        !feed->repeats) /* where it cannot, the next epoch has an iterator of its own */
        (void)uni__dataset_iterator_extend(feed->it, end);
    return 0;
}

static int feed_reset(void *self, uint64_t epoch, uni_error *err)
{
    struct feed *feed = self;
    uint64_t begin = uni__monotonic_ns();
    int status = go_to(feed, epoch, stands_at(feed, epoch) ? feed->end : 0, err);
    atomic_fetch_add(&feed->stall->ns, uni__monotonic_ns() - begin);
    return status;
}

static void feed_expect(void *self, uint64_t first, uint64_t end)
{
    struct feed *feed = self;
    uint64_t begin = uni__monotonic_ns();
    (void)go_to(feed, first, end, NULL); /* reset will try again */
    atomic_fetch_add(&feed->stall->ns, uni__monotonic_ns() - begin);
}

/* A missing floating-point value is NaN, which shows in the loss. Other types would silently hold
 * some value. */
static int check_present(const struct feed *feed, const uni_table_column *column, uni_error *err)
{
    if (column->valid == NULL || feed->rows == 0 ||
        memchr((const char *)uni_array_data(column->valid) + feed->first, 0, (size_t)feed->rows) ==
            NULL)
        return 0;
    return uni_error_set(err, UNI_EFORMAT,
                         "column %s has missing values, which cannot be trained on: fill them "
                         "(SimpleImputer) or leave these rows out (filter)",
                         column->field.name);
}

/* Column `index` of the current batch as fit sees it. */
static int view_column(struct feed *feed, int index, uni_column *out, uni_error *err)
{
    static const _Alignas(64) char nothing[64];
    const uni_table_column *column = uni_table_column_at(feed->table, index);
    int64_t rows = feed->rows;
    if (column->field.kind == UNI_FIELD_NUMBER) {
        UNI_TRY(check_present(feed, column, err));
        uni_column whole = uni_column_array(column->values);
        *out = uni_column_rows(&whole, feed->first, feed->first + rows);
        /* No rows: still a column, with which a rank without data takes its step. */
        if (out->data == NULL)
            out->data = nothing;
        return 0;
    }
    uni_string *strings = calloc((size_t)rows + 1, sizeof *strings);
    if (strings == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a batch of strings");
    const int64_t *offsets = (const int64_t *)uni_array_data(column->offsets) + feed->first;
    const char *bytes = uni_array_data(column->values);
    for (int64_t i = 0; i < rows; i++)
        strings[i] = (uni_string){ .data = bytes != NULL ? bytes + offsets[i] : "",
                                   .size = (size_t)(offsets[i + 1] - offsets[i]) };
    feed->strings[feed->num_strings++] = strings;
    *out = uni_column_strings(rows, strings);
    return 0;
}

static int feed_next(void *self, uni_batch *out, uni_error *err)
{
    struct feed *feed = self;
    let_go(feed);
    if (feed->over)
        return 0;
    if (feed->it == NULL)
        return uni_error_set(err, UNI_ESTATE, "the dataset could not be opened; reset the batches");
    uint64_t begin = uni__monotonic_ns();
    int more =
        uni__dataset_iterator_view_in_epoch(feed->it, &feed->table, &feed->first, &feed->rows, err);
    atomic_fetch_add(&feed->stall->ns, uni__monotonic_ns() - begin);
    feed->over = more == 0;
    feed->begun = more != 0;
    if (more <= 0)
        return more;
    *out = (uni_batch){
        .num_x = feed->num_x, .num_y = feed->num_y, .size = feed->rows, .global_size = feed->rows
    };
    if (feed->part)
        uni__dataset_iterator_place(feed->it, &out->first_sample, &out->global_size);
    for (int i = 0; i < feed->num_x; i++)
        UNI_TRY(view_column(feed, i, &out->x[i], err));
    for (int i = 0; i < feed->num_y; i++)
        UNI_TRY(view_column(feed, feed->num_x + i, &out->y[i], err));
    if (feed->weighted)
        UNI_TRY(view_column(feed, feed->num_x + feed->num_y, &out->weights, err));
    return 1;
}

static int64_t feed_samples(void *self)
{
    const struct feed *feed = self;
    int64_t rows = uni__dataset_known_rows(feed->dataset);
    return feed->options.num_shards > 1 ? -1 : rows;
}

static int64_t feed_length(void *self)
{
    const struct feed *feed = self;
    int64_t rows = feed_samples(self), batch = feed->options.batch_size;
    if (feed->part && feed->options.global_batch_size > 0 &&
        !uni__dataset_is_sharded(feed->dataset)) {
        rows = uni__dataset_known_rows(feed->dataset); /* in the global order */
        batch = feed->options.global_batch_size;
    }
    if (rows < 0 || batch <= 0)
        return -1;
    return feed->options.drop_remainder ? rows / batch : (rows + batch - 1) / batch;
}

static const uni_batches_class feed_class = { .name = "dataset",
                                              .next = feed_next,
                                              .reset = feed_reset,
                                              .length = feed_length,
                                              .samples = feed_samples,
                                              .expect = feed_expect,
                                              .free = feed_free };

/* A stream can only be cut by files: otherwise every worker reads all of it, and the size of a
 * global batch is unknown. */
static int check_cut(const struct feed *feed, int num_shards, bool by_files, uni_error *err)
{
    if (uni__dataset_is_stream(feed->dataset) && !by_files)
        return uni_error_set(err, UNI_EUNSUPPORTED, "a stream is read by every worker");
    if (feed->options.batch_size < num_shards)
        return uni_error_set(err, UNI_EUNSUPPORTED, "a batch of %lld rows for %d workers",
                             (long long)feed->options.batch_size, num_shards);
    return 0;
}

static int cut(struct feed *feed, int shard, int num_shards, bool by_files, uni_error *err)
{
    uni_dataset *files = NULL;
    if (feed->options.num_shards > 1 || uni__dataset_is_sharded(feed->dataset))
        return 0;
    UNI_TRY(check_cut(feed, num_shards, by_files, err));
    feed->part = true;
    feed->options.global_batch_size = feed->options.batch_size;
    feed->options.equal = true;
    feed->options.shard = shard;
    feed->options.num_shards = num_shards;
    if (!by_files)
        return 0;
    UNI_TRY(uni_dataset_shard_files(&files, feed->dataset, shard, num_shards, err));
    uni_dataset_unref(feed->dataset);
    feed->dataset = files;
    return 0;
}

/* Creates batches around a feed, at the beginning of epoch 0. */
static int open_feed(uni_batches **out, struct feed *feed, uni_error *err)
{
    UNI_TRY(uni__dataset_precompute(&feed->settled, feed->dataset, &feed->repeats, err));
    UNI_TRY(go_to(feed, 0, 0, err));
    return uni_batches_new(out, &feed_class, feed, err);
}

int uni__batches_dataset_part(uni_batches **out, const uni_batches *whole, int shard,
                              int num_shards, bool by_files, uni_error *err)
{
    const struct feed *from = uni__batches_self(whole, &feed_class);
    int status = 0;
    *out = NULL;
    if (from == NULL)
        return uni_error_set(err, UNI_EUNSUPPORTED, "these batches are not those of a dataset");
    struct feed *feed = calloc(1, sizeof *feed);
    if (feed == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for batches");
    *feed = (struct feed){ .dataset = uni_dataset_ref(from->dataset),
                           .options = from->options,
                           .num_x = from->num_x,
                           .num_y = from->num_y,
                           .weighted = from->weighted,
                           .part = from->part,
                           .stall = from->stall };
    atomic_fetch_add(&feed->stall->references, 1);
    uint64_t begin = uni__monotonic_ns(); /* the strategies' fit opens parts */
    UNI_TRY_GOTO(cut(feed, shard, num_shards, by_files, err), fail);
    UNI_TRY_GOTO(open_feed(out, feed, err), fail);
    atomic_fetch_add(&feed->stall->ns, uni__monotonic_ns() - begin);
    return 0;
fail:
    feed_free(feed);
    return status;
}

double uni_batches_dataset_wait(const uni_batches *batches)
{
    const struct feed *feed = uni__batches_self(batches, &feed_class);
    return feed != NULL ? (double)atomic_load(&feed->stall->ns) * 1e-9 : 0;
}

/* Casts all float64 columns to float32, which layers expect. */
static int cast_doubles(uni_dataset **dataset, uni_error *err)
{
    const uni_table *schema = NULL;
    UNI_TRY(uni_dataset_schema(&schema, *dataset, err));
    for (int i = 0; i < uni_table_num_columns(schema); i++) {
        const uni_field *field = &uni_table_column_at(schema, i)->field;
        uni_dataset *next = NULL;
        if (field->kind != UNI_FIELD_NUMBER && field->kind != UNI_FIELD_STRING)
            return uni_error_set(err, UNI_EDTYPE,
                                 "column %s is a list or bytes, which fit cannot take",
                                 field->name);
        if (field->kind != UNI_FIELD_NUMBER || field->dtype != UNI_F64)
            continue;
        UNI_TRY(uni_dataset_cast(&next, *dataset, field->name, UNI_F32, err));
        uni_dataset_unref(*dataset);
        *dataset = next;
        UNI_TRY(uni_dataset_schema(&schema, *dataset, err));
    }
    return 0;
}

static int add_names(const char **names, int *count, const char *const *list, const char *what,
                     uni_error *err)
{
    int added = 0;
    for (; list != NULL && list[added] != NULL; added++) {
        if (added == UNI_MODEL_MAX_INPUTS)
            return uni_error_set(err, UNI_EINVAL, "at most %d columns are %s", UNI_MODEL_MAX_INPUTS,
                                 what);
        names[(*count)++] = list[added];
    }
    return added;
}

int uni_batches_dataset(uni_batches **out, uni_dataset *dataset, const uni_dataset_columns *columns,
                        uni_error *err)
{
    const char *names[2 * UNI_MODEL_MAX_INPUTS + 2] = { NULL };
    int count = 0, status = 0;
    *out = NULL;
    if (columns == NULL || columns->x == NULL || columns->x[0] == NULL)
        return uni_error_set(err, UNI_EINVAL, "batches of a dataset need at least one column x");
    struct feed *feed = calloc(1, sizeof *feed);
    if (feed == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for batches");
    feed->stall = calloc(1, sizeof *feed->stall);
    if (feed->stall == NULL) {
        status = uni_error_set(err, UNI_ENOMEM, "no memory for batches");
        goto fail;
    }
    atomic_init(&feed->stall->references, 1);
    UNI_TRY_GOTO(feed->num_x = add_names(names, &count, columns->x, "x", err), fail);
    UNI_TRY_GOTO(feed->num_y = add_names(names, &count, columns->y, "y", err), fail);
    feed->weighted = columns->weights != NULL;
    names[count] = columns->weights;
    feed->options = columns->data;
    feed->options.state = NULL;
    feed->options.batch_size = feed->options.batch_size > 0 ? feed->options.batch_size : 32;
    UNI_TRY_GOTO(uni_dataset_select(&feed->dataset, dataset, names, err), fail);
    UNI_TRY_GOTO(cast_doubles(&feed->dataset, err), fail);
    UNI_TRY_GOTO(open_feed(out, feed, err), fail);
    return 0;
fail:
    feed_free(feed);
    return status;
}
