/* keyring.c - see keyring.h. */
#include "group/keyring.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK "unisono-host key "
#define PIECE_BYTES 16384

int uni__keyring_new(uni__keyring **out, uint32_t num_ranks, uni_error *err)
{
    uni__keyring *ring = calloc(1, sizeof *ring);
    *out = NULL;
    if (ring)
        ring->ranks = calloc(num_ranks, sizeof *ring->ranks);
    if (!ring || !ring->ranks) {
        free(ring);
        return uni_error_set(err, UNI_ENOMEM, "no memory for the keys of %u ranks", num_ranks);
    }
    ring->num_ranks = num_ranks;
    *out = ring;
    return 0;
}

void uni__keyring_free(uni__keyring *ring)
{
    if (!ring)
        return;
    free(ring->ranks);
    free(ring);
}

int uni__keyring_find(const uni__keyring *ring, uint32_t rank, const uint8_t key[UNI__KEY_BYTES])
{
    if (!ring || rank >= ring->num_ranks)
        return -1;
    if (!ring->ranks[rank].known)
        return 0;
    return sodium_memcmp(ring->ranks[rank].key, key, UNI__KEY_BYTES) == 0 ? 1 : -1;
}

void uni__announcement_write(const uni__credentials *credentials, uint32_t rank,
                             char out[UNI__ANNOUNCEMENT_MAX])
{
    char job[2 * UNI__JOB_BYTES + 1], key[2 * UNI__KEY_BYTES + 1];
    sodium_bin2hex(job, sizeof job, credentials->job, UNI__JOB_BYTES);
    sodium_bin2hex(key, sizeof key, credentials->public_key, UNI__KEY_BYTES);
    snprintf(out, UNI__ANNOUNCEMENT_MAX, MARK "%s %u %u %s\n", job, credentials->attempt, rank,
             key);
}

/* A launcher may put something before it ("[1,0]<stdout>:"). */
static void read_line(uni__keyring *ring, const uni__credentials *credentials, const char *text,
                      size_t size)
{
    char line[UNI__ANNOUNCEMENT_MAX], job[33], key[65];
    uint8_t bytes[UNI__KEY_BYTES], job_bytes[UNI__JOB_BYTES];
    unsigned attempt, rank;
    size_t length = 0;
    const char *mark = size < 4096 ? memmem(text, size, MARK, strlen(MARK)) : NULL;
    if (!mark || (size -= (size_t)(mark - text)) >= sizeof line)
        return;
    memcpy(line, mark, size);
    line[size] = '\0';
    if (sscanf(line, MARK "%32[0-9a-f] %9u %9u %64[0-9a-f]", job, &attempt, &rank, key) != 4 ||
        attempt != credentials->attempt || rank >= ring->num_ranks || ring->ranks[rank].known ||
        sodium_hex2bin(job_bytes, sizeof job_bytes, job, strlen(job), NULL, &length, NULL) != 0 ||
        length != sizeof job_bytes || memcmp(job_bytes, credentials->job, length) != 0 ||
        sodium_hex2bin(bytes, sizeof bytes, key, strlen(key), NULL, &length, NULL) != 0 ||
        length != sizeof bytes)
        return;
    ring->ranks[rank].known = true;
    memcpy(ring->ranks[rank].key, bytes, sizeof bytes);
}

size_t uni__keyring_read(uni__keyring *ring, const uni__credentials *credentials, const char *text,
                         size_t size)
{
    size_t at = 0;
    for (const char *end; at < size && (end = memchr(text + at, '\n', size - at));) {
        size_t length = (size_t)(end - text) - at;
        read_line(ring, credentials, text + at, length);
        at += length + 1;
    }
    return at;
}

void uni__keyring_follow(uni__keyring *ring, const uni__credentials *credentials, const char *path,
                         int64_t *offset)
{
    char piece[PIECE_BYTES];
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    bool ours = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                !(info.st_mode & 022);
    ssize_t n;
    while (ours && (n = pread(fd, piece, sizeof piece, (off_t)*offset)) > 0) {
        size_t whole = uni__keyring_read(ring, credentials, piece, (size_t)n);
        /* A line longer than a piece is none of ours. */
        if (whole == 0 && n < (ssize_t)sizeof piece)
            break;
        *offset += whole ? (int64_t)whole : n;
    }
    close(fd);
}
