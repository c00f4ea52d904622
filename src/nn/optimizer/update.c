/*
 * update.c - the one place that sums gradients and updates weights (nn/step.h).
 *
 * A slice is processed in pieces: the sum of a piece is still in the cache when the optimizer reads
 * it. Replicas of fit, replicas of custom loops, ranks on shared pages, ranks of several hosts and
 * parameter servers differ in their parts and slices, and in how they synchronize; the processing
 * of a piece is the same for all.
 *
 * Clipping that needs a norm becomes a factor, one for all or one per parameter, that is applied
 * with the scale of the update. begin reads the whole sum for it, or is given the sums of squares
 * that the owners of slices have added up. Nothing is allocated after the first step.
 */
#include <math.h>
#include <string.h>

#include "nn/shared.h"
#include "tensor/shared.h"
#include "base/slice.h"
#include "nn/optimizer/optimizer.h"
#include "nn/step.h"
#include "tensor/update.h"

/* Weights from which on a second thread is worth its barrier. */
#define WORTH_THREADS ((size_t)16384)

bool uni__optimizer_clips_by_norm(const uni_optimizer *optimizer)
{
    return optimizer->clip_norm != 0 || optimizer->global_clip_norm != 0;
}

size_t uni__optimizer_num_squares(const uni_optimizer *optimizer)
{
    return optimizer->global_clip_norm != 0 ? 1
           : optimizer->clip_norm != 0      ? optimizer->num_parameters
                                            : 0;
}

static uni__span common(uni__span a, uni__span b)
{
    uni__span both = { a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end };
    return both.begin < both.end ? both : (uni__span){ 0, 0 };
}

static uni__span span_of(const uni_parameter *parameter)
{
    const uni_parameter_info *info = uni_parameter_info_of(parameter);
    return info->is_frozen ? (uni__span){ 0, 0 }
                           : (uni__span){ info->offset, info->offset + info->size };
}

/* Of the sum of the parts, piece by piece in the cache. */
static double squares_of(const uni__update *update, uni__span span)
{
    float piece[UNI__UPDATE_PIECE];
    double squares = 0;
    for (size_t at = span.begin; at < span.end; at += UNI__UPDATE_PIECE) {
        size_t left = span.end - at, count = left < UNI__UPDATE_PIECE ? left : UNI__UPDATE_PIECE;
        uni__sum_buffers(piece, update->parts, update->num_parts, at, count);
        squares += uni__sum_squares(piece, count);
    }
    return squares;
}

void uni__update_squares(const uni__update *update, uni__span slice, double *squares)
{
    const uni_optimizer *optimizer = update->optimizer;
    bool each = optimizer->clip_norm != 0;
    for (size_t i = 0; i < optimizer->num_parameters; i++)
        squares[each ? i : 0] +=
            squares_of(update, common(slice, span_of(uni_parameters_at(optimizer->store, i))));
}

/* Of the sum, or of what begin was given. */
static double squares_in(const uni__update *update, size_t index, uni__span span)
{
    return update->squares
               ? update->squares[index]
               : uni__sum_squares(uni_gradients_data(update->gradients, NULL) + span.begin,
                                  span.end - span.begin);
}

/* Computes factors that bring each norm to the limit; the gradients themselves do not change. */
static void find_clip_factors(const uni__update *update)
{
    uni_optimizer *optimizer = update->optimizer;
    size_t terms = update->squares ? 1 : optimizer->num_spans;
    if (optimizer->global_clip_norm != 0) {
        double sum = 0;
        for (size_t i = 0; i < terms; i++)
            sum += squares_in(update, i, optimizer->spans[i]);
        double norm = sqrt(sum) * fabs((double)optimizer->scale);
        if (norm > optimizer->global_clip_norm)
            optimizer->scale *= (float)(optimizer->global_clip_norm / norm);
    }
    for (size_t i = 0; optimizer->clip_norm != 0 && i < optimizer->num_parameters; i++) {
        uni__span span = span_of(uni_parameters_at(optimizer->store, i));
        double norm = sqrt(squares_in(update, i, span)) * fabs((double)optimizer->scale);
        optimizer->clip_factors[i] =
            norm > optimizer->clip_norm ? (float)(optimizer->clip_norm / norm) : 1.0f;
    }
}

static int begin(const uni__update *update, float scale, uni_error *err)
{
    uni_optimizer *optimizer = update->optimizer;
    uni_error failure = { 0 };
    UNI_TRY(uni__optimizer_build(optimizer, uni__gradients_store(update->gradients), err));
    double rate = uni_optimizer_learning_rate(optimizer, &failure);
    if (isnan(rate))
        return uni_error_set(err, failure.code, "%s", failure.message);
    optimizer->iterations++;
    double step = (double)optimizer->iterations;
    optimizer->rate = (float)rate;
    optimizer->decay = (float)(rate * optimizer->weight_decay);
    /* Keras casts the betas to float32 before the power (and nowhere else): 1 - 0.999f is 1.3e-5
     * less than 0.001. */
    double beta_1 = (float)optimizer->beta_1, beta_2 = (float)optimizer->beta_2;
    optimizer->adam_alpha = (float)(rate * sqrt(1 - pow(beta_2, step)) / (1 - pow(beta_1, step)));
    optimizer->scale = scale;
    optimizer->num_spans =
        uni__gradients_trainable(update->gradients, optimizer->spans, optimizer->max_spans);
    find_clip_factors(update);
    return 0;
}

static float scale_for(double samples)
{
    return samples > 0 ? (float)(1 / samples) : 1;
}

int uni__update_begin(const uni__update *update, double samples, uni_error *err)
{
    return begin(update, scale_for(samples), err);
}

void uni__update_commit(const uni__update *update)
{
    update->optimizer->num_spans = 0; /* a stray slice changes nothing */
}

void uni__update_abandon(const uni__update *update)
{
    update->optimizer->num_spans = 0;
    update->optimizer->iterations--;
}

/* ---- slices ---- */

void uni__update_sum(const uni__update *update, uni__span slice)
{
    float *flat = uni_gradients_data(update->gradients, NULL);
    if (update->num_parts > 0 && slice.begin < slice.end)
        uni__sum_buffers(flat + slice.begin, update->parts, update->num_parts, slice.begin,
                         slice.end - slice.begin);
}

static void apply(const uni__update *update, uni__span span, float *gradients, float scale)
{
    const uni_optimizer *optimizer = update->optimizer;
    float *slots[UNI__OPTIMIZER_MAX_SLOTS];
    float *weights = uni_parameters_weights(optimizer->store, NULL) + span.begin;
    size_t count = span.end - span.begin;
    for (int role = 0; role < UNI__OPTIMIZER_MAX_SLOTS; role++)
        slots[role] = optimizer->slots[role] != NULL ? optimizer->slots[role] + span.begin : NULL;
    if (optimizer->clip_value != 0) {
        uni__clip_in_place(gradients, count, scale, (float)optimizer->clip_value);
        scale = 1;
    }
    optimizer->class_->update(optimizer, weights, slots, gradients, count, scale);
}

/* ---- pieces ---- */

/* A slice on its way. The pieces of a step are numbered, alike for every process that walks the
 * slice. */
typedef struct walk {
    const uni__update *update;
    uint64_t next;
} walk;

/* Old values of the piece, weights first, then the slots that there are; or back from there. */
static void copy_old(const uni__update *update, uni__span span, bool back)
{
    const uni_optimizer *optimizer = update->optimizer;
    size_t bytes = (span.end - span.begin) * sizeof(float);
    float *at = update->journal->old;
    for (int role = -1; role < UNI__OPTIMIZER_MAX_SLOTS; role++) {
        float *from =
            role < 0 ? uni_parameters_weights(optimizer->store, NULL) : optimizer->slots[role];
        if (from == NULL)
            continue;
        if (back)
            memcpy(from + span.begin, at, bytes);
        else
            memcpy(at, from + span.begin, bytes);
        at += UNI__JOURNAL_PIECE;
    }
}

/* The process may be killed between any two stores, and another one then reads what is there: each
 * mark is made after what it stands for, and before what it guards against. */
static void mark(_Atomic uint64_t *word, uint64_t value)
{
    atomic_thread_fence(memory_order_acq_rel);
    atomic_store_explicit(word, value, memory_order_relaxed);
    atomic_thread_fence(memory_order_acq_rel);
}

/* A new step begins with no piece done. A step that the journal knows already is one whose owner
 * died in it. */
static void open_journal(const uni__update *update)
{
    uni__update_journal *journal = update->journal;
    uint64_t step = (uint64_t)update->optimizer->iterations;
    if (atomic_load_explicit(&journal->step, memory_order_acquire) == step)
        return;
    mark(&journal->step, 0);
    mark(&journal->saved, 0);
    mark(&journal->done, 0);
    mark(&journal->step, step);
}

/* false: the piece was done before its owner died. */
static bool begin_piece(const uni__update *update, uni__span span, uint64_t number)
{
    uni__update_journal *journal = update->journal;
    if (journal == NULL)
        return true;
    if (number < atomic_load_explicit(&journal->done, memory_order_relaxed))
        return false;
    if (atomic_load_explicit(&journal->saved, memory_order_relaxed) == number + 1) {
        copy_old(update, span, true); /* its owner died in the middle of it */
        return true;
    }
    copy_old(update, span, false);
    mark(&journal->saved, number + 1);
    return true;
}

static void update_piece(walk *at, uni__span span, float scale)
{
    const uni__update *update = at->update;
    float sum[UNI__UPDATE_PIECE];
    float *gradients = uni_gradients_data(update->gradients, NULL) + span.begin;
    uint64_t number = at->next++;
    if (!begin_piece(update, span, number))
        return;
    if (update->num_parts > 0) {
        uni__sum_buffers(sum, update->parts, update->num_parts, span.begin, span.end - span.begin);
        gradients = sum;
    }
    apply(update, span, gradients, scale);
    if (update->journal != NULL)
        mark(&update->journal->done, number + 1);
}

static void update_span(walk *at, uni__span span, float scale)
{
    size_t each = at->update->journal != NULL ? UNI__JOURNAL_PIECE
                  : at->update->num_parts > 0 ? UNI__UPDATE_PIECE
                                              : span.end - span.begin;
    for (size_t begin = span.begin; begin < span.end; begin += each)
        update_piece(at, (uni__span){ begin, begin + each < span.end ? begin + each : span.end },
                     scale);
}

/* With clip_norm each parameter has a scale of its own. */
static void update_parameters(walk *at, uni__span slice)
{
    const uni_optimizer *optimizer = at->update->optimizer;
    for (size_t i = 0; i < optimizer->num_parameters && optimizer->num_spans > 0; i++) {
        uni__span span = common(slice, span_of(uni_parameters_at(optimizer->store, i)));
        if (span.begin < span.end)
            update_span(at, span, optimizer->scale * optimizer->clip_factors[i]);
    }
}

void uni__update_slice(const uni__update *update, uni__span slice)
{
    const uni_optimizer *optimizer = update->optimizer;
    walk at = { .update = update };
    if (update->journal != NULL)
        open_journal(update);
    if (optimizer->clip_norm != 0) {
        update_parameters(&at, slice);
        return;
    }
    for (size_t i = 0; i < optimizer->num_spans; i++)
        update_span(&at, common(slice, optimizer->spans[i]), optimizer->scale);
}

int uni__update_factored(const uni__update *update, uni_tape *tape, const uni__factored *what,
                         const uni__factors *all, int count, int index, double samples,
                         uni_error *err)
{
    uni__descent descent;
    if (!uni__optimizer_descent(update->optimizer, scale_for(samples), &descent))
        return uni_error_set(err, UNI_ESTATE, "the optimizer %s cannot descend by factors",
                             uni__optimizer_name(update->optimizer));
    return uni__tape_descend(tape, what, all, count, index, &descent, err);
}

/* ---- threads ---- */

/* Slices begin on cache lines, so that two threads never write to one. */
static uni__span slice_of(const uni__update *update, int index, int count)
{
    uni__span slice;
    size_t size = 0;
    uni_gradients_data(update->gradients, &size);
    uni__slice_of(size, 16, index, count, &slice.begin, &slice.end);
    return slice;
}

typedef struct slices {
    const uni__update *update;
    int count;
} slices;

static void apply_slice(void *context, int index)
{
    const slices *all = context;
    uni__update_slice(all->update, slice_of(all->update, index, all->count));
}

static void sum_slice(void *context, int index)
{
    const slices *all = context;
    uni__update_sum(all->update, slice_of(all->update, index, all->count));
}

static int update_alone(const uni__update *update, float scale, uni__helpers *helpers,
                        uni_error *err)
{
    size_t size = 0;
    uni__update alone = *update;
    uni_gradients_data(update->gradients, &size);
    slices all = { update, size < WORTH_THREADS ? 1 : uni__helpers_threads(helpers) };
    if (uni__optimizer_clips_by_norm(update->optimizer)) {
        uni__helpers_run(helpers, all.count, sum_slice, &all);
        alone.num_parts = 0;
    }
    UNI_TRY(begin(&alone, scale, err));
    all.update = &alone;
    uni__helpers_run(helpers, all.count, apply_slice, &all);
    uni__update_commit(&alone);
    return 0;
}

int uni__update_alone(const uni__update *update, double samples, uni__helpers *helpers,
                      uni_error *err)
{
    return update_alone(update, scale_for(samples), helpers, err);
}

/* Outside of fit an optimizer has helpers of its own. */
static int prepare_helpers(uni_optimizer *optimizer, int threads, uni_error *err)
{
    if (threads < 1)
        threads = 1;
    if (optimizer->helpers != NULL && uni__helpers_threads(optimizer->helpers) == threads)
        return 0;
    uni__helpers_free(optimizer->helpers);
    return uni__helpers_new(&optimizer->helpers, threads, err);
}

int uni_optimizer_apply(uni_optimizer *optimizer, uni_gradients *gradients, float scale,
                        int threads, uni_error *err)
{
    uni__update update = { .optimizer = optimizer, .gradients = gradients };
    UNI_TRY(prepare_helpers(optimizer, threads, err));
    return update_alone(&update, scale != 0 ? scale : 1, optimizer->helpers, err);
}

/* Member 0 begins before it comes to the meeting, so that one meeting is enough. */
static int begin_on_team(const uni__update *update, uni__team *team, int member, double samples,
                         uni_error *err)
{
    if (member == 0)
        UNI_TRY(uni__update_begin(update, samples, err));
    int status = uni__team_meet(team, member, err);
    /* Exact, because no slice was touched. */
    if (status < 0 && member == 0)
        uni__update_abandon(update);
    return status;
}

/* Computes the whole sum first: for a norm, or for other processes. */
static int sum_on_team(const uni__update *update, uni__team *team, int member, int members,
                       double samples, uni__exchange exchange, void *context, uni_error *err)
{
    uni__update_sum(update, slice_of(update, member, members));
    UNI_TRY(uni__team_meet(team, member, err));
    if (member == 0 && exchange != NULL)
        UNI_TRY(exchange(context, update->gradients, err));
    return begin_on_team(update, team, member, samples, err);
}

int uni__update_on_team(const uni__update *update, uni__team *team, int member, int members,
                        bool whole, double samples, uni__exchange exchange, void *context,
                        uni_error *err)
{
    if (whole) {
        UNI_TRY(uni__team_meet(team, member, err)); /* all parts are complete */
        UNI_TRY(sum_on_team(update, team, member, members, samples, exchange, context, err));
    } else {
        UNI_TRY(begin_on_team(update, team, member, samples, err));
    }
    uni__update mine = *update;
    if (whole)
        mine.num_parts = 0;
    uni__update_slice(&mine, slice_of(update, member, members));
    return 0;
}
