/*
 * manifest_internal.h - shared by manifest.c (reading) and manifest_write.c. Only these two include
 * it.
 */
#ifndef UNISONO_CHECKPOINT_MANIFEST_INTERNAL_H
#define UNISONO_CHECKPOINT_MANIFEST_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#define UNI__MANIFEST_TAIL 32 /* bytes: ,"checksum":"<16 hex>"} and LF */

/* Computes the tail for text[0..body). */
void uni__manifest_tail(char tail[UNI__MANIFEST_TAIL + 1], const char *text, size_t body);

#endif
