"""Methods run over benchmarks, and scored with official metrics."""
