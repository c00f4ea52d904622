/*
 * session_dataset.c - a worker's shards of datasets.
 *
 * The session owns the iterators that it gave out, by name. Where they stand is a part of the
 * rank's state (session_state.c), so that a group that begins again from the checkpoint of some
 * iteration goes on with the samples behind that iteration, each once. The controller merges the
 * states of all ranks (state.c); they come with the order to begin.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/data.h>

#include "train/shared.h"
#include "base/shared.h"
#include "train/session_internal.h"
#include "train/state.h"
#include "base/options.h"

struct uni__shard {
    char *name;
    uni_dataset_iterator *iterator; /* or NULL: the caller iterates and says where it stands: */
    uni_value *state;
    struct uni__shard *next;
};

int uni_session_dataset(uni_dataset **out, uni_session *session, const char *name, uni_error *err)
{
    *out = NULL;
    const uni_value *config = uni_dict_get(session->datasets, name);
    if (!config)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "the run was given no dataset \"%s\" (uni_run_options.datasets)",
                             name);
    int status = uni_dataset_from_config(out, config, err);
    return status < 0 ? (uni_error_prefix(err, "dataset %s", name), status) : 0;
}

static struct uni__shard *find_shard(uni_session *session, const char *name)
{
    struct uni__shard *shard = session->shards;
    while (shard && strcmp(shard->name, name) != 0)
        shard = shard->next;
    return shard;
}

static struct uni__shard *add_shard(uni_session *session, const char *name)
{
    struct uni__shard *shard = calloc(1, sizeof *shard);
    if (!shard || !(shard->name = strdup(name))) {
        free(shard);
        return NULL;
    }
    shard->next = session->shards;
    session->shards = shard;
    return shard;
}

int uni_session_dataset_shard(uni_dataset_iterator **out, uni_session *session, const char *name,
                              uni_dataset *dataset, const uni_data_options *options, uni_error *err)
{
    *out = NULL;
    UNI__OPTIONS(uni_data_options, options, state, err);
    uni_data_options o = *options;
    uni_dataset *own = NULL;
    if (!dataset) {
        UNI_TRY(uni_session_dataset(&own, session, name, err));
        dataset = own;
    }
    o.shard = session->rank;
    o.num_shards = session->size;
    struct uni__shard *shard = find_shard(session, name);
    /* The state that the group resumes from is for the first iterator of that name; one that is
     * made again in the same attempt is a new one. */
    if (!shard && !o.state)
        o.state = uni_dict_get(session->data_states, name);
    uni_dataset_iterator *iterator = NULL;
    int status = uni_dataset_iterate(&iterator, dataset, &o, err);
    uni_dataset_unref(own);
    if (status < 0)
        return uni_error_prefix(err, "dataset %s", name);
    if (!shard && !(shard = add_shard(session, name))) {
        uni_dataset_iterator_free(iterator);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset's shard");
    }
    uni_dataset_iterator_free(shard->iterator);
    uni_value_free(shard->state);
    shard->state = NULL;
    shard->iterator = *out = iterator;
    return 0;
}

int uni__session_set_dataset_state(uni_session *session, const char *name, const uni_value *state,
                                   uni_error *err)
{
    struct uni__shard *shard = find_shard(session, name);
    uni_value *copy = state ? uni_value_copy(state) : NULL;
    if ((state && !copy) || (!shard && !(shard = add_shard(session, name)))) {
        uni_value_free(copy);
        return uni_error_set(err, UNI_ENOMEM, "no memory for a dataset's state");
    }
    uni_dataset_iterator_free(shard->iterator);
    shard->iterator = NULL;
    uni_value_free(shard->state);
    shard->state = copy;
    return 0;
}

const uni_value *uni__session_dataset_state(const uni_session *session, const char *name)
{
    return uni_dict_get(session->data_states, name);
}

void uni__session_drop_shards(uni_session *session)
{
    while (session->shards) {
        struct uni__shard *shard = session->shards;
        session->shards = shard->next;
        uni_dataset_iterator_free(shard->iterator);
        uni_value_free(shard->state);
        free(shard->name);
        free(shard);
    }
}

/* Adds one shard's position, unless only shared ones are wanted and it is not. */
static int note_shard(uni_session *session, const struct uni__shard *shard, bool only_shared,
                      uni_error *err)
{
    uni_value *state = NULL;
    char *name = NULL;
    void *bytes = NULL;
    size_t size = 0;
    if (shard->iterator)
        UNI_TRY(uni_dataset_iterator_state(&state, shard->iterator, err));
    const uni_value *found = shard->iterator ? state : shard->state;
    int status = 0;
    if (!session->state)
        session->state = uni_value_dict();
    if (asprintf(&name, UNI__STATE_DATASET "%s", shard->name) < 0) {
        name = NULL;
        status = uni_error_set(err, UNI_ENOMEM, "no memory for a dataset's state");
    } else if (!found && !only_shared) {
        uni_dict_remove(session->state, name);
    } else if (found && (!only_shared || uni_dict_get_int(found, "rounds", 0) != 0)) {
        status = uni__msgpack_write(&bytes, &size, found, err);
        if (status == 0 && uni_dict_take(session->state, name, uni_value_bytes(bytes, size)) < 0)
            status = uni_error_set(err, UNI_ENOMEM, "no memory for a dataset's state");
    }
    free(name);
    free(bytes);
    uni_value_free(state);
    return status;
}

int uni__session_note_shards(uni_session *session, bool only_shared, uni_error *err)
{
    for (const struct uni__shard *shard = session->shards; shard; shard = shard->next)
        UNI_TRY(note_shard(session, shard, only_shared, err));
    return 0;
}
