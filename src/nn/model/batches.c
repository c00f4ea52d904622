/*
 * batches.c - sources of batches: any source behind a small vtable, and the one for arrays in
 * memory.
 *
 * Arrays in their own order are not copied: a batch is a view of them. With shuffling, the samples
 * of a batch are gathered into a buffer. The order is a shuffle keyed by seed and epoch, computed
 * only as far as needed (about 10 ns per sample; uni__random_permute needs no memory but takes 400
 * ns). With prefetch, a thread gathers into a ring of buffers; the consumer holds one of them until
 * it asks for the next. Threads: one consumer at a time; the prefetch thread belongs to the source
 * and blocks all signals.
 */
#include "nn/layer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/random.h"
#include "nn/model/loop.h"
#include "base/options.h"

struct uni_batches {
    const uni_batches_class *class_;
    void *self;
};

int uni_batches_new(uni_batches **out, const uni_batches_class *class_, void *self, uni_error *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a source of batches");
    **out = (uni_batches){ class_, self };
    return 0;
}

void *uni__batches_self(const uni_batches *batches, const uni_batches_class *class_)
{
    return batches != NULL && batches->class_ == class_ ? batches->self : NULL;
}

void uni_batches_free(uni_batches *batches)
{
    if (batches == NULL)
        return;
    if (batches->class_->free != NULL)
        batches->class_->free(batches->self);
    free(batches);
}

int uni_batches_next(uni_batch *out, uni_batches *batches, uni_error *err)
{
    return batches->class_->next(batches->self, out, err);
}

int uni_batches_reset(uni_batches *batches, uint64_t epoch, uni_error *err)
{
    return batches->class_->reset != NULL ? batches->class_->reset(batches->self, epoch, err) : 0;
}

void uni__batches_expect(uni_batches *batches, uint64_t first, uint64_t end)
{
    if (batches->class_->expect != NULL)
        batches->class_->expect(batches->self, first, end);
}

int64_t uni__batches_length(const uni_batches *batches)
{
    return batches->class_->length != NULL ? batches->class_->length(batches->self) : -1;
}

int64_t uni__batches_samples(const uni_batches *batches)
{
    return batches->class_->samples != NULL ? batches->class_->samples(batches->self) : -1;
}

/* ---- arrays ---- */

#define MAX_COLUMNS (2 * UNI_MODEL_MAX_INPUTS + 1)

struct slot {
    uni_batch batch;
    char *memory[MAX_COLUMNS];
};

struct columns {
    int num_x, num_y;
    uni_column columns[MAX_COLUMNS]; /* x, y, weights */
    int64_t samples, batch_size;
    uni_columns_options options;
    uint64_t epoch;
    int64_t position; /* of the next sample */
    uint32_t *order; /* with shuffle: the samples; [0, position) is this epoch's order so far */
    int num_slots;
    struct slot *slots;
    /* Prefetch only; everything below is guarded by the lock. */
    bool threaded, ending, made_last;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t generation; /* counts resets: results of earlier generations are dropped */
    int made, held, first; /* slots ready; the consumer may hold the first */
};

static int num_columns(const struct columns *self)
{
    return self->num_x + self->num_y + (self->columns[self->num_x + self->num_y].dtype != 0);
}

static void set_column(const struct columns *self, uni_batch *batch, int index, const void *data,
                       int64_t size)
{
    uni_column *column = index < self->num_x                 ? &batch->x[index]
                         : index < self->num_x + self->num_y ? &batch->y[index - self->num_x]
                                                             : &batch->weights;
    *column = self->columns[index];
    column->shape[0] = size;
    column->data = data;
}

static void gather(const struct columns *self, struct slot *slot, int index, int64_t begin,
                   int64_t size)
{
    const uni_column *column = &self->columns[index];
    size_t bytes = uni_column_sample_bytes(column);
    char *to = slot->memory[index];
    for (int64_t i = 0; i < size; i++, to += bytes)
        memcpy(to, (const char *)column->data + self->order[begin + i] * bytes, bytes);
}

/* Restores the arrays' own order, at the first sample. */
static void rewind_order(struct columns *self, uint64_t epoch)
{
    self->epoch = epoch;
    self->position = 0;
    for (int64_t i = 0; self->order != NULL && i < self->samples; i++)
        self->order[i] = (uint32_t)i;
}

/* Fisher-Yates, only as far as the batch needs: position i gets one of the remaining samples. The
 * numbers are Philox's with the key (seed, epoch) and the position as counter. */
static void extend_order(struct columns *self, int64_t begin, int64_t size)
{
    uint64_t key = uni__random_u64(self->options.seed, 0x6f72646572u, self->epoch); /* "order" */
    const uint32_t words[2] = { (uint32_t)key, (uint32_t)(key >> 32) };
    uint32_t random[4];
    for (int64_t i = begin; i < begin + size; i++) {
        if (i % 4 == 0 || i == begin)
            uni__philox((const uint32_t[4]){ (uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), 0, 0 },
                        words, random);
        int64_t other =
            i + (int64_t)((uint64_t)random[i % 4] * (uint64_t)(self->samples - i) >> 32);
        uint32_t swap = self->order[other];
        self->order[other] = self->order[i];
        self->order[i] = swap;
    }
}

/* Makes the next batch in the slot; returns false at the end of the epoch. */
static bool produce(struct columns *self, struct slot *slot)
{
    int64_t left = self->samples - self->position;
    if (left < (self->options.drop_remainder ? self->batch_size : 1)) {
        if (!self->options.repeat ||
            self->samples < (self->options.drop_remainder ? self->batch_size : 1))
            return false;
        rewind_order(self, self->epoch + 1);
        left = self->samples;
    }
    int64_t size = left < self->batch_size ? left : self->batch_size, begin = self->position;
    slot->batch = (uni_batch){
        .num_x = self->num_x, .num_y = self->num_y, .size = size, .global_size = size
    };
    if (self->options.shuffle)
        extend_order(self, begin, size);
    for (int i = 0; i < num_columns(self); i++) {
        const uni_column *column = &self->columns[i];
        if (self->options.shuffle)
            gather(self, slot, i, begin, size);
        const char *view =
            (const char *)column->data + (size_t)begin * uni_column_sample_bytes(column);
        set_column(self, &slot->batch, i, self->options.shuffle ? slot->memory[i] : view, size);
    }
    self->position += size;
    return true;
}

/* ---- the prefetch thread ---- */

static void *prefetch(void *argument)
{
    struct columns *self = argument;
    pthread_mutex_lock(&self->lock);
    while (!self->ending) {
        if (self->made_last || self->made == self->num_slots) {
            pthread_cond_wait(&self->changed, &self->lock);
            continue;
        }
        struct slot *slot = &self->slots[(self->first + self->made) % self->num_slots];
        uint64_t generation = self->generation;
        pthread_mutex_unlock(&self->lock);
        /* Position and epoch belong to this thread until the next reset. */
        bool more = produce(self, slot);
        pthread_mutex_lock(&self->lock);
        if (generation != self->generation)
            continue;
        self->made += more;
        self->made_last = !more;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

static int next_prefetched(struct columns *self, uni_batch *out)
{
    pthread_mutex_lock(&self->lock);
    if (self->held) { /* the consumer is done with its slot */
        self->first = (self->first + 1) % self->num_slots;
        self->made--;
        self->held = 0;
        pthread_cond_broadcast(&self->changed);
    }
    while (self->made == 0 && !self->made_last)
        pthread_cond_wait(&self->changed, &self->lock);
    bool some = self->made > 0;
    if (some) {
        *out = self->slots[self->first].batch;
        self->held = 1;
    }
    pthread_mutex_unlock(&self->lock);
    return some;
}

static int start_thread(struct columns *self, uni_error *err)
{
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->made_last = true; /* nothing to do before the first reset */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&self->thread, NULL, prefetch, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    self->threaded = code == 0;
    return code == 0 ? 0 : uni_error_set_errno(err, code, "cannot start the prefetch thread");
}

/* ---- the vtable ---- */

static int columns_next(void *context, uni_batch *out, uni_error *err)
{
    struct columns *self = context;
    if (self->threaded)
        return next_prefetched(self, out);
    if (!produce(self, &self->slots[0]))
        return 0;
    *out = self->slots[0].batch;
    return 1;
}

static int columns_reset(void *context, uint64_t epoch, uni_error *err)
{
    struct columns *self = context;
    if (!self->threaded) {
        rewind_order(self, epoch);
        return 0;
    }
    /* The thread may be gathering: it must finish that batch before the position can change. */
    pthread_mutex_lock(&self->lock);
    self->ending = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    pthread_join(self->thread, NULL);
    self->ending = self->made_last = false;
    self->generation++;
    self->made = self->held = self->first = 0;
    rewind_order(self, epoch);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&self->thread, NULL, prefetch, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    self->threaded = code == 0; /* without a thread, continues without prefetch */
    return 0;
}

static int64_t columns_length(void *context)
{
    const struct columns *self = context;
    if (self->options.repeat)
        return -1;
    return self->options.drop_remainder
               ? self->samples / self->batch_size
               : self->samples / self->batch_size + (self->samples % self->batch_size != 0);
}

static int64_t columns_samples(void *context)
{
    const struct columns *self = context;
    if (self->options.repeat)
        return -1;
    return self->options.drop_remainder ? self->samples / self->batch_size * self->batch_size
                                        : self->samples;
}

static void columns_free(void *context)
{
    struct columns *self = context;
    if (self->threaded) {
        pthread_mutex_lock(&self->lock);
        self->ending = true;
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
        pthread_join(self->thread, NULL);
        pthread_mutex_destroy(&self->lock);
        pthread_cond_destroy(&self->changed);
    }
    for (int i = 0; self->slots != NULL && i < self->num_slots; i++) {
        for (int j = 0; j < MAX_COLUMNS; j++)
            free(self->slots[i].memory[j]);
    }
    free(self->slots);
    free(self->order);
    free(self);
}

static const uni_batches_class columns_class = { .name = "columns",
                                                 .next = columns_next,
                                                 .reset = columns_reset,
                                                 .length = columns_length,
                                                 .samples = columns_samples,
                                                 .free = columns_free };

/* ---- checks ---- */

static int check_column(const uni_column *column, const char *what, int index, int64_t samples,
                        uni_error *err)
{
    char text[UNI__SHAPE_TEXT_SIZE];
    if (column->dtype == 0 || column->ndim < 1)
        return uni_error_set(err, UNI_ESHAPE,
                             "%s %d has no samples axis (or more than %d dimensions, or an "
                             "unknown dtype)",
                             what, index, UNI_TENSOR_MAX_DIMS);
    for (int i = 0; i < column->ndim; i++)
        if (column->shape[i] < 0)
            return uni_error_set(err, UNI_ESHAPE, "%s %d: dimension %d cannot be %lld", what, index,
                                 i, (long long)column->shape[i]);
    if (column->shape[0] != samples)
        return uni_error_set(
            err, UNI_ESHAPE,
            "%s %d has the shape %s, but x 0 has %lld samples: all must have as many", what, index,
            uni__shape_text(text, column->ndim, column->shape), (long long)samples);
    if (column->data == NULL && samples > 0 && uni_column_sample_bytes(column) > 0)
        return uni_error_set(err, UNI_EINVAL, "%s %d has no data", what, index);
    return 0;
}

static int fill(struct columns *self, const uni_column *x, const uni_column *y,
                const uni_column *weights, uni_error *err)
{
    for (int i = 0; i < self->num_x; i++)
        self->columns[i] = x[i];
    for (int i = 0; i < self->num_y; i++)
        self->columns[self->num_x + i] = y[i];
    if (weights != NULL)
        self->columns[self->num_x + self->num_y] = *weights;
    self->samples = x[0].ndim > 0 ? x[0].shape[0] : 0;
    for (int i = 0; i < self->num_x; i++)
        UNI_TRY(check_column(&x[i], "x", i, self->samples, err));
    for (int i = 0; i < self->num_y; i++)
        UNI_TRY(check_column(&y[i], "y", i, self->samples, err));
    if (weights != NULL && weights->dtype != 0)
        UNI_TRY(check_column(weights, "sample_weight", 0, self->samples, err));
    if (self->options.shuffle && self->samples > UINT32_MAX)
        return uni_error_set(err, UNI_ELIMIT,
                             "arrays of more than %u samples cannot be shuffled; use a dataset",
                             UINT32_MAX);
    if (self->options.shuffle &&
        (self->order = malloc((size_t)self->samples * sizeof *self->order + 1)) == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the order of %lld samples",
                             (long long)self->samples);
    self->num_slots = self->options.prefetch > 0 ? self->options.prefetch + 1 : 1;
    self->slots = calloc((size_t)self->num_slots, sizeof *self->slots);
    if (self->slots == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %d batches", self->num_slots);
    int64_t most = self->batch_size < self->samples ? self->batch_size : self->samples;
    for (int i = 0; i < self->num_slots && self->options.shuffle; i++) {
        struct slot *slot = &self->slots[i];
        bool complete = true;
        for (int j = 0; j < num_columns(self); j++) {
            size_t size = uni_column_sample_bytes(&self->columns[j]) * (size_t)most;
            complete =
                (slot->memory[j] = aligned_alloc(64, (size + 64) / 64 * 64)) != NULL && complete;
        }
        if (!complete)
            return uni_error_set(err, UNI_ENOMEM, "no memory for a batch of %lld samples",
                                 (long long)most);
    }
    return 0;
}

int uni_batches_columns(uni_batches **out, int num_x, const uni_column *x, int num_y,
                        const uni_column *y, const uni_column *weights,
                        const uni_columns_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_columns_options, options, prefetch, err);
    uni_columns_options o = *options;
    if (num_x < 1 || num_x > UNI_MODEL_MAX_INPUTS || num_y < 0 || num_y > UNI_MODEL_MAX_INPUTS)
        return uni_error_set(err, UNI_EINVAL,
                             "batches have 1 to %d inputs and up to %d targets, got %d and %d",
                             UNI_MODEL_MAX_INPUTS, UNI_MODEL_MAX_INPUTS, num_x, num_y);
    if (o.batch_size < 0 || o.prefetch < 0)
        return uni_error_set(err, UNI_EINVAL,
                             "batch_size and prefetch must not be negative, got %lld and %d",
                             (long long)o.batch_size, o.prefetch);
    struct columns *self = calloc(1, sizeof *self);
    if (self == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for batches");
    self->num_x = num_x;
    self->num_y = num_y;
    self->options = o;
    self->batch_size = o.batch_size > 0 ? o.batch_size : 32;
    int status = 0;
    UNI_TRY_GOTO(fill(self, x, y, weights, err), fail);
    if (o.prefetch > 0)
        UNI_TRY_GOTO(start_thread(self, err), fail);
    UNI_TRY_GOTO(uni_batches_new(out, &columns_class, self, err), fail);
    UNI_TRY_GOTO(columns_reset(self, 0, err), fail);
    return 0;
fail:
    columns_free(self);
    free(*out);
    *out = NULL;
    return status;
}
