/*
 * plan.c - tasks from pieces: what a shard reads, in which order. See plan.h; states are in plan_state.c. Called under the iterator's lock.
 */
#include <stdlib.h>
#include "data/layout.h"

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
        if (count == 0) /* nothing of it, but it comes to its end */
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

/* Goes to the next piece: of the state, then of the epochs' own shares. false: there is none. */
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
    plan->unit_left = 0;
    plan->unit_next = plan->options.first > 0 ? plan->options.first
                      : plan->options.ramp    ? plan->options.task
                                              : plan->options.unit;
    return true;
}

/* true when another piece of the same epoch follows. */
static bool epoch_goes_on(const uni__plan *plan)
{
    if (plan->piece + 1 < plan->num_pieces)
        return plan->pieces[plan->piece + 1].epoch == plan->now.epoch;
    return plan->own_at < plan->own_count;
}

/* Rounds that are left of the present piece, the last one perhaps not full. */
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
    if (plan->now.end == INT64_MAX) { /* a stream: one task an epoch, which goes on by itself */
        out->begin = out->unit_begin = plan->now.begin;
        out->last_of_unit = true;
        plan->now.begin = plan->now.end = 0;
        return true;
    }
    if (rounds_left(plan) == 0)
        return false;
    int64_t wanted = options->unit / options->batch > 0 ? options->unit / options->batch : 1;
    int64_t left = plan->now.end - plan->now.begin, full = left / round;
    if (options->ramp && plan->rounds_next < wanted) {
        int64_t first =
            options->least > 0 ? (options->least + options->batch - 1) / options->batch : 1;
        wanted = plan->rounds_next > 0 ? plan->rounds_next : first;
        plan->rounds_next = 2 * wanted;
    }
    if (options->num_shards == 1 && !options->drop_remainder && left <= wanted * round) {
        out->count = out->unit_count = left; /* what is no whole batch goes along */
    } else if (full == 0) { /* the last round: everybody a part of what there is */
        out->count = uni__part(left, options->offset + options->batch, round) -
                     uni__part(left, options->offset, round);
        out->unit_count = left;
    } else {
        int64_t some = full < wanted ? full : wanted;
        out->count = some * options->batch;
        out->unit_count = some * round;
    }
    out->begin = out->unit_begin = plan->now.begin;
    out->last_of_unit = true;
    plan->now.begin += out->unit_count;
    return true;
}

static bool next_of_ranges(uni__plan *plan, uni__task *out)
{
    const uni__plan_options *options = &plan->options;
    if (plan->unit_left == 0) {
        int64_t left = plan->now.end - plan->now.begin;
        if (left == 0)
            return false;
        int64_t wanted = plan->unit_next < options->unit ? plan->unit_next : options->unit;
        plan->unit_count = plan->now.unit > 0 ? plan->now.unit : wanted < left ? wanted : left;
        plan->unit_next = 2 * wanted;
        plan->unit_begin = plan->now.begin;
        plan->unit_left = plan->unit_count;
    }
    int64_t count = options->task < plan->unit_left ? options->task : plan->unit_left;
    *out = (uni__task){ .begin = plan->now.begin,
                        .count = count,
                        .unit_begin = plan->unit_begin,
                        .unit_count = plan->unit_count,
                        .skip = plan->now.skip,
                        .stop = plan->now.stop };
    plan->now.begin += count;
    plan->unit_left -= count;
    out->last_of_unit = plan->unit_left == 0;
    if (out->last_of_unit)
        plan->now.unit = plan->now.skip = plan->now.stop = 0;
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

/* The same within one piece, of which more than `used` rows are there. */
static uni__piece rest_of_piece(const uni__plan_options *options, const uni__piece *piece,
                                int64_t used)
{
    const uni__layout *layout = options->layout;
    uni__piece rest = *piece;
    int64_t fixed = uni__layout_first_unit(layout, piece);
    int64_t next = options->ramp ? options->task : options->unit;
    next = next < options->unit ? next : options->unit;
    if (used < fixed) {
        rest.skip += used;
        return rest;
    }
    rest.begin += rest.unit;
    if (rest.unit > 0)
        next = 2 * next < options->unit ? 2 * next : options->unit;
    rest.unit = rest.skip = rest.stop = 0;
    used -= fixed;
    for (;;) { /* unit by unit, as next_of_ranges makes them */
        int64_t left = rest.end - rest.begin, count = next < left ? next : left;
        int64_t rows = uni__layout_between(layout, rest.begin, rest.begin + count);
        if (used < rows) {
            rest.unit = used > 0 ? count : 0;
            rest.skip = used;
            return rest;
        }
        used -= rows;
        rest.begin += count;
        if (next == options->unit) { /* from here on all are alike */
            int64_t place = uni__layout_place(layout, layout->starts[rest.begin] + used);
            int64_t units = (place - rest.begin) / options->unit;
            used -= uni__layout_between(layout, rest.begin, rest.begin + units * options->unit);
            rest.begin += units * options->unit;
        }
        next = 2 * next < options->unit ? 2 * next : options->unit;
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
    if (!options->any_unit || rows < 1 || (bytes <= TASK_BYTES && ns <= TASK_NS))
        return;
    double over = (double)bytes / TASK_BYTES > (double)ns / TASK_NS ? (double)bytes / TASK_BYTES
                                                                    : (double)ns / TASK_NS;
    int64_t fit = (int64_t)((double)rows / over);
    int64_t least = options->rounds && options->least < options->batch ? options->batch
                    : options->least > 0                               ? options->least
                                                                       : 1;
    fit = fit < least ? least : fit;
    options->unit = fit < options->unit ? fit : options->unit;
    options->task = options->unit < options->task ? options->unit : options->task;
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
    if (task->unit_count < round)
        return task->begin + uni__part(task->unit_count, options->offset, round) + i;
    return task->begin + i / options->batch * round + options->offset + i % options->batch;
}

int64_t uni__plan_position_after(const uni__plan *plan, const uni__task *task, int64_t rows)
{
    const uni__plan_options *options = &plan->options;
    if (rows >= task->count)
        return task->unit_begin + task->unit_count;
    return task->unit_begin + rows / options->batch * options->round +
           (options->num_shards == 1 ? rows % options->batch : 0);
}
