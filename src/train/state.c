/*
 * state.c - logs of the ranks' state, and what becomes of it at the start of an attempt (state.h).
 */
#include "train/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/data.h>

#include "base/grow.h"
#include "base/shared.h"
#include "base/log.h"

#define MAX_SHARDS 65536

/* ---- logs ---- */

static void drop_first(uni__state_log *log, int count)
{
    for (int i = 0; i < count; i++) {
        log->bytes -= log->entries[i].size;
        free(log->entries[i].bytes);
    }
    log->count -= count;
    if (log->count > 0)
        memmove(log->entries, log->entries + count, (size_t)log->count * sizeof *log->entries);
}

int uni__state_log_add(uni__state_log *log, int64_t iteration, const void *section, size_t size,
                       uni_error *err)
{
    void *copy = malloc(size);
    uni__state_entry *grown =
        uni__grown(log->entries, (size_t)log->count, &log->capacity, sizeof *grown);
    log->entries = grown ? grown : log->entries;
    if (!copy || !grown) {
        free(copy);
        return uni_error_set(err, UNI_ENOMEM, "no memory for %zu bytes of state", size);
    }
    memcpy(copy, section, size);
    log->entries[log->count++] = (uni__state_entry){ iteration, copy, size };
    log->bytes += size;
    int lost = 0;
    for (size_t bytes = log->bytes; bytes > UNI__STATE_LOG_MAX && lost < log->count - 1; lost++)
        bytes -= log->entries[lost].size;
    if (lost == 0)
        return 0;
    /* Half of them at once: a log that stays full does not move its entries for each report. */
    drop_first(log, lost < log->count / 2 ? log->count / 2 : lost);
    return uni_error_set(err, UNI_ELIMIT, "its state since iteration %lld takes %zu MiB",
                         (long long)log->entries[0].iteration, UNI__STATE_LOG_MAX >> 20);
}

void uni__state_log_passed(uni__state_log *log, int64_t iteration)
{
    int gone = 0;
    while (gone + 1 < log->count && log->entries[gone + 1].iteration <= iteration)
        gone++;
    if (gone > 0)
        drop_first(log, gone);
}

uni__state_section uni__state_log_at(const uni__state_log *log, int64_t iteration)
{
    uni__state_section found = { 0 };
    for (int i = 0; i < log->count && log->entries[i].iteration <= iteration; i++)
        found = (uni__state_section){ log->entries[i].bytes, log->entries[i].size };
    return found;
}

void uni__state_log_clear(uni__state_log *log)
{
    drop_first(log, log->count);
    free(log->entries);
    *log = (uni__state_log){ 0 };
}

/* ---- the start of an attempt ---- */

bool uni__state_is_dataset(const char *name)
{
    return strncmp(name, UNI__STATE_DATASET, sizeof UNI__STATE_DATASET - 1) == 0;
}

/* That rank's state of a dataset, decoded; NULL: it said none. */
static uni_value *state_of(const uni_value *ranks, size_t rank, const char *name)
{
    size_t size = 0;
    uni_value *state = NULL;
    const void *bytes = uni_value_as_bytes(uni_dict_get(uni_list_get(ranks, rank), name), &size);
    if (!bytes || uni__msgpack_read(&state, bytes, size, NULL) < 0)
        return NULL;
    return state;
}

/* The states of one dataset as a list by shard; NULL when one is missing. Where all ranks share
 * one state, `any` speaks for those that said none. */
static uni_value *by_shard(const uni_value *ranks, const char *name, const uni_value *any)
{
    int64_t shards = uni_dict_get_int(any, "shards", 0);
    bool shared = uni_dict_get_int(any, "rounds", 0) != 0;
    uni_value *list = uni_value_list();
    for (int64_t i = 0; list && i < shards && i < MAX_SHARDS; i++) {
        uni_value *state = state_of(ranks, (size_t)i, name);
        if (!state && shared)
            state = uni_value_copy(any);
        if (!state || uni_list_take(list, state) < 0) {
            uni_value_free(list);
            return NULL;
        }
    }
    return list;
}

static void merge_one(uni_value *out, const uni_value *ranks, size_t rank, const char *name)
{
    const char *dataset = name + sizeof UNI__STATE_DATASET - 1;
    uni_value *any = state_of(ranks, rank, name), *merged = NULL;
    uni_value *states = any ? by_shard(ranks, name, any) : NULL;
    uni_error err = { 0 };
    if (!states || uni_dataset_merge_states(&merged, states, &err) < 0 ||
        uni_dict_take(out, dataset, merged) < 0)
        uni__log(UNI_LOG_WARN,
                 "the dataset %s begins its epoch again: not all ranks said with the checkpoint "
                 "where they stood %s",
                 dataset, err.message);
    uni_value_free(states);
    uni_value_free(any);
}

uni_value *uni__state_merge_datasets(const uni_value *ranks)
{
    uni_value *out = uni_value_dict(), *seen = uni_value_dict();
    for (size_t rank = 0; out && seen && rank < uni_list_size(ranks); rank++) {
        const uni_value *section = uni_list_get(ranks, rank);
        for (size_t i = 0; i < uni_dict_size(section); i++) {
            const char *name = uni_dict_key_at(section, i);
            if (!uni__state_is_dataset(name) || uni_dict_get(seen, name))
                continue;
            if (uni_dict_take(seen, name, uni_value_null()) == 0)
                merge_one(out, ranks, rank, name);
        }
    }
    uni_value_free(seen);
    return out;
}

int uni__state_add_to_order(uni_value *order, const uni_value *ranks, const uni_value *data_states,
                            int rank, int size)
{
    const uni_value *section = uni_list_get(ranks, (size_t)rank);
    bool same_size = uni_list_size(ranks) == (size_t)size;
    int status = 0;
    if (data_states)
        status |= uni_dict_take(order, "data_states", uni_value_copy(data_states));
    uni_value *own = section ? uni_value_dict() : NULL;
    for (size_t i = 0; own && i < uni_dict_size(section); i++) {
        const char *name = uni_dict_key_at(section, i);
        if (same_size || !uni__state_is_dataset(name))
            status |= uni_dict_take(own, name, uni_value_copy(uni_dict_value_at(section, i)));
    }
    return section ? status | uni_dict_take(order, "state", own) : status;
}
