/* open.h - strategies by name, one function a family. Only for src/train/native. */
#ifndef UNISONO_TRAIN_NATIVE_OPEN_H
#define UNISONO_TRAIN_NATIVE_OPEN_H

#include <unisono/native.h>

/* argument: what follows "parameter_server:", or NULL. */
int uni__open_parameter_server(uni_strategy **out, const char *argument, uni_session *session,
                               uni_error *err) UNI_MUST_USE;

/* multi_worker over the session, in which a rank that dies is replaced. options: take_comm. */
int uni__open_elastic(uni_strategy **out, uni_session *session,
                      const uni_multi_worker_options *options, uni_error *err) UNI_MUST_USE;

#endif
