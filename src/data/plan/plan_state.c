/*
 * plan_state.c - plan states: writes what is left as a dictionary, reads it back for any number of
 * shards, and merges the states of all ranks. See plan.h. Called by the iterator's owner.
 */
#include <stdlib.h>
#include <unisono/data.h>
#include "data/plan/dataset.h"
#include "data/plan/layout.h"

#define FORMAT_VERSION 1

int uni__plan_add_piece(uni__plan *plan, const uni__piece *piece, uni_error *err)
{
    uni__piece *pieces = reallocarray(plan->pieces, (size_t)plan->num_pieces + 1, sizeof *pieces);
    if (pieces == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    plan->pieces = pieces;
    plan->pieces[plan->num_pieces++] = *piece;
    return 0;
}

/* Adds the part [from, to) of a piece that lies at [at, at + size) of what is left of its epoch. A
 * window that was begun is not cut: it goes to the shard that gets its first element. */
static int take_part(uni__plan *plan, const uni__piece *piece, int64_t at, int64_t from, int64_t to,
                     uni_error *err)
{
    uni__piece part = *piece;
    int64_t whole = piece->window > 0 ? piece->window : 0;
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
        part.window = part.skip = 0;
    return uni__plan_add_piece(plan, &part, err);
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
    int64_t numbers[6] = { 0 };
    size_t size = uni_list_size(list);
    if (size != 5 && size != 6)
        return bad_state(err);
    for (size_t i = 0; i < size; i++) {
        numbers[i] = uni_value_as_int(uni_list_get(list, i), -1);
        if (numbers[i] < 0)
            return bad_state(err);
    }
    *out = (uni__piece){ .epoch = numbers[0],
                         .begin = numbers[1],
                         .end = numbers[2],
                         .window = numbers[3],
                         .skip = numbers[4],
                         .stop = numbers[5] };
    if (out->begin > out->end || out->end > elements || out->window > out->end - out->begin)
        return bad_state(err);
    if (out->stop > 0 && (out->window != out->end - out->begin || out->stop <= out->skip))
        return bad_state(err);
    return 0;
}

/* Shares out the pieces of one epoch by elements. */
static int share_by_elements(uni__plan *plan, const uni__piece *all, int count, uni_error *err)
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

/* Shares them out by rows. */
static int share_by_rows(uni__plan *plan, const uni__piece *all, int count, uni_error *err)
{
    uni__layout *layout = plan->options.layout;
    int64_t total = 0, begin, end;
    uni__piece *made = calloc((size_t)count * 4, sizeof *made);
    if (made == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    uni__layout_epoch(layout, all[0].epoch);
    for (int i = 0; i < count; i++)
        total += uni__layout_rows(layout, &all[i]);
    uni__plan_share_rows(&plan->options, total, &begin, &end);
    int num_made = uni__layout_cut(layout, all, count, begin, end, made), status = 0;
    for (int i = 0; i < num_made && status == 0; i++)
        status = uni__plan_add_piece(plan, &made[i], err);
    free(made);
    return status;
}

static int compare_pieces(const void *a, const void *b)
{
    const uni__piece *x = a, *y = b;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->skip < y->skip ? -1 : x->skip > y->skip;
}

void uni__plan_sort(uni__piece *pieces, int count)
{
    if (count > 0)
        qsort(pieces, (size_t)count, sizeof *pieces, compare_pieces);
}

int uni__plan_resume(uni__plan *plan, const uni_value *state, uni_error *err)
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
    uni__plan_sort(all, count);
    for (int first = 0, next; first < count; first = next) {
        for (next = first; next < count && all[next].epoch == all[first].epoch;)
            next++;
        if (options->rounds)
            UNI_TRY_GOTO(uni__plan_add_piece(plan, &all[first], err), done);
        else if (options->layout != NULL)
            UNI_TRY_GOTO(share_by_rows(plan, all + first, next - first, err), done);
        else
            UNI_TRY_GOTO(share_by_elements(plan, all + first, next - first, err), done);
        /* A shard that gets nothing must still end the epoch. */
        if (plan->num_pieces == 0 || plan->pieces[plan->num_pieces - 1].epoch != all[first].epoch)
            UNI_TRY_GOTO(uni__plan_add_piece(plan, &(uni__piece){ .epoch = all[first].epoch }, err),
                         done);
    }
    plan->start_epoch = plan->own_epoch = uni_dict_get_int(state, "epoch", 0);
done:
    free(all);
    return status;
}

/* ---- states ---- */

static int put_piece(uni_value *list, const uni__piece *piece)
{
    const int64_t numbers[6] = { piece->epoch,  piece->begin, piece->end,
                                 piece->window, piece->skip,  piece->stop };
    uni_value *item = uni_value_list();
    for (int i = 0; i < (piece->stop > 0 ? 6 : 5) && item != NULL; i++) {
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

/* What is left of a task's window and piece. */
static uni__piece rest_of(const uni__plan *plan, const uni__task *task, int64_t used)
{
    uni__piece rest = { .epoch = task->epoch, .end = task->piece_end };
    if (task->end_of_epoch) {
        rest.begin = rest.end;
    } else if (plan->options.rounds) {
        rest.begin = used;
    } else if (used == UNI__WHOLE_WINDOW) {
        rest.begin = task->window_begin + task->window_count;
    } else {
        rest.begin = task->window_begin;
        rest.window = used > 0 || task->stop > 0 ? task->window_count : 0;
        rest.skip = used;
        rest.stop = task->stop;
    }
    return rest;
}

int uni__plan_state_of(const uni__plan_options *options, const uni__piece *pieces, int count,
                       int64_t epoch, uni_value **out, uni_error *err)
{
    uni_value *state = uni_value_dict(), *list = uni_value_list();
    *out = NULL;
    int status = UNI_ENOMEM;
    if (state == NULL || list == NULL)
        goto fail;
    for (int i = 0; i < count; i++) {
        if (pieces[i].begin < pieces[i].end)
            UNI_TRY_GOTO(put_piece(list, &pieces[i]), fail);
    }
    UNI_TRY_GOTO(put_header(state, options, epoch), fail);
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

int uni__plan_state(const uni__plan *plan, const uni__task *task, int64_t used, uni_value **out,
                    uni_error *err)
{
    int first = task != NULL ? task->piece + 1 : 0; /* pieces of the old state not yet begun */
    int64_t own =
        task != NULL && task->epoch >= plan->start_epoch ? task->epoch + 1 : plan->start_epoch;
    int count = 0;
    uni__piece *pieces = calloc((size_t)plan->num_pieces + 1, sizeof *pieces);
    *out = NULL;
    if (pieces == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the state of a dataset");
    if (task != NULL)
        pieces[count++] = rest_of(plan, task, used);
    for (int i = first; i < plan->num_pieces; i++)
        pieces[count++] = plan->pieces[i];
    int status = uni__plan_state_of(&plan->options, pieces, count, own, out, err);
    free(pieces);
    return status;
}

/* ---- merging ---- */

/* Adds the pieces of one rank, and its own share of the epochs that other ranks have already
 * begun. */
static int add_rank(uni__plan *all, const uni_value *state, int rank, int64_t last_epoch,
                    uni_error *err)
{
    const uni_value *list = uni_dict_get(state, "pieces");
    for (size_t i = 0; i < uni_list_size(list); i++) {
        uni__piece piece;
        UNI_TRY(read_piece(uni_list_get(list, i), all->options.elements, &piece, err));
        UNI_TRY(uni__plan_add_piece(all, &piece, err));
    }
    all->options.shard = rank;
    for (int64_t epoch = uni_dict_get_int(state, "epoch", 0); epoch < last_epoch; epoch++) {
        uni__piece share[4]; /* by elements: one piece */
        (void)uni__plan_own_share(&all->options, epoch, share);
        UNI_TRY(uni__plan_add_piece(all, share, err));
    }
    return 0;
}

/* Finds the state that is furthest ahead. With `all`, each state speaks for all ranks and says how
 * many batches were taken. Otherwise these are rounds: all ranks are at the same position, except
 * for one that had no part in the last round. */
static const uni_value *furthest(const uni_value *states, bool all)
{
    int64_t best_epoch = -1, best = -1;
    const uni_value *found = NULL;
    for (size_t i = 0; i < uni_list_size(states); i++) {
        const uni_value *state = uni_list_get(states, i);
        const uni_value *piece = uni_list_get(uni_dict_get(state, "pieces"), 0);
        int64_t epoch = uni_dict_get_int(state, "epoch", 0);
        int64_t at = piece != NULL ? uni_value_as_int(uni_list_get(piece, 1), 0) : INT64_MAX;
        if (all) {
            epoch = piece != NULL ? uni_value_as_int(uni_list_get(piece, 0), 0) : epoch;
            at = uni_dict_get_int(state, "taken", 0);
        }
        if (epoch > best_epoch || (epoch == best_epoch && at > best)) {
            best_epoch = epoch;
            best = at;
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
    bool all = uni_dict_get_int(first, "all", 0) != 0;
    if (all || uni_dict_get_int(first, "rounds", 0) != 0) {
        *out = uni_value_copy(furthest(states, all));
        return *out != NULL ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory for a state");
    }
    uni__plan whole = { .options = { .elements = uni_dict_get_int(first, "elements", 0),
                                     .num_shards = count,
                                     .end_epoch = uni_dict_get_int(first, "end", -1) },
                        .start_epoch = last_epoch };
    for (int i = 0; i < count; i++)
        UNI_TRY_GOTO(add_rank(&whole, uni_list_get(states, (size_t)i), i, last_epoch, err), done);
    uni__plan_sort(whole.pieces, whole.num_pieces);
    status = uni__plan_state(&whole, NULL, 0, out, err);
done:
    uni__plan_close(&whole);
    return status;
}
