/*
 * protocol.h - what a session and its controller say to each other.
 *
 * Worker to controller, in the ring (group/page.h): the types below. Controller to worker, on the
 * channel (group/wire.h): UNI__TO_WORKER_*. The worker's own frames on the channel: its snapshot
 * buffers (type = slot number + 1, a descriptor), and UNI__PASSES_TO_PEER.
 */
#ifndef UNISONO_GROUP_PROTOCOL_H
#define UNISONO_GROUP_PROTOCOL_H

#include <stdint.h>

enum uni__from_worker {
    UNI__SAYS_HELLO = 1, /* msgpack {"pid"} */
    /* i64 iteration, u32 size of the rank's state (0: as the report before said), the state
     * (checkpoint/state.h: a section), then one msgpack map: the metrics */
    UNI__SAYS_REPORT,
    /* msgpack {"iteration", "alone": bool, "step": bool, "path"} or {..., "slot", "size"}; precedes
     * the report of its iteration. One that is alone has the "state", too; one of a step is alone,
     * and only there to resume from */
    UNI__SAYS_CHECKPOINT,
    /* encoded dictionary (checkpoint/dict.h) {"result": value}: the function returned */
    UNI__SAYS_RETURN,
    /* msgpack {"code", "message"}: the function failed; maybe "failure": what it left in *result */
    UNI__SAYS_ERROR,
    UNI__SAYS_CLOSED, /* a program of its own closed its session */
    /* u32 serial, u32 number of save_checkpoint calls of this rank: which checkpoint is the newest?
     * Answered by mail under UNI__NEWEST_KEY with that serial */
    UNI__SAYS_NEWEST
};

enum uni__to_worker {
    /* msgpack dictionary, keys in session_setup.c; descriptor: the dictionary to resume from, when
     * it is in memory */
    UNI__TO_WORKER_RUN = 1,
    UNI__TO_WORKER_SHUTDOWN, /* {} */
    UNI__TO_WORKER_PEER /* i32 sender, then what it sent; maybe a descriptor */
};

/* On the channel: i32 address (a rank, or -1 for all others), then bytes for that rank; maybe a
 * descriptor. The controller only carries it. */
#define UNI__PASSES_TO_PEER 16

/* Mail, on the channel: this, then its data. */
typedef struct uni__mail_header {
    int32_t rank; /* address, or sender */
    char key[64]; /* padded with zeros */
} uni__mail_header;

#define UNI__CONTROLLER (-2) /* as the sender of mail */
/* Mail of the controller: the path of a checkpoint ("": none since the attempt began), with a
 * descriptor when it is a dictionary in memory; or "!" and a sentence: it cannot be had. */
#define UNI__NEWEST_KEY "newest checkpoint %u"

#define UNI__SNAPSHOT_SLOTS 2
#define UNI__CHECKPOINTS_IN_FLIGHT 2 /* a worker waits before it hands over one more */

#endif
