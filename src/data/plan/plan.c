/*
 * plan.c - turns pieces into tasks: what a shard reads, and in which order. See plan.h;
 * plan_state.c has the states. Called with the iterator's lock held.
 */
#include <stdlib.h>
#include "data/plan/layout.h"

/* ---- shares ---- */

void uni__plan_share_rows(const uni__plan_options *options, int64_t rows, int64_t *begin,
                          int64_t *end)
{
    int64_t full = rows / options->round, rest = rows % options->round;
    int64_t behind = options->offset + options->batch;
    *begin = full * options->offset + uni__part(rest, options->offset, options->round);
    *end = full * behind + uni__part(rest, behind, options->round);
}

int uni__plan_own_share(const uni__plan_options *options, int64_t epoch, uni__piece *out)
{
    uni__piece whole = { .epoch = epoch, .end = options->elements };
    int count = 1;
    *out = whole;
    if (options->rounds)
        return 1;
    if (options->layout != NULL) {
        int64_t begin, end;
        uni__layout_epoch(options->layout, epoch);
        uni__plan_share_rows(options, options->layout->starts[options->elements], &begin, &end);
        count = uni__layout_cut(options->layout, &whole, 1, begin, end, out);
        if (count == 0) /* an empty share still ends its epoch */
            out[count++] = (uni__piece){ .epoch = epoch };
        return count;
    }
    out->begin = uni__share(options->elements, options->shard, options->num_shards);
    out->end = uni__share(options->elements, options->shard + 1, options->num_shards);
    return 1;
}

/* ---- opening ---- */

int uni__plan_open(uni__plan *plan, const uni__plan_options *options, const uni_value *state,
                   uni_error *err)
{
    *plan = (uni__plan){ .options = *options,
                         .start_epoch = options->first_epoch,
                         .own_epoch = options->first_epoch,
                         .piece = -1 };
    if (options->round == 0) {
        plan->options.round = options->batch * options->num_shards;
        plan->options.offset = options->batch * options->shard;
    }
    int status = state != NULL ? uni__plan_resume(plan, state, err) : 0;
    if (status < 0)
        uni__plan_close(plan);
    return status;
}

void uni__plan_close(uni__plan *plan)
{
    free(plan->pieces);
    plan->pieces = NULL;
    plan->num_pieces = 0;
}

/* ---- tasks ---- */

/* Advances to the next piece: first those of the state, then the shard's own share of each epoch.
 * Returns false at the end. */
static bool next_piece(uni__plan *plan)
{
    if (plan->piece + 1 < plan->num_pieces) {
        plan->now = plan->pieces[++plan->piece];
    } else if (plan->own_at < plan->own_count) {
        plan->now = plan->own[plan->own_at++];
    } else {
        int64_t end = plan->options.end_epoch;
        if ((end >= 0 && plan->own_epoch >= end) || (end < 0 && plan->options.elements == 0))
            return false;
        plan->piece = plan->num_pieces;
        plan->own_count = uni__plan_own_share(&plan->options, plan->own_epoch++, plan->own);
        plan->now = plan->own[0];
        plan->own_at = 1;
    }
    plan->window_left = 0;
    plan->window_next = plan->options.first > 0 ? plan->options.first
                        : plan->options.ramp    ? plan->options.task
                                                : plan->options.window;
    return true;
}

/* True if another piece of the same epoch follows. */
static bool epoch_goes_on(const uni__plan *plan)
{
    if (plan->piece + 1 < plan->num_pieces)
        return plan->pieces[plan->piece + 1].epoch == plan->now.epoch;
    return plan->own_at < plan->own_count;
}

/* Rounds left in the current piece, including a partial last one. */
static int64_t rounds_left(const uni__plan *plan)
{
    int64_t round = plan->options.round;
    int64_t left = plan->now.end - plan->now.begin;
    return left / round + (!plan->options.drop_remainder && left % round > 0);
}

static bool next_of_rounds(uni__plan *plan, uni__task *out)
{
    const uni__plan_options *options = &plan->options;
    int64_t round = options->round;
    if (plan->now.end == INT64_MAX) { /* a stream: one task per epoch, which continues by itself */
        out->begin = out->window_begin = plan->now.begin;
        out->last_of_window = true;
        plan->now.begin = plan->now.end = 0;
        return true;
    }
    if (rounds_left(plan) == 0)
        return false;
    int64_t wanted = options->window / options->batch > 0 ? options->window / options->batch : 1;
    int64_t left = plan->now.end - plan->now.begin, full = left / round;
    if (options->ramp && plan->rounds_next < wanted) {
        int64_t first =
            options->least > 0 ? (options->least + options->batch - 1) / options->batch : 1;
        wanted = plan->rounds_next > 0 ? plan->rounds_next : first;
        plan->rounds_next = 2 * wanted;
    }
    if (options->num_shards == 1 && !options->drop_remainder && left <= wanted * round) {
        out->count = out->window_count = left; /* includes the partial batch */
    } else if (full == 0) { /* the last, partial round: each shard gets a part */
        out->count = uni__part(left, options->offset + options->batch, round) -
                     uni__part(left, options->offset, round);
        out->window_count = left;
    } else {
        int64_t some = full < wanted ? full : wanted;
        out->count = some * options->batch;
        out->window_count = some * round;
    }
    out->begin = out->window_begin = plan->now.begin;
    out->last_of_window = true;
    plan->now.begin += out->window_count;
    return true;
}

static bool next_of_ranges(uni__plan *plan, uni__task *out)
{
    const uni__plan_options *options = &plan->options;
    if (plan->window_left == 0) {
        int64_t left = plan->now.end - plan->now.begin;
        if (left == 0)
            return false;
        int64_t wanted = plan->window_next < options->window ? plan->window_next : options->window;
        plan->window_count = plan->now.window > 0 ? plan->now.window
                             : wanted < left      ? wanted
                                                  : left;
        plan->window_next = 2 * wanted;
        plan->window_begin = plan->now.begin;
        plan->window_left = plan->window_count;
    }
    int64_t count = options->task < plan->window_left ? options->task : plan->window_left;
    *out = (uni__task){ .begin = plan->now.begin,
                        .count = count,
                        .window_begin = plan->window_begin,
                        .window_count = plan->window_count,
                        .skip = plan->now.skip,
                        .stop = plan->now.stop };
    plan->now.begin += count;
    plan->window_left -= count;
    out->last_of_window = plan->window_left == 0;
    if (out->last_of_window)
        plan->now.window = plan->now.skip = plan->now.stop = 0;
    return true;
}

bool uni__plan_next(uni__plan *plan, uni__task *out)
{
    for (;;) {
        if (plan->over)
            return false;
        if (!plan->in_epoch) {
            if (!next_piece(plan)) {
                plan->over = true;
                return false;
            }
            plan->in_epoch = true;
        }
        *out = (uni__task){ 0 };
        int64_t end = plan->now.end;
        bool some = plan->options.rounds ? next_of_rounds(plan, out) : next_of_ranges(plan, out);
        out->epoch = plan->now.epoch;
        out->piece = plan->piece;
        out->piece_end = end;
        if (some)
            return true;
        if (epoch_goes_on(plan)) {
            (void)next_piece(plan);
            continue;
        }
        plan->in_epoch = false;
        out->end_of_epoch = true;
        return true;
    }
}

bool uni__plan_epoch(uni__plan *plan, const uni__piece **pieces, int *count)
{
    if (!next_piece(plan))
        return false;
    bool own = plan->piece == plan->num_pieces;
    *pieces = own ? plan->own : plan->pieces + plan->piece;
    for (*count = 1; epoch_goes_on(plan); ++*count)
        (void)next_piece(plan);
    return true;
}

/* The rest of one piece that has more than `used` rows. */
static uni__piece rest_of_piece(const uni__plan_options *options, const uni__piece *piece,
                                int64_t used)
{
    const uni__layout *layout = options->layout;
    uni__piece rest = *piece;
    int64_t fixed = uni__layout_first_window(layout, piece);
    int64_t next = options->ramp ? options->task : options->window;
    next = next < options->window ? next : options->window;
    if (used < fixed) {
        rest.skip += used;
        return rest;
    }
    rest.begin += rest.window;
    if (rest.window > 0)
        next = 2 * next < options->window ? 2 * next : options->window;
    rest.window = rest.skip = rest.stop = 0;
    used -= fixed;
    for (;;) { /* window by window, as next_of_ranges makes them */
        int64_t left = rest.end - rest.begin, count = next < left ? next : left;
        int64_t rows = uni__layout_between(layout, rest.begin, rest.begin + count);
        if (used < rows) {
            rest.window = used > 0 ? count : 0;
            rest.skip = used;
            return rest;
        }
        used -= rows;
        rest.begin += count;
        if (next == options->window) { /* all following windows have the same size */
            int64_t place = uni__layout_place(layout, layout->starts[rest.begin] + used);
            int64_t windows = (place - rest.begin) / options->window;
            used -= uni__layout_between(layout, rest.begin, rest.begin + windows * options->window);
            rest.begin += windows * options->window;
        }
        next = 2 * next < options->window ? 2 * next : options->window;
    }
}

int uni__plan_rest(const uni__plan_options *options, const uni__piece *pieces, int count,
                   int64_t used, uni__piece *out)
{
    int left = 0;
    for (int i = 0; i < count; i++) {
        int64_t rows = uni__layout_rows(options->layout, &pieces[i]);
        if (used < rows)
            out[left++] = used > 0 ? rest_of_piece(options, &pieces[i], used) : pieces[i];
        used = used < rows ? 0 : used - rows;
    }
    return left;
}

void uni__plan_fit(uni__plan *plan, int64_t rows, size_t bytes, uint64_t ns)
{
    enum { TASK_BYTES = 4 << 20, TASK_NS = 200000000 };
    uni__plan_options *options = &plan->options;
    if (!options->any_window || rows < 1 || (bytes <= TASK_BYTES && ns <= TASK_NS))
        return;
    double over = (double)bytes / TASK_BYTES > (double)ns / TASK_NS ? (double)bytes / TASK_BYTES
                                                                    : (double)ns / TASK_NS;
    int64_t fit = (int64_t)((double)rows / over);
    int64_t least = options->rounds && options->least < options->batch ? options->batch
                    : options->least > 0                               ? options->least
                                                                       : 1;
    fit = fit < least ? least : fit;
    options->window = fit < options->window ? fit : options->window;
    options->task = options->window < options->task ? options->window : options->task;
}

void uni__plan_extend(uni__plan *plan, int64_t end_epoch)
{
    plan->options.end_epoch = end_epoch;
    plan->over = false;
}

int64_t uni__plan_position(const uni__plan *plan, const uni__task *task, int64_t i)
{
    const uni__plan_options *options = &plan->options;
    int64_t round = options->round;
    if (task->window_count < round)
        return task->begin + uni__part(task->window_count, options->offset, round) + i;
    return task->begin + i / options->batch * round + options->offset + i % options->batch;
}

int64_t uni__plan_position_after(const uni__plan *plan, const uni__task *task, int64_t rows)
{
    const uni__plan_options *options = &plan->options;
    if (rows >= task->count)
        return task->window_begin + task->window_count;
    return task->window_begin + rows / options->batch * options->round +
           (options->num_shards == 1 ? rows % options->batch : 0);
}
