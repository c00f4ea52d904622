/* clock.h - time: monotonic for durations, wall clock for timestamps that people read. Any
 * thread. */
#ifndef UNISONO_BASE_CLOCK_H
#define UNISONO_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

UNI__SHARED uint64_t uni__monotonic_ns(void);
UNI__SHARED double uni__wall_seconds(void);
/* "2026-11-15_21-36-14" in local time; out has at least 20 bytes. */
void uni__format_date(double wall_seconds, char out[20]);

#endif
