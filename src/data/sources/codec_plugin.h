/*
 * codec_plugin.h - what libunisono and its plug-ins for compressed files agree on. Used by this
 * folder only.
 *
 * libunisono-zlib.so (gzip) and libunisono-zstd.so each have one table. They know nothing of
 * libunisono (no symbol of it is used).
 */
#ifndef UNISONO_DATA_CODEC_PLUGIN_H
#define UNISONO_DATA_CODEC_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#define UNI__CODEC_PLUGIN_VERSION 1
#define UNI__CODEC_PLUGIN_SYMBOL "uni__codec_plugin_get"

typedef struct uni__codec_plugin {
    int version;
    const char *name; /* "gzip", for messages */
    void *(*open)(void); /* NULL: no memory */
    /* Takes from *in and puts to *out what fits, and moves both on. 1: a member (frame) ended right
     * here, 0: it goes on, -1: the bytes are damaged and *why says how. After 1 the next call
     * begins a new member: both formats may have several one after the other. */
    int (*run)(void *state, const uint8_t **in, size_t *in_size, uint8_t **out, size_t *out_size,
               const char **why);
    void (*close)(void *state);
} uni__codec_plugin;

#endif
