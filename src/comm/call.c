/* call.c - the sizes that a call implies, and the validation of its arguments. Called on the rank's
 * thread. */
#include "comm/internal.h"
#include "comm/kinds.h"

size_t uni__call_segments(const uni__call *call, int size)
{
    return call->kind == UNI__KIND_REDUCE_SCATTER || call->kind == UNI__KIND_ALL_TO_ALL
               ? (size_t)size
               : 1;
}

size_t uni__call_bytes(const uni__call *call)
{
    return call->count * uni_dtype_size(call->dtype);
}

static int check_reduction(const uni__call *call, uni_error *err)
{
    const char *name = uni__kind_name(call->kind), *type = uni_dtype_name(call->dtype);
    if (call->op < UNI_COMM_SUM || call->op > UNI_COMM_XOR)
        return uni_error_set(err, UNI_EINVAL,
                             "%s: %d is not a reduction; use UNI_COMM_SUM, MEAN, MIN, MAX, "
                             "PRODUCT, AND, OR or XOR",
                             name, (int)call->op);
    if (uni__kernel_type(call->dtype) < 0)
        return uni_error_set(err, UNI_EDTYPE,
                             "%s does not reduce %s: convert it to a float, to int8, int16, int32 "
                             "or int64, or to uint8",
                             name, type);
    if (uni__kernel_reduces(call->dtype, call->op))
        return 0;
    if (call->op == UNI_COMM_MEAN)
        return uni_error_set(err, UNI_EDTYPE,
                             "%s: the mean of %s is not a whole number; use the sum, or floats",
                             name, type);
    return uni_error_set(err, UNI_EDTYPE, "%s: %s has no reduction %s, which is for integers", name,
                         type, uni__op_name((int)call->op));
}

static bool has_root(int kind)
{
    return kind == UNI__KIND_REDUCE || kind == UNI__KIND_BROADCAST || kind == UNI__KIND_SEND ||
           kind == UNI__KIND_RECV;
}

int uni__call_check(const uni_comm *comm, const uni__call *call, uni_error *err)
{
    const char *name = uni__kind_name(call->kind);
    size_t size = uni_dtype_size(call->dtype), segments = uni__call_segments(call, comm->size);
    if (size == 0)
        return uni_error_set(err, UNI_EDTYPE, "%s: %d is not a dtype", name, (int)call->dtype);
    if (call->count > ((size_t)1 << 44) / size / segments)
        return uni_error_set(err, UNI_ELIMIT, "%s of %zu elements is more than can be addressed",
                             name, call->count);
    if (call->op != 0)
        UNI_TRY(check_reduction(call, err));
    if (has_root(call->kind) && (call->root < 0 || call->root >= comm->size))
        return uni_error_set(err, UNI_EINVAL, "%s: there is no rank %d; the ranks are 0 to %d",
                             name, call->root, comm->size - 1);
    if ((call->kind == UNI__KIND_SEND || call->kind == UNI__KIND_RECV) && call->root == comm->rank)
        return uni_error_set(err, UNI_EINVAL, "%s: rank %d cannot be its own peer", name,
                             comm->rank);
    bool gives = call->kind != UNI__KIND_RECV;
    bool takes = call->kind != UNI__KIND_SEND &&
                 (call->kind != UNI__KIND_REDUCE || call->root == comm->rank);
    bool moves = call->kind != UNI__KIND_BARRIER && call->kind != UNI__KIND_FINALIZE;
    if (moves && call->count > 0 && ((gives && !call->in) || (takes && !call->out)))
        return uni_error_set(err, UNI_EINVAL, "%s of %zu elements was given no buffer", name,
                             call->count);
    if (call->kind == UNI__KIND_ALL_TO_ALL && call->in == call->out && call->count > 0)
        return uni_error_set(err, UNI_EINVAL,
                             "all_to_all does not work in place: give it two "
                             "buffers");
    return 0;
}
