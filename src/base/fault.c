/* fault.c - the hook of fault.h: test state only, never set by product code. */
#include <stdatomic.h>
#include "base/fault.h"

static _Atomic(uni__fault_hook) current_hook;
static void *_Atomic current_context;

void uni__fault_hook_set(uni__fault_hook hook, void *context)
{
    atomic_store(&current_context, context);
    atomic_store(&current_hook, hook);
}

int uni__fault(uni__fault_op op, const char *path, size_t *size)
{
    uni__fault_hook hook = atomic_load_explicit(&current_hook, memory_order_relaxed);
    return hook ? hook(atomic_load(&current_context), op, path, size) : 0;
}
