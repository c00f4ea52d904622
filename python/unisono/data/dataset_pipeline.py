"""ray.data.dataset_pipeline: the module that scripts import DatasetPipeline from."""

from unisono.data._pipeline import DatasetPipeline

__all__ = ["DatasetPipeline"]
