/* futex.h - sleeps on the low half of a 64-bit word that other processes change. For src/comm. */
#ifndef UNISONO_COMM_FUTEX_H
#define UNISONO_COMM_FUTEX_H

#include "base/futex.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the futex is on the word's first four bytes, which must be its low half"
#endif

static inline _Atomic uint32_t *uni__low_half(_Atomic uint64_t *word)
{
    return (_Atomic uint32_t *)(void *)word;
}

#endif
