/* whole.h - stores integers in columns of any integer type. For src/data/sources only. */
#ifndef UNISONO_DATA_WHOLE_H
#define UNISONO_DATA_WHOLE_H

#include <stdbool.h>
#include <unisono/array.h>

/* Sets values[index]. Returns false and stores nothing if the type cannot hold the value or is not
 * an integer type. */
static inline bool uni__store_whole(void *values, uni_dtype dtype, int64_t index, int64_t value)
{
    switch (dtype) {
#define CASE(id, type, low, high)                                                                  \
    case UNI_##id:                                                                                 \
        if (value < (int64_t)(low) || value > (int64_t)(high))                                     \
            return false;                                                                          \
        ((type *)values)[index] = (type)value;                                                     \
        return true;
        CASE(I8, int8_t, INT8_MIN, INT8_MAX)
        CASE(I16, int16_t, INT16_MIN, INT16_MAX)
        CASE(I32, int32_t, INT32_MIN, INT32_MAX)
        CASE(I64, int64_t, INT64_MIN, INT64_MAX)
        CASE(U8, uint8_t, 0, UINT8_MAX)
        CASE(U16, uint16_t, 0, UINT16_MAX)
        CASE(U32, uint32_t, 0, UINT32_MAX)
        CASE(U64, uint64_t, 0, INT64_MAX)
#undef CASE
    default:
        return false;
    }
}

#endif
