"""Sources of the user's own, as Ray has them: a Datasource gives ReadTasks, each of which gives blocks of rows."""

from __future__ import annotations

from typing import Any

from unisono.data import _incoming

__all__ = ["BlockMetadata", "Datasource", "ReadTask", "Reader", "SimpleTensorFlowDatasource", "SimpleTorchDatasource"]


class BlockMetadata:
    """What is known of a block before it is read; nothing of it is needed."""

    def __init__(self, num_rows: Any = None, size_bytes: Any = None, schema: Any = None, input_files: Any = None, exec_stats: Any = None) -> None:
        self.num_rows, self.size_bytes, self.schema = num_rows, size_bytes, schema
        self.input_files, self.exec_stats = input_files, exec_stats


class ReadTask:
    """A function without arguments that returns blocks: lists of rows, dictionaries of arrays, data frames, pyarrow tables."""

    def __init__(self, read_fn: Any, metadata: Any = None, schema: Any = None) -> None:
        self.read_fn, self.metadata, self.schema = read_fn, metadata, schema

    def __call__(self) -> Any:
        return self.read_fn()


class Reader:
    """What a Datasource's create_reader gives."""
    def get_read_tasks(self, parallelism: int) -> Any:
        """ReadTasks, about `parallelism` of them."""
        raise NotImplementedError

    def estimate_inmemory_data_size(self) -> Any:
        """Bytes, or None."""
        return None


class Datasource:
    """Made by the user: either get_read_tasks(parallelism) or, as older versions had it, prepare_read(parallelism, **read_args) or create_reader."""

    def get_name(self) -> str:
        """For messages."""
        return type(self).__name__

    def estimate_inmemory_data_size(self) -> Any:
        """Bytes, or None."""
        return None

    def create_reader(self, **read_args: Any) -> Any:
        """A Reader for these arguments of read_datasource."""
        return _Old(self, read_args)

    def prepare_read(self, parallelism: int, **read_args: Any) -> Any:
        """ReadTasks, about `parallelism` of them."""
        raise NotImplementedError("a Datasource needs get_read_tasks, create_reader or prepare_read")


class _Old(Reader):
    def __init__(self, datasource: Any, arguments: Any) -> None:
        self.datasource, self.arguments = datasource, arguments

    def get_read_tasks(self, parallelism: int) -> Any:
        """ReadTasks, about `parallelism` of them."""
        return self.datasource.prepare_read(parallelism, **self.arguments)


class SimpleTensorFlowDatasource(Datasource):
    """The elements of the tf.data.Dataset that dataset_factory() makes, as they are."""

    def prepare_read(self, parallelism: int, dataset_factory: Any) -> Any:  # type: ignore[override]
        """ReadTasks, about `parallelism` of them."""
        def read() -> Any:
            return [list(dataset_factory())]

        return [ReadTask(read)]


class SimpleTorchDatasource(Datasource):
    """The elements of the PyTorch dataset that dataset_factory() makes, as they are."""

    def prepare_read(self, parallelism: int, dataset_factory: Any) -> Any:  # type: ignore[override]
        """ReadTasks, about `parallelism` of them."""
        def read() -> Any:
            dataset = dataset_factory()
            return [[dataset[i] for i in range(len(dataset))] if hasattr(dataset, "__len__") else list(dataset)]

        return [ReadTask(read)]


def _blocks(answer: Any) -> Any:
    """A task may return one block, or an iterable of them."""
    if isinstance(answer, dict) or hasattr(answer, "iloc") or _incoming.is_arrow(answer):
        return [answer]
    return answer


def _answer(task: Any, name: str) -> Any:
    answer = task()
    if not hasattr(answer, "__iter__") and not hasattr(answer, "iloc"):
        raise TypeError("a ReadTask of %s returned %s; it returns blocks: a list of lists of rows, of dictionaries of arrays, of data frames or of pyarrow tables"
                        % (name, type(answer).__name__))
    return answer


class blocks_of:
    """All blocks of a datasource as Tables, once an epoch. Its tasks are made again in every process that reads."""

    def __init__(self, datasource: Any, parallelism: int, read_args: Any) -> None:
        self.datasource, self.parallelism, self.read_args = datasource, parallelism, read_args

    def _tasks(self) -> Any:
        count = self.parallelism if self.parallelism and self.parallelism > 0 else 1
        source = self.datasource
        if isinstance(source, type):
            source = source(**self.read_args)
        if hasattr(source, "get_read_tasks"):
            if self.read_args and source is self.datasource:
                raise TypeError("read_datasource() got an unexpected keyword argument %r: get_read_tasks of %s takes none; give it to the constructor"
                                % (next(iter(self.read_args)), type(source).__name__))
            return source.get_read_tasks(count)
        if hasattr(source, "create_reader"):
            return source.create_reader(**self.read_args).get_read_tasks(count)
        if hasattr(source, "prepare_read"):
            return source.prepare_read(count, **self.read_args)
        raise TypeError("read_datasource needs a Datasource (a class with get_read_tasks, create_reader or prepare_read), not %s"
                        % type(source).__name__)

    def __call__(self) -> Any:
        name = type(self.datasource).__name__
        tasks = self._tasks()
        if not hasattr(tasks, "__iter__"):
            raise TypeError("%s gave %s where a list of ReadTasks is needed" % (name, type(tasks).__name__))
        for task in tasks:
            for block in _blocks(_answer(task, name)):
                if isinstance(block, (str, bytes, int, float)) or block is None:
                    raise TypeError("a ReadTask of %s gave a block that is %s; a block is a list of rows, a dictionary of arrays, a data frame or a pyarrow "
                                    "table" % (name, type(block).__name__))
                rows = list(block) if isinstance(block, (list, tuple)) else None
                if rows is None:
                    yield _incoming.from_user(block)
                elif rows:
                    yield _incoming.from_rows(rows)
