/*
 * session_peers.c - small messages between the ranks of a run, carried by the controller over the
 * channels: what a communicator needs to find its peers and to pass its shared memory
 * (comm/rendezvous.h). Never in the step.
 *
 * What comes before it is asked for waits in the session's mail; a new run begins with none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/shared.h"
#include "base/clock.h"
#include "train/session_internal.h"

#define KEY_MAX UNI__SESSION_KEY_SIZE
#define ANYONE (-1)

_Static_assert(sizeof(((uni__mail_header *)0)->key) == KEY_MAX, "keys fit their header");

struct uni__mail {
    struct uni__mail *next;
    int from, fd;
    char key[KEY_MAX];
    size_t size;
    uint8_t data[];
};

int uni__session_mail(uni_session *session, int to, const char *key, const void *data, size_t size,
                      int fd, uni_error *err)
{
    uni__mail_header header = { .rank = to };
    if (strlen(key) >= KEY_MAX || size > UNI__WIRE_INLINE_MAX / 2)
        return uni_error_set(err, UNI_ELIMIT,
                             "a message \"%.80s\" of %zu bytes to another rank is too large", key,
                             size);
    memcpy(header.key, key, strlen(key));
    uint8_t *frame = malloc(sizeof header + size);
    if (!frame)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a message to another rank");
    memcpy(frame, &header, sizeof header);
    if (size > 0)
        memcpy(frame + sizeof header, data, size);
    int status =
        uni__session_send_frame(session, UNI__PASSES_TO_PEER, frame, sizeof header + size, fd, err);
    free(frame);
    return status;
}

int uni__session_keep_mail(uni_session *session, uni__wire_frame *frame, uni_error *err)
{
    uni__mail_header header;
    if (frame->size < sizeof header)
        return uni_error_set(err, UNI_EFORMAT, "a message from another rank is too short");
    memcpy(&header, frame->payload, sizeof header);
    size_t size = frame->size - sizeof header;
    struct uni__mail *mail = malloc(sizeof *mail + size), **last = &session->mail;
    if (!mail)
        return uni_error_set(err, UNI_ENOMEM, "no memory for a message from another rank");
    header.key[KEY_MAX - 1] = '\0';
    *mail = (struct uni__mail){ .from = header.rank, .fd = -1, .size = size };
    memcpy(mail->key, header.key, KEY_MAX);
    memcpy(mail->data, frame->payload + sizeof header, size);
    if (frame->num_fds > 0) {
        mail->fd = frame->fds[0];
        frame->fds[0] = -1;
    }
    while (*last)
        last = &(*last)->next;
    *last = mail;
    return 0;
}

static void drop(struct uni__mail *mail)
{
    if (mail->fd >= 0)
        close(mail->fd);
    free(mail);
}

void uni__session_drop_mail(uni_session *session)
{
    while (session->mail) {
        struct uni__mail *next = session->mail->next;
        drop(session->mail);
        session->mail = next;
    }
}

/* from ANYONE: and then key is only how the key begins. */
static struct uni__mail *take(uni_session *session, int from, const char *key)
{
    size_t length = strlen(key);
    for (struct uni__mail **at = &session->mail; *at; at = &(*at)->next)
        if (from == ANYONE ? strncmp((*at)->key, key, length) == 0
                           : (*at)->from == from && strcmp((*at)->key, key) == 0) {
            struct uni__mail *found = *at;
            *at = found->next;
            return found;
        }
    return NULL;
}

/* Waits for it; *out is NULL after timeout_ms. */
static int wait_for(uni_session *session, int from, const char *key, int timeout_ms,
                    struct uni__mail **out, uni_error *err)
{
    uint64_t deadline = uni__monotonic_ns() + (uint64_t)timeout_ms * 1000000u;
    if (timeout_ms == 0)
        UNI_TRY(uni__wire_fill(&session->wire, err)); /* a receive without time does not read */
    while (!(*out = take(session, from, key))) {
        uni__wire_frame frame;
        uint64_t now = uni__monotonic_ns();
        int left = timeout_ms < 0 ? -1 : now >= deadline ? 0 : (int)((deadline - now) / 1000000u);
        uni_error why = { 0 };
        int status = uni__wire_receive(&session->wire, &frame, left, &why);
        if (status == UNI_ETIMEOUT)
            return 0; /* the caller's err has nothing of it */
        if (status < 0 && err)
            *err = why;
        UNI_TRY(status);
        if (frame.type == UNI__TO_WORKER_PEER)
            status = uni__session_keep_mail(session, &frame, err);
        else
            status = uni_error_set(err, UNI_ECANCELED, "the run was ended while waiting for \"%s\"",
                                   key);
        uni__wire_frame_done(&frame);
        UNI_TRY(status);
    }
    return 0;
}

/* Takes the mail. */
static int unpack(struct uni__mail *mail, void *data, size_t capacity, size_t *size, int *fd,
                  uni_error *err)
{
    if (mail->size > capacity) {
        int status = uni_error_set(err, UNI_ELIMIT,
                                   "\"%s\" from rank %d has %zu bytes, more than the %zu expected",
                                   mail->key, mail->from, mail->size, capacity);
        drop(mail);
        return status;
    }
    memcpy(data, mail->data, mail->size);
    *size = mail->size;
    if (fd) {
        *fd = mail->fd;
        mail->fd = -1;
    }
    drop(mail);
    return 0;
}

int uni__session_mail_wait(uni_session *session, int from, const char *key, void *data,
                           size_t capacity, size_t *size, int *fd, int timeout_ms, uni_error *err)
{
    struct uni__mail *mail;
    UNI_TRY(wait_for(session, from, key, timeout_ms, &mail, err));
    if (!mail)
        return uni_error_set(err, UNI_ETIMEOUT, "rank %d did not send \"%s\" within %d ms", from,
                             key, timeout_ms);
    return unpack(mail, data, capacity, size, fd, err);
}

/* ---- the public form ---- */

int uni__session_send(uni_session *session, int to, const char *key, const void *data, size_t size,
                      int fd, uni_error *err)
{
    if (!session->is_worker)
        return uni_error_set(err, UNI_ESTATE, "this process is a world of one: there is no rank %d",
                             to);
    return uni__session_mail(session, to, key, data, size, fd, err);
}

int uni__session_receive(uni_session *session, const char *prefix, int *from,
                         char key[UNI__SESSION_KEY_SIZE], void *data, size_t capacity, size_t *size,
                         int *fd, int timeout_ms, uni_error *err)
{
    struct uni__mail *mail;
    *fd = -1;
    if (!session->is_worker)
        return 0;
    UNI_TRY(wait_for(session, ANYONE, prefix, timeout_ms, &mail, err));
    if (!mail)
        return 0;
    *from = mail->from;
    memcpy(key, mail->key, UNI__SESSION_KEY_SIZE);
    UNI_TRY(unpack(mail, data, capacity, size, fd, err));
    return 1;
}

bool uni__session_is_over(uni_session *session, char *why, size_t why_size)
{
    if (!session->is_worker)
        return false;
    bool alarm = atomic_load(&session->page->alarm) != 0;
    if (alarm)
        snprintf(why, why_size, "%.*s", (int)sizeof session->page->alarm_reason - 1,
                 session->page->alarm_reason);
    else if (uni__session_controller_gone(session))
        snprintf(why, why_size, "the trainer that started this worker is gone");
    else
        return false;
    return true;
}
