/*
 * template.c - trainers whose workers are forked from a template (train/shared.h; the mechanism is
 * in group/template.c). User's thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "train/shared.h"
#include "group/template.h"
#include "train/trainer_internal.h"

static void before(void *context)
{
    const uni__template_hooks *hooks = context;
    if (hooks && hooks->before_fork)
        hooks->before_fork(hooks->context);
}

static void after(void *context, bool in_child)
{
    const uni__template_hooks *hooks = context;
    if (hooks && hooks->after_fork)
        hooks->after_fork(hooks->context, in_child);
}

int uni__template_run(int fd, const uni__template_hooks *hooks, uni_error *err)
{
    const uni__fork_hooks around = { .before = before, .after = after, .context = (void *)hooks };
    return uni__template_serve(fd, &around, err);
}

int uni__trainer_use_template(uni_trainer *trainer, int fd, uni_error *err)
{
    int copy = -1;
    if (trainer->current)
        return uni_error_set(err, UNI_ESTATE,
                             "this trainer is busy with a run: its template can be changed later");
    if (fd >= 0 && trainer->hosts)
        return uni_error_set(err, UNI_EINVAL,
                             "workers on other hosts cannot be forked from a template");
    if (fd >= 0 && (copy = fcntl(fd, F_DUPFD_CLOEXEC, 10)) < 0)
        return uni_error_set_errno(err, errno, "the template's descriptor %d cannot be kept", fd);
    if (trainer->template_fd >= 0)
        close(trainer->template_fd);
    trainer->template_fd = copy;
    if (trainer->group) { /* its agent is of before */
        bool started = trainer->started;
        uni_trainer_shutdown(trainer);
        trainer->started = started;
    }
    return 0;
}
