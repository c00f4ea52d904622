/* fuzz_state.c - any bytes are the state of a checkpoint, or rejected with a message. A rank's
 * section that passes its check can be packed into a readable file. See base/fuzz.h. */
#include <stdlib.h>
#include <string.h>
#include "base/fuzz.h"
#include "checkpoint/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni_value *ranks = NULL;
    uni_error err = { 0 };
    int status = uni__state_unpack(&ranks, data, size, &err);
    FUZZ_PROMISE((status == 0) == (ranks != NULL));
    FUZZ_PROMISE(status == 0 || (err.code == status && err.message[0]));
    uni_value_free(ranks);
    if (uni__state_check(data, size, &err) < 0)
        return 0;
    void *bytes = NULL;
    size_t length = 0;
    uni__state_section section = { data, size };
    FUZZ_PROMISE(uni__state_pack(&bytes, &length, &section, 1, &err) == 0);
    /* Duplicate names pass the check and are rejected here. */
    if (bytes && uni__state_unpack(&ranks, bytes, length, NULL) == 0)
        FUZZ_PROMISE(uni_list_size(ranks) == 1);
    uni_value_free(ranks);
    free(bytes);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const uint8_t section[] = "\x82\xa1"
                                     "a\xc4\x03xyz\xa1"
                                     "b\xc4\x00";
    void *bytes = NULL;
    size_t size = 0;
    if (uni__state_pack(&bytes, &size,
                        (uni__state_section[]){ { section, sizeof section - 1 }, { NULL, 0 } }, 2,
                        NULL) < 0)
        return 0;
    size = fuzz_copy(out, room, bytes, size);
    free(bytes);
    return size;
}
