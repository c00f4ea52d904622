/* worker.c - the table of a worker's life; see worker.h. */
#include "group/worker.h"

#include <stdio.h>

#define SILENT_AFTER_NS 1000000000ull
/* The first heartbeat comes from a thread that a crowded machine may start late. */
#define FIRST_BEAT_NS 60000000000ull

/* A cell: refused, dropped, taken, or taken and the state that it leads to. */
enum { NO, LATE, KEEP, GO };
enum {
    END = GO + UNI__WORKER_ENDED,
    ORD = GO + UNI__WORKER_ORDERED,
    GRT = GO + UNI__WORKER_GREETED,
    RUN = GO + UNI__WORKER_RUNNING,
    CLO = GO + UNI__WORKER_CLOSING
};

/* clang-format off */
static const uint8_t table[UNI__WORKER_INPUTS][UNI__WORKER_STATES] = {
    /*                         ended spawned ordered greeted running closing */
    [UNI__WORKER_UNKNOWN]  = { LATE, NO,     NO,     NO,     NO,     NO },
    [UNI__SAYS_HELLO]      = { LATE, GRT,    RUN,    NO,     NO,     KEEP },
    [UNI__SAYS_REPORT]     = { LATE, NO,     NO,     LATE,   KEEP,   NO },
    [UNI__SAYS_CHECKPOINT] = { LATE, NO,     NO,     LATE,   KEEP,   NO },
    [UNI__SAYS_NEWEST]     = { LATE, NO,     NO,     LATE,   KEEP,   NO },
    [UNI__SAYS_RETURN]     = { LATE, NO,     NO,     NO,     GRT,    NO },
    [UNI__SAYS_ERROR]      = { LATE, NO,     NO,     NO,     GRT,    NO },
    [UNI__SAYS_CLOSED]     = { LATE, NO,     NO,     NO,     CLO,    NO },
    [UNI__WORKER_SNAPSHOT] = { LATE, KEEP,   KEEP,   KEEP,   KEEP,   KEEP },
    [UNI__WORKER_MAIL]     = { LATE, KEEP,   KEEP,   KEEP,   KEEP,   KEEP },
    [UNI__WORKER_LINE]     = { LATE, KEEP,   KEEP,   KEEP,   KEEP,   KEEP },
    [UNI__WORKER_ORDER]    = { NO,   ORD,    NO,     RUN,    NO,     NO },
    [UNI__WORKER_SHUTDOWN] = { NO,   CLO,    NO,     CLO,    NO,     KEEP },
    [UNI__WORKER_EXIT]     = { KEEP, END,    END,    END,    END,    END },
};
/* clang-format on */

static const char *const deeds[UNI__WORKER_INPUTS] = {
    [UNI__WORKER_UNKNOWN] = "sent a message of an unknown kind",
    [UNI__SAYS_HELLO] = "said hello",
    [UNI__SAYS_REPORT] = "sent a report",
    [UNI__SAYS_CHECKPOINT] = "sent a checkpoint",
    [UNI__SAYS_NEWEST] = "asked for the newest checkpoint",
    [UNI__SAYS_RETURN] = "returned from a function",
    [UNI__SAYS_ERROR] = "sent the error of a function",
    [UNI__SAYS_CLOSED] = "closed a session",
    [UNI__WORKER_SNAPSHOT] = "passed a snapshot buffer",
    [UNI__WORKER_MAIL] = "wrote to another rank",
    [UNI__WORKER_LINE] = "wrote a report line",
    [UNI__WORKER_ORDER] = "got an order",
    [UNI__WORKER_SHUTDOWN] = "was told to end",
    [UNI__WORKER_EXIT] = "exited",
};

static const char *const moments[UNI__WORKER_STATES] = {
    [UNI__WORKER_ENDED] = "after its end",
    [UNI__WORKER_SPAWNED] = "before its hello",
    [UNI__WORKER_ORDERED] = "before its hello",
    [UNI__WORKER_GREETED] = "while it had no order",
    [UNI__WORKER_RUNNING] = "while it worked on its order",
    [UNI__WORKER_CLOSING] = "after it closed its session or was told to end",
};

int uni__worker_input_of(int type)
{
    return type >= UNI__SAYS_HELLO && type <= UNI__SAYS_NEWEST ? type : UNI__WORKER_UNKNOWN;
}

uni__worker_verdict uni__worker_step(uni__worker *worker, int input)
{
    int cell = table[input][worker->state];
    if (cell == NO || cell == LATE)
        return cell == NO ? UNI__WORKER_REFUSED : UNI__WORKER_DROPPED;
    if (cell == END)
        uni__worker_ended(worker);
    else if (cell != KEEP)
        worker->state = (uni__worker_state)(cell - GO);
    return UNI__WORKER_TAKEN;
}

void uni__worker_say_refused(const uni__worker *worker, int input, char *out, size_t size)
{
    snprintf(out, size, "it %s %s", deeds[input], moments[worker->state]);
}

void uni__worker_take_snapshot(uni__worker *worker, int slot, uni__region *region)
{
    uni__region_unref(worker->snapshots[slot]);
    worker->snapshots[slot] = region;
}

void uni__worker_ended(uni__worker *worker)
{
    worker->state = UNI__WORKER_ENDED;
    worker->pid = 0;
    worker->stopped_ns = 0;
    worker->silent = false;
    for (int i = 0; i < UNI__SNAPSHOT_SLOTS; i++)
        uni__worker_take_snapshot(worker, i, NULL);
}

void uni__worker_spawned(uni__worker *worker, bool is_program, uint64_t now)
{
    uni__worker_ended(worker);
    *worker = (uni__worker){ .state = UNI__WORKER_SPAWNED,
                             .is_program = is_program,
                             .life = worker->life + 1,
                             .spawned_ns = now };
}

bool uni__worker_is_live(const uni__worker *worker)
{
    return worker->state != UNI__WORKER_ENDED;
}

bool uni__worker_has_greeted(const uni__worker *worker)
{
    return worker->state >= UNI__WORKER_GREETED;
}

bool uni__worker_is_idle(const uni__worker *worker)
{
    return worker->state == UNI__WORKER_SPAWNED || worker->state == UNI__WORKER_GREETED;
}

double uni__worker_listen(uni__worker *worker, uint64_t beat, uint64_t now, uint64_t until,
                          bool again)
{
    if (beat != worker->heartbeat || again || !worker->heartbeat_ns) {
        bool was_silent = worker->silent;
        worker->heartbeat = beat;
        worker->heartbeat_ns = now;
        worker->silent = false;
        return was_silent ? -1 : 0;
    }
    uint64_t quiet = until > worker->heartbeat_ns ? until - worker->heartbeat_ns : 0;
    return quiet > (beat ? SILENT_AFTER_NS : FIRST_BEAT_NS) ? (double)quiet / 1e9 : 0;
}

uni__worker_trouble uni__worker_look(const uni__worker *worker, uint64_t now, double hello_timeout,
                                     double stopped_timeout, double *seconds)
{
    if (worker->stopped_ns) {
        *seconds = (double)(now - worker->stopped_ns) / 1e9;
        if (*seconds >= stopped_timeout)
            return UNI__WORKER_STOPPED;
    }
    *seconds = (double)(now - worker->spawned_ns) / 1e9;
    bool unheard = worker->state == UNI__WORKER_SPAWNED || worker->state == UNI__WORKER_ORDERED;
    return unheard && !worker->is_program && *seconds >= hello_timeout ? UNI__WORKER_NO_HELLO
                                                                       : UNI__WORKER_WELL;
}
