/*
 * remote_strangers.c - which agents may connect to the controller (their announcements), and
 * what is said of connections that were refused. The first of an address and a
 * reason is said at once, the others are counted and summed up when the listener closes. Controller
 * thread.
 */
#include <stdio.h>
#include <string.h>

#include "group/remote_internal.h"

void uni__remote_refuse(uni__group *group, const char *address, const char *why)
{
    uni__remote *remote = group->remote;
    char sentence[512];
    for (int i = 0; i < remote->num_strangers; i++)
        if (strcmp(remote->strangers[i].address, address) == 0 &&
            strncmp(remote->strangers[i].why, why, sizeof remote->strangers[i].why - 1) == 0) {
            remote->strangers[i].count++;
            return;
        }
    if (remote->num_strangers == UNI__STRANGERS_MAX) {
        remote->other_strangers++;
        return;
    }
    uni__stranger *stranger = &remote->strangers[remote->num_strangers++];
    *stranger = (uni__stranger){ .count = 1 };
    snprintf(stranger->address, sizeof stranger->address, "%s", address);
    snprintf(stranger->why, sizeof stranger->why, "%s", why);
    snprintf(sentence, sizeof sentence, "a connection from %.64s was refused: %.300s", address,
             why);
    UNI__TELL(group, remark, sentence);
}

void uni__remote_look_for_keys(uni__group *group)
{
    uni__remote *remote = group->remote;
    uni__keyring_follow(remote->ring, &remote->credentials, remote->announced_in,
                        &remote->announced_offset);
    for (uint32_t r = 0; remote->announced_by_rank[0] && r < remote->ring->num_ranks; r++)
        if (!remote->ring->ranks[r].known) {
            char path[4300];
            int64_t offset = 0;
            snprintf(path, sizeof path, "%.4200s.%u", remote->announced_by_rank, r);
            uni__keyring_follow(remote->ring, &remote->credentials, path, &offset);
        }
}

void uni__remote_stop_listening(uni__group *group)
{
    uni__remote *remote = group->remote;
    char sentence[512];
    uni__listener_free(remote->listener);
    remote->listener = NULL;
    for (int i = 0; i < remote->num_strangers; i++)
        if (remote->strangers[i].count > 1) {
            snprintf(sentence, sizeof sentence,
                     "%u connections from %.64s were refused during the launch: %.300s",
                     remote->strangers[i].count, remote->strangers[i].address,
                     remote->strangers[i].why);
            UNI__TELL(group, remark, sentence);
        }
    if (remote->other_strangers > 0) {
        snprintf(sentence, sizeof sentence,
                 "%u more connections were refused during the launch, from other addresses or "
                 "for other reasons",
                 remote->other_strangers);
        UNI__TELL(group, remark, sentence);
    }
    remote->num_strangers = 0;
    remote->other_strangers = 0;
}
