/*
 * session_state.c - the worker's half of the state channel: what this rank keeps from one attempt
 * to the next, by name.
 *
 * The session has one dictionary {name: bytes}: what the train function set, and under
 * "dataset/NAME" where its shards stood at its last report. The order to begin fills it from the
 * checkpoint that the attempt begins with. A report carries it as a section (checkpoint/state.h)
 * when it differs from the one that was said last, because each rank's state belongs to the
 * checkpoint of an iteration, whichever rank hands that checkpoint in.
 *
 * A checkpoint that stands alone (save_checkpoint) belongs to no report: rank 0 says its state with
 * it. Positions that only hold together with those of the other ranks stay as of the last report,
 * which all of them have in common.
 */
#include <stdlib.h>
#include <string.h>
#include <unisono/data.h>
#include <unisono/experimental/session_state.h>

#include "checkpoint/state.h"
#include "train/session_internal.h"
#include "train/state.h"

#define NAME_MAX_BYTES 200

static int no_memory(uni_error *err)
{
    return uni_error_set(err, UNI_ENOMEM, "no memory for a rank's state");
}

int uni_session_state_set(uni_session *session, const char *name, const void *bytes, size_t size,
                          uni_error *err)
{
    size_t length = strlen(name);
    if (length == 0 || length > NAME_MAX_BYTES || uni__state_is_dataset(name))
        return uni_error_set(err, UNI_EINVAL,
                             "the name of a state must have 1 to %d bytes and not begin with "
                             "\"" UNI__STATE_DATASET "\": %s",
                             NAME_MAX_BYTES, name);
    if (size > UNI__STATE_SECTION_MAX)
        return uni_error_set(err, UNI_ELIMIT,
                             "the state %s has %zu bytes, and at most %zu are kept: put large data "
                             "into the checkpoint",
                             name, size, UNI__STATE_SECTION_MAX);
    if (!session->state && !(session->state = uni_value_dict()))
        return no_memory(err);
    session->state_changed = true;
    if (!bytes) {
        uni_dict_remove(session->state, name);
        return 0;
    }
    return uni_dict_take(session->state, name, uni_value_bytes(bytes, size)) < 0 ? no_memory(err)
                                                                                 : 0;
}

const void *uni_session_state_get(const uni_session *session, const char *name, size_t *size)
{
    size_t ignored;
    return uni_value_as_bytes(uni_dict_get(session->state, name), size ? size : &ignored);
}

int uni__session_begin_state(uni_session *session, const uni_value *order)
{
    const uni_value *state = uni_dict_get(order, "state");
    const uni_value *data_states = uni_dict_get(order, "data_states");
    uni_value_free(session->state);
    uni_value_free(session->data_states);
    session->state = state ? uni_value_copy(state) : NULL;
    session->data_states = data_states ? uni_value_copy(data_states) : NULL;
    session->state_changed = session->state_inherited = state != NULL;
    session->said_state.size = 0;
    return (state && !session->state) || (data_states && !session->data_states) ? UNI_ENOMEM : 0;
}

void uni__session_free_state(uni_session *session)
{
    uni_value_free(session->state);
    uni_value_free(session->data_states);
    uni__packer_free(&session->new_state);
    uni__packer_free(&session->said_state);
}

/* Positions of the attempt before, of datasets that this rank has not opened again: ranks that
 * have may have got other parts since. */
static void drop_inherited(uni_session *session)
{
    for (size_t i = uni_dict_size(session->state); i-- > 0;)
        if (uni__state_is_dataset(uni_dict_key_at(session->state, i)))
            uni_dict_remove(session->state, uni_dict_key_at(session->state, i));
    session->state_inherited = false;
}

static int pack_state(const uni_session *session, uni__packer *packer, uni_error *err)
{
    packer->size = 0;
    packer->overflow = false;
    if (session->state)
        UNI_TRY(uni__pack_value(packer, session->state, err));
    else
        uni__pack_map(packer, 0);
    if (packer->size > UNI__STATE_SECTION_MAX)
        return uni_error_set(err, UNI_ELIMIT,
                             "the state of this rank has %zu bytes, and at most %zu are kept: put "
                             "large data into the checkpoint",
                             packer->size, UNI__STATE_SECTION_MAX);
    return packer->overflow ? no_memory(err) : 0;
}

int uni__session_state_section(uni_session *session, const void **out, size_t *size, uni_error *err)
{
    *out = NULL;
    *size = 0;
    if (!session->shards && !session->state_changed)
        return 0;
    if (session->state_inherited)
        drop_inherited(session);
    UNI_TRY(uni__session_note_shards(session, false, err));
    UNI_TRY(pack_state(session, &session->new_state, err));
    if (session->new_state.size == session->said_state.size &&
        memcmp(session->new_state.data, session->said_state.data, session->new_state.size) == 0) {
        session->state_changed = false;
        return 0;
    }
    *out = session->new_state.data;
    *size = session->new_state.size;
    return 0;
}

void uni__session_state_said(uni_session *session)
{
    uni__packer said = session->new_state;
    session->new_state = session->said_state;
    session->said_state = said;
    session->state_changed = false;
}

int uni__session_pack_own_state(uni_session *session, bool of_report, uni__packer *packer,
                                uni_error *err)
{
    if (!of_report)
        UNI_TRY(uni__session_note_shards(session, true, err));
    return pack_state(session, packer, err);
}
