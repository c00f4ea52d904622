"""horovod.common.exceptions."""

from unisono.horovod._core import HorovodInternalError as HorovodInternalError, HostsUpdatedInterrupt as HostsUpdatedInterrupt
