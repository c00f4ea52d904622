/*
 * shared.h - what base shares with our other libraries, the command and the Python extension. Not
 * installed: programs see include/unisono.
 */
#ifndef UNISONO_BASE_SHARED_H
#define UNISONO_BASE_SHARED_H

#include "base/compiler.h"
#include <unisono/array.h>
#include <unisono/log.h>
#include <unisono/value.h>

/* Marks the elements as shared with other owners that rely on them (a dataset kept in memory,
 * for its next epoch): copy them before changing values. A view of such elements should be
 * marked as well; the mark is permanent. */
void uni__array_mark_shared(uni_array *array);
UNI__SHARED bool uni__array_is_shared(const uni_array *array);
/* Same dtype, shape and bytes. */
bool uni__array_equal(const uni_array *a, const uni_array *b);
uni_log_level uni__log_level_get(void);
/* MessagePack, data only. Arrays are not allowed here (checkpoints store them next to the tree).
 * The caller frees the bytes that write returns. */
UNI__SHARED UNI_MUST_USE int uni__msgpack_read(uni_value **out, const void *data, size_t size,
                                               uni_error *err);
UNI__SHARED UNI_MUST_USE int uni__msgpack_write(void **out, size_t *size, const uni_value *value,
                                                uni_error *err);
/* From NumPy's name; 0 if there is no such type. */
UNI__SHARED int uni__dtype_from_name(const char *name);
/* "dictionary", "number" ... for messages */
UNI__SHARED const char *uni__value_type_name(uni_value_type type);

#endif
