/*
 * zstd_plugin.c - libunisono-zstd.so: Zstandard files for src/data (codec_plugin.h). One thread per
 * state.
 */
#include <zstd.h>

#include "data/sources/codec_plugin.h"

/* A frame may ask for a window of gigabytes; the zstd command has the same limit. */
#define MAX_WINDOW_LOG 27

static void *codec_open(void)
{
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (context != NULL)
        ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, MAX_WINDOW_LOG);
    return context;
}

static int codec_run(void *state, const uint8_t **in, size_t *in_size, uint8_t **out,
                     size_t *out_size, const char **why)
{
    ZSTD_inBuffer input = { *in, *in_size, 0 };
    ZSTD_outBuffer output = { *out, *out_size, 0 };
    size_t result = ZSTD_decompressStream(state, &output, &input);
    *in += input.pos;
    *in_size -= input.pos;
    *out += output.pos;
    *out_size -= output.pos;
    if (ZSTD_isError(result)) {
        *why = ZSTD_getErrorName(result);
        return -1;
    }
    return result == 0 ? 1 : 0;
}

static void codec_close(void *state)
{
    ZSTD_freeDCtx(state);
}

const uni__codec_plugin *uni__codec_plugin_get(void);
__attribute__((visibility("default"))) const uni__codec_plugin *uni__codec_plugin_get(void)
{
    static const uni__codec_plugin plugin = { .version = UNI__CODEC_PLUGIN_VERSION,
                                              .name = "Zstandard",
                                              .open = codec_open,
                                              .run = codec_run,
                                              .close = codec_close };
    return &plugin;
}
