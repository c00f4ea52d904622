/*
 * experimental/session_state.h - state that a rank keeps over restarts.
 *
 * Experimental: this header may change in any release, and the ABI policy of docs/c.md does not
 * cover its functions (version node UNISONO_EXPERIMENTAL).
 *
 * Thread rule: as the session, one thread at a time.
 *
 * @example
 * size_t size = 0;
 * const uint64_t *seed = (const uint64_t *)uni_session_state_get(session, "seed", &size);
 * uint64_t next = seed && size == sizeof next ? *seed + 1 : 0;
 * UNI_TRY(uni_session_state_set(session, "seed", &next, sizeof next, err));
 * @end
 */
#ifndef UNISONO_EXPERIMENTAL_SESSION_STATE_H
#define UNISONO_EXPERIMENTAL_SESSION_STATE_H

#include <unisono/session.h>

#ifdef __cplusplus
extern "C" {
#endif

/* State that this rank keeps over restarts, by name: a random generator, the place
 * in a sampler. Reports carry it to the controller when it has changed, and each checkpoint has
 * the state of all ranks as of its iteration. set copies the bytes (NULL: forget the name); they
 * hold from the next report on, or from save_checkpoint on rank 0. get gives what was set last,
 * in this attempt or before the checkpoint that it began with, borrowed until the next set of
 * that name; NULL when there is none. At most 64 MiB a rank; names have 1 to 200 bytes. A rank
 * that the group did not have before finds none. */
UNI_API UNI_MUST_USE int uni_session_state_set(uni_session *session, const char *name,
                                               const void *bytes, size_t size, uni_error *err);
UNI_API const void *uni_session_state_get(const uni_session *session, const char *name,
                                          size_t *size);

#ifdef __cplusplus
}
#endif
#endif
