/*
 * session_dataset.c - a worker's shards of datasets.
 *
 * The session owns the iterators that it gave out, by name. Every report carries where they stand (the key _datasets, a line of JSON), so that a group that
 * begins again from the checkpoint of some iteration goes on with the samples behind that iteration, each once. The controller
 * collects and merges the states of all ranks (datasets.c); they come with the order to begin.
 */
#include <stdlib.h>
#include <string.h>
#include <unisono/data.h>

#include "train/session_internal.h"

struct uni__shard {
    char *name;
    uni_dataset_iterator *iterator; /* or NULL: somebody else iterates and says where it stands: */
    uni_value *state;
    struct uni__shard *next;
};

int uni_session_dataset(uni_session *session, const char *name, uni_dataset **out, uni_error *err)
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

int uni_session_dataset_shard(uni_session *session, const char *name, uni_dataset *dataset,
                              const uni_data_options *options, uni_dataset_iterator **out,
                              uni_error *err)
{
    uni_data_options o = options ? *options : (uni_data_options){ 0 };
    uni_dataset *own = NULL;
    *out = NULL;
    if (!dataset) {
        UNI_TRY(uni_session_dataset(session, name, &own, err));
        dataset = own;
    }
    o.shard = session->rank;
    o.num_shards = session->size;
    struct uni__shard *shard = find_shard(session, name);
    /* The state that the group resumes from is for the first iterator of that name; one that is made again in the same attempt is a new one. */
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

int uni_session_set_dataset_state(uni_session *session, const char *name, const uni_value *state,
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

const uni_value *uni_session_dataset_state(const uni_session *session, const char *name)
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

int uni__session_shard_states(const uni_session *session, char **out, uni_error *err)
{
    *out = NULL;
    if (!session->shards)
        return 0;
    uni_value *states = uni_value_dict();
    int status = states ? 0 : UNI_ENOMEM;
    for (const struct uni__shard *shard = session->shards; shard && status == 0;
         shard = shard->next) {
        uni_value *state = NULL;
        if (shard->iterator)
            status = uni_dataset_iterator_state(shard->iterator, &state, err);
        else if (shard->state && !(state = uni_value_copy(shard->state)))
            status = UNI_ENOMEM;
        if (status == 0 && state)
            status = uni_dict_take(states, shard->name, state);
    }
    size_t length = 0;
    if (status == 0)
        status = uni_json_write(out, &length, states, 0, err);
    uni_value_free(states);
    return status == UNI_ENOMEM ? uni_error_set(err, UNI_ENOMEM, "no memory for a report") : status;
}
