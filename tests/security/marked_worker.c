/*
 * marked_worker.c - puts a text that nobody else would write ($UNISONO_TEST_MARK) into everything that can leave a worker: its log, metrics, checkpoints (rank 0 a
 * dictionary, all of it also as a directory with directory=1), errors aside, and the numbers of each collective. marked_worker [comm=0] [directory=1] [steps=N]
 *
 * The results of the collectives are checked: rank 0 has the text, all others zeros, so that every sum is the text again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unisono/comm.h>
#include <unisono/session.h>

#define LARGE (1u << 18) /* floats */

typedef struct plan {
    int comm, directory, steps;
    const char *mark;
} plan;

static int fill(float *data, size_t count, const char *mark, bool with)
{
    size_t length = strlen(mark);
    for (size_t i = 0; i < count * sizeof *data; i++)
        ((char *)data)[i] = with ? mark[i % length] : 0;
    return 0;
}

static int expect(const float *data, size_t count, const char *mark, const char *what,
                  uni_error *err)
{
    size_t length = strlen(mark);
    for (size_t i = 0; i < count * sizeof *data; i++)
        if (((const char *)data)[i] != mark[i % length])
            return uni_error_set(err, UNI_ECORRUPT, "%s: byte %zu is wrong", what, i);
    return 0;
}

/* Each kind of collective, with that many numbers. `in` and `out` have room for count * size. */
static int all_kinds(uni_session *session, uni_comm *comm, float *in, float *out, size_t count,
                     const char *mark, uni_error *err)
{
    int rank = uni_session_info_of(session)->world_rank,
        size = uni_session_info_of(session)->world_size;
    (void)fill(in, count * (size_t)size, mark, rank == 0);
    UNI_TRY(uni_comm_all_reduce(comm, in, out, count, UNI_F32, UNI_COMM_SUM, err));
    UNI_TRY(expect(out, count, mark, "all_reduce", err));
    (void)fill(out, count, mark, false);
    UNI_TRY(uni_comm_reduce(comm, in, out, count, UNI_F32, UNI_COMM_SUM, 1, err));
    if (rank == 1)
        UNI_TRY(expect(out, count, mark, "reduce", err));
    (void)fill(out, count, mark, rank == 0);
    UNI_TRY(uni_comm_broadcast(comm, out, count, UNI_F32, 0, err));
    UNI_TRY(expect(out, count, mark, "broadcast", err));
    UNI_TRY(uni_comm_all_gather(comm, in, out, count, UNI_F32, err));
    UNI_TRY(expect(out, count, mark, "all_gather", err));
    UNI_TRY(uni_comm_all_to_all(comm, in, out, count, UNI_F32, err));
    UNI_TRY(expect(out, count, mark, "all_to_all", err));
    /* A multiple of the mark, so that each rank's part begins with it. */
    UNI_TRY(uni_comm_reduce_scatter(comm, in, out, count, UNI_F32, UNI_COMM_SUM, err));
    UNI_TRY(expect(out, count, mark, "reduce_scatter", err));
    if (rank == 0)
        UNI_TRY(uni_comm_send(comm, in, count, UNI_F32, 1, err));
    if (rank == 1) {
        UNI_TRY(uni_comm_recv(comm, out, count, UNI_F32, 0, err));
        UNI_TRY(expect(out, count, mark, "recv", err));
    }
    double total = 0;
    (void)fill(out, count, mark, rank == 0);
    UNI_TRY(uni_comm_all_reduce_weighted(comm, in, out, count, UNI_F32, rank == 0 ? 1.0 : 0.0,
                                         &total, err));
    UNI_TRY(expect(out, count, mark, "weighted mean", err));
    return total == 1.0 ? 0 : uni_error_set(err, UNI_ECORRUPT, "the weights sum up to %g", total);
}

static int talk(uni_session *session, const plan *it, uni_error *err)
{
    uni_comm *comm = NULL;
    size_t size = (size_t)uni_session_info_of(session)->world_size,
           step = strlen(it->mark) / sizeof(float);
    float *in = malloc(LARGE * size * sizeof *in), *out = malloc(LARGE * size * sizeof *out);
    UNI_TRY(uni_session_comm(&comm, session, NULL, err));
    const size_t counts[] = { step, 40 * step, LARGE / step * step };
    int status = in && out ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory");
    for (size_t i = 0; i < 3 && status == 0; i++)
        status = all_kinds(session, comm, in, out, counts[i], it->mark, err);
    if (status == 0)
        status = uni_comm_finalize(comm, err);
    if (status == 0) {
        uni_comm_close(comm);
        printf("transport done\n");
    }
    free(in);
    free(out);
    return status;
}

static int say(uni_session *session, const plan *it, int step, uni_error *err)
{
    uni_value *metrics = uni_value_dict(), *state = uni_value_dict();
    char *directory = NULL, path[4200];
    uni_checkpoint_source source = { 0 };
    int status = uni_dict_take(metrics, "text", uni_value_string(it->mark));
    status |= uni_dict_take(metrics, "step", uni_value_int(step));
    status |= uni_dict_take(state, "text", uni_value_string(it->mark));
    if (it->directory) {
        UNI_TRY(uni_session_checkpoint_dir(&directory, session, err));
        snprintf(path, sizeof path, "%s/state.txt", directory);
        FILE *file = fopen(path, "w");
        if (file) {
            fprintf(file, "%s\n", it->mark);
            fclose(file);
        }
        source.directory = directory;
    } else {
        source.dict = state;
    }
    printf("log %s\n", it->mark);
    fflush(stdout);
    if (status == 0)
        status = uni_session_report(session, metrics, &source, err);
    free(directory);
    uni_value_free(state);
    uni_value_free(metrics);
    return status;
}

static int train(uni_session *session, const plan *it, uni_error *err)
{
    const char *config = uni_dict_get_string(uni_session_info_of(session)->config, "mark", "");
    if (strcmp(config, it->mark) != 0)
        return uni_error_set(err, UNI_EFORMAT, "the config's mark is \"%s\"", config);
    for (int step = 1; step <= it->steps; step++)
        UNI_TRY(say(session, it, step, err));
    return it->comm ? talk(session, it, err) : 0;
}

int main(int argc, char **argv)
{
    plan it = { .comm = 1, .steps = 2, .mark = getenv("UNISONO_TEST_MARK") };
    uni_session *session = NULL;
    uni_error err = { 0 };
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "comm=0") == 0)
            it.comm = 0;
        if (strcmp(argv[i], "directory=1") == 0)
            it.directory = 1;
        if (strncmp(argv[i], "steps=", 6) == 0)
            it.steps = atoi(argv[i] + 6);
    }
    int status = it.mark ? uni_session_open(&session, &err) : UNI_EINVAL;
    if (status == 0)
        status = train(session, &it, &err);
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", uni_status_name(err.code), err.message);
        fflush(stderr);
        _Exit(1);
    }
    uni_session_close(session);
    return 0;
}
