/* crc32c.h - CRC-32C (Castagnoli), as in TFRecord and TensorBoard's event files. Pure; any
 * thread. */
#ifndef UNISONO_BASE_CRC32C_H
#define UNISONO_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Uses the processor's instruction if available. */
uint32_t uni__crc32c(const void *data, size_t size);
/* The plain version, for comparison with the fast one. */
uint32_t uni__crc32c_reference(const void *data, size_t size);
/* Rotated and shifted, as those files store it. */
static inline uint32_t uni__crc32c_masked(const void *data, size_t size)
{
    uint32_t crc = uni__crc32c(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

#endif
