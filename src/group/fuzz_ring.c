/*
 * fuzz_ring.c - a worker that writes anything over its shared page: the controller gets frames
 * inside the ring, or an error. The first 16 bytes of the input are head and tail, the rest is laid
 * over the ring from the tail on. See base/fuzz.h.
 */
#include <string.h>

#include "base/fuzz.h"
#include "group/page.h"

/* As large as a real page; only its address matters to the code under test. */
static _Alignas(4096) uint8_t memory[UNI__PAGE_BYTES];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uni__page *page = (uni__page *)memory;
    uint64_t words[2] = { 0, 0 };
    if (size < sizeof words)
        return 0;
    memcpy(words, data, sizeof words);
    data += sizeof words;
    size -= sizeof words;
    atomic_store(&page->head, words[0]);
    atomic_store(&page->tail, words[1]);
    for (size_t i = 0; i < size; i++)
        memory[UNI__RING_OFFSET + (words[1] + i) % UNI__RING_BYTES] = data[i];
    const uint8_t *payload, *ring = memory + UNI__RING_OFFSET;
    size_t length;
    int type, flags;
    for (int i = 0; i < 1000 && uni__ring_peek(page, &payload, &length, &type, &flags, NULL) > 0;
         i++) {
        FUZZ_PROMISE(payload >= ring && payload + length <= ring + UNI__RING_BYTES);
        uni__ring_pop(page);
    }
    return 0;
}

/* Head 32, tail 0, one frame of 16 bytes and one of none. */
size_t fuzz_sample(uint8_t *out, size_t room)
{
    if (room < 48)
        return 0;
    memset(out, 0, 48);
    out[0] = 32;
    out[16] = 16;
    out[20] = 1;
    out[44] = 2;
    return 48;
}
