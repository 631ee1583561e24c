"""What benchmarks/gpu.py measures, and how.

`plan`, `results`, `supervisor`, `wheels` and `tables` belong to the command and import nothing beyond the standard
library: it starts before the wheels are installed. Everything else runs in the process of `worker`, on PyTorch and
transformers. There, PEFT, TRL and `training` are imported inside functions, so that on a machine without one of them
only the measurements that need it fail.
"""
