/*
 * format.h - times, sizes and numbers in human-readable form. Pure; any thread.
 */
#ifndef UNISONO_CLI_FORMAT_H
#define UNISONO_CLI_FORMAT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <unisono/value.h>

#define CLI_SHORT 40 /* room for any of the texts below */

/* 90s, 5m, 2h, 1h30m, 2d, 500ms, or a plain number of seconds; not negative. Returns false if it is
 * not a duration. */
bool cli_parse_duration(const char *text, double *seconds);
/* 512M, 2G, 1.5GiB, 100k, or a plain number of bytes; powers of 1024. */
bool cli_parse_size(const char *text, double *bytes);

/* "850 ms", "12.3 s", "4 min 05 s", "2 h 13 min", "3 d 4 h". Returns out. */
const char *cli_duration(double seconds, char out[CLI_SHORT]);
/* "just now", "12 s ago", "3 min ago", "2 h ago", "5 days ago". */
const char *cli_ago(double now, double then, char out[CLI_SHORT]);
/* "2026-11-15 21:36:14" in local time. */
/* "", "1 restart", "2 ranks replaced" or "1 restart and 2 ranks replaced". about: run.json. */
const char *cli_interruptions(const uni_value *about, char out[CLI_SHORT]);
const char *cli_date(double wall_seconds, char out[CLI_SHORT]);
/* "1.5 GiB", "312 B". */
const char *cli_bytes(double bytes, char out[CLI_SHORT]);
/* 4 significant digits, integers in full: "0.3125", "1.23e-05", "57", "NaN", "Infinity". */
const char *cli_number(double value, char out[CLI_SHORT]);
/* "SIGKILL" for 9; "signal 99" for one without a name. */
const char *cli_signal(int number, char out[CLI_SHORT]);

#endif
