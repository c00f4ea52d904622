/*
 * hosts_worker.c - a worker for the suites over several hosts: hosts_worker [KEY=VALUE...]. A loop of all_reduce, report and checkpoint, in which one rank
 * comes to grief on the first attempt.
 *
 *   steps=N    iterations (20)           pause=MS   between them (0)        size=N     numbers in the checkpoint (1000)
 *   die=RANK   kills itself at=STEP      stop=RANK  stops itself (SIGSTOP)  directory=1  checkpoints are directories
 *   comm=0     no collectives            hang=RANK  sleeps for ever at=STEP
 *   rush=1     no pause once it has gone on from a checkpoint
 *   leave=RANK  ends with 0 at=STEP, the others not yet. way=N: 0 closes its communicator and session, 1 its session, 2 calls _exit
 *   differ=RANK  calls something else at=STEP, way=N: 0 another count, 1 a large one, 2 a type, 3 an operation, 4 a root, 5 a kind; all say what they are told
 *
 * The sum that is carried from step to step proves that a restarted group went on from its checkpoint: after step n it is n (n + 1) / 2.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <unisono/comm.h>
#include <unisono/session.h>

typedef struct plan {
    int steps, pause, size, die, stop, hang, at, comm, directory, differ, leave, way, rush;
} plan;

static plan read_plan(int argc, char **argv)
{
    plan it = { .steps = 20,
                .size = 1000,
                .die = -1,
                .stop = -1,
                .hang = -1,
                .at = 10,
                .comm = 1,
                .differ = -1,
                .leave = -1 };
    const struct {
        const char *name;
        int *value;
    } known[] = { { "steps", &it.steps },   { "pause", &it.pause }, { "size", &it.size },
                  { "die", &it.die },       { "stop", &it.stop },   { "hang", &it.hang },
                  { "at", &it.at },         { "comm", &it.comm },   { "directory", &it.directory },
                  { "differ", &it.differ }, { "way", &it.way },     { "leave", &it.leave },
                  { "rush", &it.rush } };
    for (int i = 1; i < argc; i++)
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            size_t length = strlen(known[k].name);
            if (strncmp(argv[i], known[k].name, length) == 0 && argv[i][length] == '=')
                *known[k].value = atoi(argv[i] + length + 1);
        }
    return it;
}

static int load(uni_session *session, const plan *it, int *step, double *sum, uni_error *err)
{
    if (it->directory) {
        uni_checkpoint *checkpoint = NULL;
        UNI_TRY(uni_session_get_checkpoint(&checkpoint, session, err));
        if (!checkpoint)
            return 0;
        char path[4200];
        snprintf(path, sizeof path, "%s/rank_0/state.txt",
                 uni_checkpoint_info_of(checkpoint)->path);
        FILE *file = fopen(path, "r");
        if (!file) {
            snprintf(path, sizeof path, "%s/state.txt", uni_checkpoint_info_of(checkpoint)->path);
            file = fopen(path, "r");
        }
        int got = file ? fscanf(file, "%d %lf", step, sum) : 0;
        if (file)
            fclose(file);
        uni_checkpoint_close(checkpoint);
        return got == 2 ? 0 : uni_error_set(err, UNI_EFORMAT, "no state in %s", path);
    }
    uni_value *state = NULL;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    *step = (int)uni_dict_get_int(state, "step", 0);
    *sum = uni_dict_get_float(state, "sum", 0);
    if (state && (int)uni_list_size(uni_dict_get(state, "numbers")) != it->size)
        return uni_error_set(err, UNI_EFORMAT, "the checkpoint is not whole");
    uni_value_free(state);
    return 0;
}

static int save(uni_session *session, const plan *it, int step, double sum, uni_error *err)
{
    uni_value *metrics = uni_value_dict(), *state = uni_value_dict(), *numbers = uni_value_list();
    char *directory = NULL;
    int status = uni_dict_take(metrics, "sum", uni_value_float(sum));
    uni_checkpoint_source source = { 0 };
    if (uni_session_info_of(session)->world_rank == 0 && it->directory) {
        UNI_TRY(uni_session_checkpoint_dir(&directory, session, err));
        char path[4200];
        snprintf(path, sizeof path, "%s/state.txt", directory);
        FILE *file = fopen(path, "w");
        if (file) {
            fprintf(file, "%d %.17g\n", step, sum);
            fclose(file);
        }
        source.directory = directory;
    } else if (uni_session_info_of(session)->world_rank == 0) {
        status |= uni_dict_take(state, "step", uni_value_int(step));
        status |= uni_dict_take(state, "sum", uni_value_float(sum));
        for (int i = 0; i < it->size; i++)
            status |= uni_list_take(numbers, uni_value_int(i));
        status |= uni_dict_take(state, "numbers", numbers);
        numbers = NULL;
        source.dict = state;
    }
    if (status == 0)
        status = uni_session_report(session, metrics, &source, err);
    free(directory);
    uni_value_free(numbers);
    uni_value_free(state);
    uni_value_free(metrics);
    return status;
}

static void come_to_grief(uni_session *session, const plan *it, int step)
{
    int rank = uni_session_info_of(session)->world_rank;
    if (uni_session_info_of(session)->attempt != 1 || step != it->at)
        return;
    if (rank == it->die)
        kill(getpid(), SIGKILL);
    if (rank == it->stop)
        kill(getpid(), SIGSTOP);
    while (rank == it->hang)
        pause();
}

/* Every rank says what it was told. */
static int differ(uni_session *session, uni_comm *comm, const plan *it, uni_error *err)
{
    enum { MANY = 300000 };
    static float data[MANY];
    bool odd = uni_session_info_of(session)->world_rank == it->differ;
    size_t count = it->way == 1 ? MANY : 1000;
    if (odd && it->way < 2)
        count /= 2;
    uni_dtype type = odd && it->way == 2 ? UNI_I32 : UNI_F32;
    uni_comm_op op = odd && it->way == 3 ? UNI_COMM_MAX : UNI_COMM_SUM;
    int status = 0;
    if (it->way == 4)
        status = uni_comm_broadcast(comm, data, count, type, odd ? 1 : 0, err);
    else if (it->way == 5 && odd)
        status = uni_comm_all_gather(comm, data, data + count, 1, type, err);
    else
        status = uni_comm_all_reduce(comm, data, data, count, type, op, err);
    printf("told: %s: %s\n", uni_status_name(status), status < 0 ? err->message : "");
    fflush(stdout);
    nanosleep(&(struct timespec){ .tv_sec = 1 },
              NULL); /* the others are not to hear it from the controller */
    return status;
}

static int train(uni_session *session, const plan *it, uni_error *err)
{
    uni_comm *comm = NULL;
    int step = 0;
    double sum = 0;
    UNI_TRY(load(session, it, &step, &sum, err));
    int between = it->rush && step > 0 ? 0 : it->pause;
    printf("begins after step %d with %g\n", step, sum);
    fflush(stdout);
    if (it->comm)
        UNI_TRY(uni_session_comm(&comm, session, NULL, err));
    if (comm)
        printf("transport %s\n", uni_comm_info_of(comm)->transport);
    fflush(stdout);
    while (step < it->steps && !uni_session_should_stop(session)) {
        double mine = (double)(step + 1) / uni_session_info_of(session)->world_size, all = mine;
        step++;
        come_to_grief(session, it, step);
        if (step == it->at && uni_session_info_of(session)->world_rank == it->leave) {
            if (it->way == 0)
                uni_comm_close(comm);
            if (it->way == 2)
                _exit(0);
            return 0;
        }
        if (comm && it->differ >= 0 && step == it->at)
            UNI_TRY(differ(session, comm, it, err));
        if (comm)
            UNI_TRY(uni_comm_all_reduce(comm, &mine, &all, 1, UNI_F64, UNI_COMM_SUM, err));
        else
            all = step;
        sum += all;
        if (between)
            nanosleep(&(struct timespec){ .tv_sec = between / 1000,
                                          .tv_nsec = between % 1000 * 1000000L },
                      NULL);
        UNI_TRY(save(session, it, step, sum, err));
    }
    if (comm)
        UNI_TRY(uni_comm_finalize(comm, err));
    uni_comm_close(comm);
    printf("ends after step %d with %.3f\n", step, sum);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    plan it = read_plan(argc, argv);
    uni_session *session = NULL;
    uni_error err = { 0 };
    int status = uni_session_open(&session, &err);
    if (status == 0)
        status = train(session, &it, &err);
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", uni_status_name(err.code), err.message);
        fflush(stderr);
        sleep(2); /* the controller has the cause; a failed MPI must not be finalised */
        _exit(1);
    }
    uni_session_close(session);
    return 0;
}
