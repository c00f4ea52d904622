/*
 * shared.h - what checkpoint shares with our other libraries, the command and the Python extension.
 * Not installed: programs see include/unisono.
 */
#ifndef UNISONO_CHECKPOINT_SHARED_H
#define UNISONO_CHECKPOINT_SHARED_H

#include "base/compiler.h"
#include <unisono/checkpoint.h>

/* UNI_EINVAL with the reason if the policy is invalid. NULL is the default policy. */
UNI_MUST_USE int uni__checkpoint_policy_check(const uni_checkpoint_policy *policy, uni_error *err);

#endif
