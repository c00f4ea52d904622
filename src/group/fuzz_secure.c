/*
 * fuzz_secure.c - what any bytes do to a connection between hosts. See base/fuzz.h.
 *
 * The first byte of the input chooses: to which side it comes, whether frames are sealed, and when.
 * Before the greeting nothing is ever proved by it, and little memory is taken. After a real
 * greeting between both sides the input either comes as it is (and is never a frame), or is packed
 * as frames by the other side and changed on its way: then all frames before the change arrive as
 * they were and none after it.
 */
#include <string.h>

#include "base/fuzz.h"
#include "group/keyring.h"
#include "group/secure.h"

#define SIDE 1
#define SEALED 2
#define AFTER 4
#define CHANGED 8

typedef struct both {
    uni__credentials credentials[2];
    uni__keyring *ring;
    uni__secure sides[2]; /* host, controller */
} both;

static int carry(uni__secure *from, uni__secure *to)
{
    int status = uni__secure_feed(to, from->out.data, from->out.size, NULL);
    uni__text_clear(&from->out);
    return status;
}

static void begin(both *it, bool sealed)
{
    memset(it, 0, sizeof *it);
    uni__credentials *host = &it->credentials[0], *controller = &it->credentials[1];
    FUZZ_PROMISE(uni__credentials_new(controller, NULL) == 0);
    *host = *controller;
    FUZZ_PROMISE(uni__credentials_make_pair(host, NULL) == 0);
    memcpy(host->controller_key, controller->public_key, UNI__KEY_BYTES);
    host->seal = controller->seal = sealed;
    FUZZ_PROMISE(uni__keyring_new(&it->ring, 1, NULL) == 0);
    it->ring->ranks[0].known = true;
    memcpy(it->ring->ranks[0].key, host->public_key, UNI__KEY_BYTES);
    controller->ring = it->ring;
    for (int i = 0; i < 2; i++)
        FUZZ_PROMISE(uni__secure_begin(&it->sides[i], i, &it->credentials[i], 0, NULL) == 0);
}

static void greet(both *it)
{
    uni__secure *host = &it->sides[0], *controller = &it->sides[1];
    FUZZ_PROMISE(carry(controller, host) == 0 && carry(host, controller) == 0 &&
                 carry(controller, host) == 0 && carry(host, controller) == 0);
    FUZZ_PROMISE(uni__secure_is_ready(host) && uni__secure_is_ready(controller));
}

/* Each length byte begins a frame of that many bytes. The one at `which` is changed, counted from
 * the first. */
static void change_frames(uni__secure *from, uni__secure *to, const uint8_t *data, size_t size)
{
    size_t starts[256], frames = 0, changed = 0, place = 0;
    uint8_t bit = 1;
    if (size < 3)
        return;
    place = (size_t)data[0] << 8 | data[1];
    bit = (uint8_t)(1u << (data[2] & 7));
    for (size_t at = 3; at < size && frames < 255;) {
        size_t length = data[at] < size - at - 1 ? data[at] : size - at - 1;
        starts[frames++] = from->out.size;
        FUZZ_PROMISE(uni__secure_pack(from, 1, NULL, 0, data + at + 1, length, NULL) == 0);
        at += 1 + length;
    }
    if (from->out.size == 0)
        return;
    place %= from->out.size;
    from->out.data[place] ^= (char)bit;
    while (changed + 1 < frames && starts[changed + 1] <= place)
        changed++;
    const uint8_t *payload;
    size_t length, taken = 0;
    int type;
    FUZZ_PROMISE(uni__secure_feed(to, from->out.data, from->out.size, NULL) == 0);
    while (uni__secure_next(to, &type, &payload, &length, NULL) == 1)
        taken++;
    FUZZ_PROMISE(taken == changed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    both it;
    const uint8_t *payload;
    size_t length;
    int type, choice = size > 0 ? data[0] : 0;
    data += size > 0;
    size -= size > 0;
    begin(&it, choice & SEALED);
    uni__secure *to = &it.sides[choice & SIDE], *from = &it.sides[!(choice & SIDE)];
    if (choice & AFTER)
        greet(&it);
    if ((choice & AFTER) && (choice & CHANGED)) {
        change_frames(from, to, data, size);
    } else {
        bool stood = uni__secure_is_ready(to);
        int status = uni__secure_feed(to, data, size, NULL);
        FUZZ_PROMISE(stood == uni__secure_is_ready(to));
        FUZZ_PROMISE(stood || status < 0 || to->in.size <= UNI__HELLO_BYTES || !(choice & SIDE));
        FUZZ_PROMISE(status < 0 || uni__secure_next(to, &type, &payload, &length, NULL) != 1);
    }
    for (int i = 0; i < 2; i++)
        uni__secure_end(&it.sides[i]);
    uni__keyring_free(it.ring);
    return 0;
}

/* Two frames after a greeting, one of them changed. */
size_t fuzz_sample(uint8_t *out, size_t room)
{
    static const uint8_t sample[] = {
        SIDE | SEALED | AFTER | CHANGED, 0, 30, 3, 3, 'a', 'b', 'c', 2, 'd', 'e'
    };
    return fuzz_copy(out, room, sample, sizeof sample);
}
