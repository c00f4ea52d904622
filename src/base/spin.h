/*
 * spin.h - how long a thread that waits for another one keeps its core before it sleeps.
 *
 * A wake-up costs about 30 microseconds, more on a virtual machine whose core has stopped, so a
 * wait that ends sooner is cheaper when the thread spins. A longer one is not, and where more
 * threads want to run than there are cores, a spinning thread may hold the core that the awaited
 * thread needs. So a spin ends after UNI__SPIN_NS. Only transports that must be polled (MPI, UCX)
 * wait in another way. Each wait has a uni__spinner of its own; no locks, and no system call but
 * the clock's, which is none on Linux.
 *
 *     uni__spinner spinner = { 0 };
 *     while (!arrived(word))
 *         if (!uni__spin(&spinner))
 *             break; // sleep on the word
 */
#ifndef UNISONO_BASE_SPIN_H
#define UNISONO_BASE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* The parts of a step are some tens of microseconds apart. 784-512-512-10 at batch 64 lost 23 % on
 * undisturbed cores with 50 microseconds and nothing with 100. Two workers of the NNLM head beside
 * six busy processes made 73,900 samples/s with 50, 54,100 with 200, and 29,600 with the 1,000 that
 * were here before. */
#define UNI__SPIN_NS 100000u

typedef struct uni__spinner {
    uint64_t begun; /* 0: the clock was not read yet */
    uint32_t looks;
} uni__spinner;

static inline void uni__relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Call after a look that found nothing. false: time to sleep. */
static inline bool uni__spin(uni__spinner *spinner)
{
    uni__relax();
    if (++spinner->looks % 16 != 0)
        return true;
    uint64_t now = uni__monotonic_ns();
    if (spinner->begun == 0)
        spinner->begun = now;
    return now - spinner->begun < UNI__SPIN_NS;
}

#endif
