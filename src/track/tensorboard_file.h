/*
 * tensorboard_file.h - the records of an event file, for this module and for nn's TensorBoard
 * callback.
 *
 * A record, little-endian: u64 length, u32 masked CRC32C of these 8 bytes, the data, u32 masked
 * CRC32C of the data. Masked: rotated right by 15 and 0xa282ead8 added.
 */
#ifndef UNISONO_TRACK_TENSORBOARD_FILE_H
#define UNISONO_TRACK_TENSORBOARD_FILE_H

#include "base/compiler.h"
#include "base/text.h"
#include "tensorboard.pb-c.h"

typedef struct uni__event_file {
    int fd;
    char *path;
    uint64_t size; /* bytes in the file */
    uni__text pending;
} uni__event_file;

/* Creates DIR/events.out.tfevents.SECONDS.HOST.PID.N with its first event; never an existing
 * file. */
UNI__SHARED int uni__event_file_open(uni__event_file *file, const char *dir,
                                     uni_error *err) UNI_MUST_USE;
/* Continues in DIR/NAME, truncated to `size` bytes. After a failure it must still be closed with
 * uni__event_file_close. */
UNI__SHARED int uni__event_file_reopen(uni__event_file *file, const char *dir, const char *name,
                                       uint64_t size, uni_error *err) UNI_MUST_USE;
UNI__SHARED int uni__event_file_add(uni__event_file *file, const Uni__Tb__Event *event,
                                    uni_error *err) UNI_MUST_USE;
UNI__SHARED int uni__event_file_flush(uni__event_file *file, uni_error *err) UNI_MUST_USE;
UNI__SHARED void uni__event_file_close(uni__event_file *file); /* does not flush */

#endif
