/*
 * fuzz_image.c - headers and bodies of JPEG and PNG files, through the plug-ins' own code. Whatever
 * the bytes are, a decoder writes only into its buffer and reports what is wrong. Built twice, once
 * per plug-in.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "data/sources/image_pixels.h"
#include "data/sources/image_plugin.h"

#define MAX_BYTES ((size_t)1 << 22)
#define GUARD 64

const uni__image_plugin *uni__image_plugin_get(void);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uni__image_plugin *plugin = uni__image_plugin_get();
    uni__image_size found = { 0 };
    char why[UNI__IMAGE_WHY_SIZE] = "";
    if (plugin->size(data, size, &found, why) < 0 || found.width < 1 || found.height < 1 ||
        found.width > UNI__IMAGE_MAX_SIDE || found.height > UNI__IMAGE_MAX_SIDE)
        return 0;
    FUZZ_PROMISE(found.channels >= 1 && found.channels <= 4);
    size_t bytes = (size_t)found.width * (size_t)found.height * (size_t)found.channels;
    if (bytes > MAX_BYTES)
        return 0;
    uint8_t *pixels = malloc(bytes + GUARD);
    if (pixels == NULL)
        return 0;
    memset(pixels, 0xa5, bytes + GUARD);
    plugin->decode(data, size, &found, pixels, why);
    for (size_t i = 0; i < GUARD; i++)
        FUZZ_PROMISE(pixels[bytes + i] == 0xa5);
    uint8_t *grey = malloc((size_t)found.width * (size_t)found.height);
    if (grey != NULL)
        uni__pixels_convert(pixels, found.channels, grey, 1,
                            (size_t)found.width * (size_t)found.height);
    free(grey);
    free(pixels);
    return 0;
}

size_t fuzz_sample(uint8_t *out, size_t room)
{
    /* A PNG of one grey pixel. */
    static const uint8_t png[] = { 0x89, 'P', 'N', 'G',  13,   10,   26,   10,   0,    0, 0, 13,
                                   'I',  'H', 'D', 'R',  0,    0,    0,    1,    0,    0, 0, 1,
                                   8,    0,   0,   0,    0,    0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0,
                                   10,   'I', 'D', 'A',  'T',  0x78, 0x9c, 0x63, 0x60, 0, 0, 0,
                                   2,    0,   1,   0x48, 0xaf, 0xa4, 0x71, 0,    0,    0, 0, 'I',
                                   'E',  'N', 'D', 0xae, 0x42, 0x60, 0x82 };
    return fuzz_copy(out, room, png, sizeof png);
}
