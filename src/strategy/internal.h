/* internal.h - what a strategy is made of. Only for this module. */
#ifndef UNISONO_STRATEGY_INTERNAL_H
#define UNISONO_STRATEGY_INTERNAL_H

#include <unisono/strategy.h>

typedef enum uni__strategy_kind {
    UNI__STRATEGY_NONE,
    UNI__STRATEGY_MIRRORED,
    UNI__STRATEGY_MULTI_WORKER
} uni__strategy_kind;

/* Things a strategy has seen, by address: models that were placed, sources that are cut already. */
typedef struct uni__seen {
    const void **things;
    size_t count;
} uni__seen;

struct uni_strategy {
    uni__strategy_kind kind;
    int replicas; /* threads in this process; 0: fit chooses */
    uni_comm *comm;
    bool owns_comm;
    int rank, size; /* of the communicator; 0 and 1 without */
    int check_every;
    uni_replica replica; /* multi_worker: what fit gets */
    uni__seen placed, distributed;
};

int uni__seen_add(uni__seen *seen, const void *thing, uni_error *err) UNI_MUST_USE;
bool uni__seen_has(const uni__seen *seen, const void *thing);

/* multi_worker.c */
void uni__multi_worker_init(uni_strategy *strategy, bool local_statistics);
/* A fit callback that compares the weights of all ranks every check_every steps. */
int uni__multi_worker_checker(uni_fit_callback **out, uni_strategy *strategy,
                              uni_error *err) UNI_MUST_USE;

#endif
