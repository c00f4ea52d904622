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

static void write_line(const uni__announcement *it, char out[UNI__ANNOUNCEMENT_MAX])
{
    char job[2 * UNI__JOB_BYTES + 1], key[2 * UNI__KEY_BYTES + 1];
    sodium_bin2hex(job, sizeof job, it->job, UNI__JOB_BYTES);
    sodium_bin2hex(key, sizeof key, it->key, UNI__KEY_BYTES);
    snprintf(out, UNI__ANNOUNCEMENT_MAX, MARK "%s %u %u %s\n", job, it->attempt, it->rank, key);
}

void uni__announcement_write(const uni__credentials *credentials, uint32_t rank,
                             char out[UNI__ANNOUNCEMENT_MAX])
{
    uni__announcement it = { .attempt = credentials->attempt, .rank = rank };
    memcpy(it.job, credentials->job, sizeof it.job);
    memcpy(it.key, credentials->public_key, sizeof it.key);
    write_line(&it, out);
}

static bool read_hex(const char *text, uint8_t *out, size_t size)
{
    size_t length = 0;
    return sodium_hex2bin(out, size, text, strlen(text), NULL, &length, NULL) == 0 &&
           length == size;
}

size_t uni__announcement_read(const char *text, uni__announcement *out)
{
    char job[33], key[65], line[UNI__ANNOUNCEMENT_MAX];
    if (sscanf(text, MARK "%32[0-9a-f] %9u %9u %64[0-9a-f]", job, &out->attempt, &out->rank, key) !=
            4 ||
        !read_hex(job, out->job, sizeof out->job) || !read_hex(key, out->key, sizeof out->key))
        return 0;
    /* sscanf finds fields without blanks between them, too. */
    write_line(out, line);
    size_t length = strlen(line) - 1;
    return strncmp(text, line, length) == 0 && !strchr("0123456789abcdef", text[length] | ' ')
               ? length
               : 0;
}

/* A launcher may put something before it ("[1,0]<stdout>:"). */
static void read_line(uni__keyring *ring, const uni__credentials *credentials, const char *text,
                      size_t size)
{
    char line[UNI__ANNOUNCEMENT_MAX];
    uni__announcement it;
    const char *mark = size < 4096 ? memmem(text, size, MARK, strlen(MARK)) : NULL;
    if (!mark || (size -= (size_t)(mark - text)) >= sizeof line)
        return;
    memcpy(line, mark, size);
    line[size] = '\0';
    if (uni__announcement_read(line, &it) == 0 || it.attempt != credentials->attempt ||
        it.rank >= ring->num_ranks || ring->ranks[it.rank].known ||
        memcmp(it.job, credentials->job, sizeof it.job) != 0)
        return;
    ring->ranks[it.rank].known = true;
    memcpy(ring->ranks[it.rank].key, it.key, sizeof it.key);
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
