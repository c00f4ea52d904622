/*
 * wire.h - frames with descriptors over a stream socket: controller <-> agent, controller ->
 * worker.
 *
 * On the wire, little-endian: u16 magic 0x554e ("NU"), u8 version 1, u8 type, u32 payload size, u8
 * number of descriptors, 3 zero bytes, then the payload, a msgpack value. Descriptors ride on the
 * first byte of their frame (SCM_RIGHTS). A payload above 64 KiB travels as a memfd instead: type
 * has the bit 0x80, the payload is its u64 size and the memfd is the last descriptor, sealed
 * against writing and other sizes. So a sender never has to wait for a reader that is still
 * starting up. Any thread; one at a time per wire.
 */
#ifndef UNISONO_GROUP_WIRE_H
#define UNISONO_GROUP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unisono/value.h>

#define UNI__WIRE_VERSION 1
#define UNI__WIRE_MAX_FDS 8
#define UNI__WIRE_INLINE_MAX (64u << 10)
#define UNI__WIRE_PAYLOAD_MAX (1u << 30)

typedef struct uni__wire {
    int fd;
    uint8_t *buffer;
    size_t size, capacity, consumed;
    int fds[4 * UNI__WIRE_MAX_FDS];
    int num_fds;
    /* a send that finds no room takes in what has come meanwhile (without descriptors): two sides
     * that both send never wait for each other. Its owner looks for whole frames afterwards. */
    bool fills_while_sending;
    /* The last send gave up: the next one does not wait at all. So a peer that never reads costs
     * one timeout, not one for each message. */
    bool stuck;
    bool torn; /* a send gave up within its frame: nothing can follow */
} uni__wire;

typedef struct uni__wire_frame {
    int type;
    const uint8_t *payload;
    size_t size;
    int fds[UNI__WIRE_MAX_FDS]; /* the receiver's to close; taken ones are set to -1 */
    int num_fds;
    void *mapped; /* of a large payload; see uni__wire_frame_done */
    size_t mapped_size;
} uni__wire_frame;

void uni__wire_init(uni__wire *wire, int fd); /* takes the descriptor */
void uni__wire_close(uni__wire *wire);

/* Waits at most timeout_ms for room in the socket. UNI_EPEER when the other end is gone. */
int uni__wire_send(uni__wire *wire, int type, const void *payload, size_t size, const int *fds,
                   int num_fds, int timeout_ms, uni_error *err) UNI_MUST_USE;
int uni__wire_send_value(uni__wire *wire, int type, const uni_value *value, const int *fds,
                         int num_fds, int timeout_ms, uni_error *err) UNI_MUST_USE;

/* Reads what is there without waiting; UNI_EPEER at the end of the stream. */
int uni__wire_fill(uni__wire *wire, uni_error *err) UNI_MUST_USE;
/* The next whole frame: 1, 0 when more must be read first, UNI_EFORMAT or UNI_EVERSION. The payload
 * is valid until the next call on the wire; end with uni__wire_frame_done, which closes the
 * descriptors that were not taken. */
int uni__wire_next(uni__wire *wire, uni__wire_frame *frame, uni_error *err) UNI_MUST_USE;
void uni__wire_frame_done(uni__wire_frame *frame);
/* fill and next until there is a frame; UNI_ETIMEOUT after timeout_ms (-1: no limit). */
int uni__wire_receive(uni__wire *wire, uni__wire_frame *frame, int timeout_ms,
                      uni_error *err) UNI_MUST_USE;

#endif
