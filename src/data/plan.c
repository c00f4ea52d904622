/*
 * plan.c - tasks from pieces, states from tasks. See plan.h. Called under the iterator's lock; the state functions by its owner.
 */
#include <stdlib.h>
#include <string.h>
#include <unisono/data.h>
#include "data/dataset.h"
#include "data/plan.h"

#define FORMAT_VERSION 1

/* ---- shares ---- */

/* This shard's own part of a whole epoch. */
static uni__piece own_share(const uni__plan_options *options, int64_t epoch)
{
    uni__piece piece = { .epoch = epoch, .end = options->elements };
    if (!options->rounds) {
        piece.begin = uni__share(options->elements, options->shard, options->num_shards);
        piece.end = uni__share(options->elements, options->shard + 1, options->num_shards);
    }
    return piece;
}

static int add_piece(uni__plan *plan, const uni__piece *piece, uni_error *err)
{
    uni__piece *pieces = reallocarray(plan->pieces, (size_t)plan->num_pieces + 1, sizeof *pieces);
    if (pieces == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    plan->pieces = pieces;
    plan->pieces[plan->num_pieces++] = *piece;
    return 0;
}

/* The part [from, to) of a piece that lies at [at, at + size) of what is left of its epoch. A unit that was begun is not cut: it
 * belongs to whom its first element belongs to. */
static int take_part(uni__plan *plan, const uni__piece *piece, int64_t at, int64_t from, int64_t to,
                     uni_error *err)
{
    uni__piece part = *piece;
    int64_t whole = piece->unit > 0 ? piece->unit : 0;
    int64_t begin = from - at, end = to - at, size = piece->end - piece->begin;
    begin = begin < 0 ? 0 : begin;
    end = end > size ? size : end;
    if (begin > 0 && begin < whole)
        begin = whole;
    if (end > 0 && end < whole)
        end = whole;
    if (begin >= end)
        return 0;
    part.begin = piece->begin + begin;
    part.end = piece->begin + end;
    if (begin > 0)
        part.unit = part.skip = 0;
    return add_piece(plan, &part, err);
}

/* ---- reading a state ---- */

static int bad_state(uni_error *err)
{
    return uni_error_set(err, UNI_EFORMAT,
                         "this is not the state of a dataset's iterator (or one of a newer "
                         "version); resume from a state that uni_dataset_iterator_state made");
}

static int read_piece(const uni_value *list, int64_t elements, uni__piece *out, uni_error *err)
{
    int64_t numbers[5];
    if (uni_list_size(list) != 5)
        return bad_state(err);
    for (size_t i = 0; i < 5; i++) {
        numbers[i] = uni_value_as_int(uni_list_get(list, i), -1);
        if (numbers[i] < 0)
            return bad_state(err);
    }
    *out = (uni__piece){ .epoch = numbers[0],
                         .begin = numbers[1],
                         .end = numbers[2],
                         .unit = numbers[3],
                         .skip = numbers[4] };
    if (out->begin > out->end || out->end > elements || out->unit > out->end - out->begin)
        return bad_state(err);
    return 0;
}

/* The pieces of one epoch (from index `first` on; returns where they end) are shared out by their elements. */
static int share_epoch(uni__plan *plan, const uni__piece *all, int count, uni_error *err)
{
    int64_t total = 0, at = 0;
    for (int i = 0; i < count; i++)
        total += all[i].end - all[i].begin;
    int64_t from = uni__share(total, plan->options.shard, plan->options.num_shards);
    int64_t to = uni__share(total, plan->options.shard + 1, plan->options.num_shards);
    for (int i = 0; i < count; i++) {
        UNI_TRY(take_part(plan, &all[i], at, from, to, err));
        at += all[i].end - all[i].begin;
    }
    return 0;
}

static int compare_pieces(const void *a, const void *b)
{
    const uni__piece *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int resume(uni__plan *plan, const uni_value *state, uni_error *err)
{
    const uni__plan_options *options = &plan->options;
    const uni_value *list = uni_dict_get(state, "pieces");
    if (uni_value_type_of(state) != UNI_TYPE_DICT ||
        uni_dict_get_int(state, "version", 0) != FORMAT_VERSION ||
        uni_value_type_of(list) != UNI_TYPE_LIST)
        return bad_state(err);
    if (uni_dict_get_int(state, "elements", -1) != options->elements)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the state was saved over a dataset of %lld elements, this one has "
                             "%lld: the files or the transforms are not the same",
                             (long long)uni_dict_get_int(state, "elements", -1),
                             (long long)options->elements);
    if (uni_dict_get_bool(state, "rounds", uni_dict_get_int(state, "rounds", 0) != 0) !=
        options->rounds)
        return uni_error_set(err, UNI_EMISMATCH,
                             "the state was saved with another order of the same dataset (a filter "
                             "or flat_map was added or removed)");
    int count = (int)uni_list_size(list), status = 0;
    uni__piece *all = calloc((size_t)count + 1, sizeof *all);
    if (all == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    for (int i = 0; i < count; i++)
        UNI_TRY_GOTO(read_piece(uni_list_get(list, (size_t)i), options->elements, &all[i], err),
                     done);
    qsort(all, (size_t)count, sizeof *all, compare_pieces);
    for (int first = 0, next; first < count; first = next) {
        for (next = first; next < count && all[next].epoch == all[first].epoch;)
            next++;
        if (options->rounds)
            UNI_TRY_GOTO(add_piece(plan, &all[first], err), done);
        else
            UNI_TRY_GOTO(share_epoch(plan, all + first, next - first, err), done);
        /* A shard to which nothing was left must still come through the epoch. */
        if (plan->num_pieces == 0 || plan->pieces[plan->num_pieces - 1].epoch != all[first].epoch)
            UNI_TRY_GOTO(add_piece(plan, &(uni__piece){ .epoch = all[first].epoch }, err), done);
    }
    plan->start_epoch = plan->own_epoch = uni_dict_get_int(state, "epoch", 0);
done:
    free(all);
    return status;
}

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
    int status = state != NULL ? resume(plan, state, err) : 0;
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

/* Goes to the next piece: of the state, then one an epoch. false: there is none. */
static bool next_piece(uni__plan *plan)
{
    if (plan->piece + 1 < plan->num_pieces) {
        plan->now = plan->pieces[++plan->piece];
    } else {
        int64_t end = plan->options.end_epoch;
        if ((end >= 0 && plan->own_epoch >= end) || (end < 0 && plan->options.elements == 0))
            return false;
        plan->piece = plan->num_pieces;
        plan->now = own_share(&plan->options, plan->own_epoch++);
    }
    plan->unit_left = 0;
    plan->unit_next = plan->options.ramp ? plan->options.task : plan->options.unit;
    return true;
}

/* true when another piece of the same epoch follows. */
static bool epoch_goes_on(const uni__plan *plan)
{
    return plan->piece + 1 < plan->num_pieces &&
           plan->pieces[plan->piece + 1].epoch == plan->now.epoch;
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
    } else if (full == 0) { /* the last round: everybody an equal part of what there is */
        out->count = uni__share(left, options->shard + 1, options->num_shards) -
                     uni__share(left, options->shard, options->num_shards);
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
                        .skip = plan->now.skip };
    plan->now.begin += count;
    plan->unit_left -= count;
    out->last_of_unit = plan->unit_left == 0;
    if (out->last_of_unit)
        plan->now.unit = plan->now.skip = 0;
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
        return task->begin + uni__share(task->unit_count, options->shard, options->num_shards) + i;
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

/* ---- states ---- */

static int put_piece(uni_value *list, const uni__piece *piece)
{
    const int64_t numbers[5] = { piece->epoch, piece->begin, piece->end, piece->unit, piece->skip };
    uni_value *item = uni_value_list();
    for (int i = 0; i < 5 && item != NULL; i++) {
        if (uni_list_take(item, uni_value_int(numbers[i])) < 0) {
            uni_value_free(item);
            return UNI_ENOMEM;
        }
    }
    return uni_list_take(list, item);
}

static int put_header(uni_value *state, const uni__plan_options *options, int64_t epoch)
{
    UNI_TRY(uni_dict_take(state, "version", uni_value_int(FORMAT_VERSION)));
    UNI_TRY(uni_dict_take(state, "elements", uni_value_int(options->elements)));
    UNI_TRY(uni_dict_take(state, "rounds", uni_value_int(options->rounds)));
    UNI_TRY(uni_dict_take(state, "shards", uni_value_int(options->num_shards)));
    UNI_TRY(uni_dict_take(state, "epoch", uni_value_int(epoch)));
    return uni_dict_take(state, "end", uni_value_int(options->end_epoch));
}

/* What is left of the unit of a task and of its piece. */
static uni__piece rest_of(const uni__plan *plan, const uni__task *task, int64_t used)
{
    uni__piece rest = { .epoch = task->epoch, .end = task->piece_end };
    if (task->end_of_epoch) {
        rest.begin = rest.end;
    } else if (plan->options.rounds) {
        rest.begin = used;
    } else if (used == UNI__WHOLE_UNIT) {
        rest.begin = task->unit_begin + task->unit_count;
    } else {
        rest.begin = task->unit_begin;
        rest.unit = used > 0 ? task->unit_count : 0;
        rest.skip = used;
    }
    return rest;
}

int uni__plan_state(const uni__plan *plan, const uni__task *task, int64_t used, uni_value **out,
                    uni_error *err)
{
    int first = task != NULL ? task->piece + 1 : 0; /* pieces of the old state that nobody began */
    int64_t own =
        task != NULL && task->epoch >= plan->start_epoch ? task->epoch + 1 : plan->start_epoch;
    uni_value *state = uni_value_dict(), *list = uni_value_list();
    *out = NULL;
    int status = UNI_ENOMEM;
    if (state == NULL || list == NULL)
        goto fail;
    if (task != NULL) {
        uni__piece rest = rest_of(plan, task, used);
        if (rest.begin < rest.end)
            UNI_TRY_GOTO(put_piece(list, &rest), fail);
    }
    for (int i = first; i < plan->num_pieces; i++) {
        if (plan->pieces[i].begin < plan->pieces[i].end)
            UNI_TRY_GOTO(put_piece(list, &plan->pieces[i]), fail);
    }
    UNI_TRY_GOTO(put_header(state, &plan->options, own), fail);
    status = uni_dict_take(state, "pieces", list);
    list = NULL;
    if (status < 0)
        goto fail;
    *out = state;
    return 0;
fail:
    uni_value_free(list);
    uni_value_free(state);
    return uni_error_set(err, status, "no memory for the state of a dataset");
}

/* ---- merging ---- */

/* The pieces of one rank, and its own share of the epochs that others have begun before it. */
static int add_rank(uni__plan *all, const uni_value *state, int rank, int64_t last_epoch,
                    uni_error *err)
{
    const uni_value *list = uni_dict_get(state, "pieces");
    for (size_t i = 0; i < uni_list_size(list); i++) {
        uni__piece piece;
        UNI_TRY(read_piece(uni_list_get(list, i), all->options.elements, &piece, err));
        UNI_TRY(add_piece(all, &piece, err));
    }
    all->options.shard = rank;
    for (int64_t epoch = uni_dict_get_int(state, "epoch", 0); epoch < last_epoch; epoch++) {
        uni__piece share = own_share(&all->options, epoch);
        UNI_TRY(add_piece(all, &share, err));
    }
    return 0;
}

/* Rounds: all stand at the same place, but for one that had no part in the last round. */
static const uni_value *furthest(const uni_value *states)
{
    int64_t best_epoch = -1, best = -1;
    const uni_value *found = NULL;
    for (size_t i = 0; i < uni_list_size(states); i++) {
        const uni_value *state = uni_list_get(states, i);
        const uni_value *piece = uni_list_get(uni_dict_get(state, "pieces"), 0);
        int64_t epoch = uni_dict_get_int(state, "epoch", 0);
        int64_t begin = piece != NULL ? uni_value_as_int(uni_list_get(piece, 1), 0) : INT64_MAX;
        if (epoch > best_epoch || (epoch == best_epoch && begin > best)) {
            best_epoch = epoch;
            best = begin;
            found = state;
        }
    }
    return found;
}

int uni_dataset_merge_states(uni_value **out, const uni_value *states, uni_error *err)
{
    *out = NULL;
    int count = (int)uni_list_size(states), status = 0;
    const uni_value *first = uni_list_get(states, 0);
    int64_t last_epoch = 0;
    UNI_TRY(uni__merge_file_states(out, states, err));
    if (*out != NULL)
        return 0;
    for (int i = 0; i < count; i++) {
        const uni_value *state = uni_list_get(states, (size_t)i);
        if (uni_dict_get_int(state, "version", 0) != FORMAT_VERSION ||
            uni_value_type_of(uni_dict_get(state, "pieces")) != UNI_TYPE_LIST)
            return bad_state(err);
        if (uni_dict_get_int(state, "elements", -1) != uni_dict_get_int(first, "elements", -1) ||
            uni_dict_get_int(state, "shards", 0) != count)
            return uni_error_set(err, UNI_EMISMATCH,
                                 "the states of %d ranks are not of one dataset with %d shards",
                                 count, count);
        int64_t epoch = uni_dict_get_int(state, "epoch", 0);
        last_epoch = epoch > last_epoch ? epoch : last_epoch;
    }
    if (count == 0)
        return bad_state(err);
    if (uni_dict_get_int(first, "rounds", 0) != 0) {
        *out = uni_value_copy(furthest(states));
        return *out != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a state");
    }
    uni__plan all = { .options = { .elements = uni_dict_get_int(first, "elements", 0),
                                   .num_shards = count,
                                   .end_epoch = uni_dict_get_int(first, "end", -1) },
                      .start_epoch = last_epoch };
    for (int i = 0; i < count; i++)
        UNI_TRY_GOTO(add_rank(&all, uni_list_get(states, (size_t)i), i, last_epoch, err), done);
    if (all.num_pieces > 0)
        qsort(all.pieces, (size_t)all.num_pieces, sizeof *all.pieces, compare_pieces);
    status = uni__plan_state(&all, NULL, 0, out, err);
done:
    uni__plan_close(&all);
    return status;
}
