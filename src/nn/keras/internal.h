/*
 * internal.h - what the files of libunisono-keras.so share. They run in a child process of the
 * engine (nn/files/child.c): one thread, no way to open files, and a crash ends only the
 * child.
 */
#ifndef UNISONO_NN_KERAS_INTERNAL_H
#define UNISONO_NN_KERAS_INTERNAL_H

#include "nn/keras/plugin.h"

/* hdf5_write.c: the file's bytes, malloc'ed. */
int uni__hdf5_image(void **out, size_t *size, const uni__h5_contents *contents,
                    uni_error *err) UNI_MUST_USE;
/* hdf5_read.c: records of all groups and datasets. */
int uni__hdf5_read(int fd, const void *bytes, size_t size, uni_error *err) UNI_MUST_USE;
/* archive_write.c, archive_read.c */
int uni__archive_write(int fd, size_t count, const uni__zip_member *members,
                       const uni__h5_contents *contents, uni_error *err) UNI_MUST_USE;
int uni__archive_read(int fd, const void *bytes, size_t size, uni_error *err) UNI_MUST_USE;
/* plugin.c */
int uni__send(int fd, const void *data, size_t size, uni_error *err) UNI_MUST_USE;
int uni__send_file_record(int fd, uni__file_record *record, const char *path, const void *data,
                          uni_error *err) UNI_MUST_USE;

#endif
