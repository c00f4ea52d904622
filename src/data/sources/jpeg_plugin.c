/*
 * jpeg_plugin.c - libunisono-jpeg.so: decodes JPEG images for src/data (image_plugin.h) with
 * TurboJPEG, which returns errors where libjpeg's default handler would exit the process. Corrupt
 * and truncated images are errors, not grey areas. Any thread.
 */
#include <stdbool.h>
#include <stdio.h>
#include <turbojpeg.h>

#include "data/sources/image_plugin.h"

static int failed(tjhandle handle, char *why)
{
    snprintf(why, UNI__IMAGE_WHY_SIZE, "%s",
             handle != NULL ? tjGetErrorStr2(handle) : "no memory for a decoder");
    if (handle != NULL)
        tjDestroy(handle);
    return -1;
}

/* A progressive image needs all its coefficients in memory until its last scan. Its frame header
 * comes before the first scan. */
static size_t needs_of(const uint8_t *bytes, size_t count, const uni__image_size *size)
{
    for (size_t at = 2; at + 4 <= count && bytes[at] == 0xff;) {
        uint8_t marker = bytes[at + 1];
        if (marker == 0xff) { /* fill byte */
            at++;
            continue;
        }
        if (marker == 0xda || marker == 0xc0 || marker == 0xc1)
            return 0;
        if (marker == 0xc2)
            break;
        bool alone = marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
        at += alone ? 2 : 2 + ((size_t)bytes[at + 2] << 8 | bytes[at + 3]);
    }
    return (size_t)size->width * (size_t)size->height * (size_t)size->channels * 2;
}

static int size_of(const uint8_t *bytes, size_t count, uni__image_size *size, char *why)
{
    int subsampling = 0, colours = 0;
    tjhandle handle = tjInitDecompress();
    if (handle == NULL || tjDecompressHeader3(handle, bytes, count, &size->width, &size->height,
                                              &subsampling, &colours) < 0)
        return failed(handle, why);
    tjDestroy(handle);
    if (colours == TJCS_CMYK || colours == TJCS_YCCK) {
        snprintf(why, UNI__IMAGE_WHY_SIZE, "a CMYK image; convert it to RGB first");
        return -1;
    }
    size->channels = colours == TJCS_GRAY ? 1 : 3;
    size->needs = needs_of(bytes, count, size);
    return 0;
}

static int decode(const uint8_t *bytes, size_t count, const uni__image_size *size, uint8_t *out,
                  char *why)
{
    tjhandle handle = tjInitDecompress();
    if (handle == NULL ||
        tjDecompress2(handle, bytes, count, out, size->width, 0, size->height,
                      size->channels == 1 ? TJPF_GRAY : TJPF_RGB, TJFLAG_ACCURATEDCT) < 0)
        return failed(handle, why);
    tjDestroy(handle);
    return 0;
}

const uni__image_plugin *uni__image_plugin_get(void);
__attribute__((visibility("default"))) const uni__image_plugin *uni__image_plugin_get(void)
{
    static const uni__image_plugin plugin = {
        .version = UNI__IMAGE_PLUGIN_VERSION, .name = "JPEG", .size = size_of, .decode = decode
    };
    return &plugin;
}
