"""Methods run over benchmarks, scored with official metrics, compared and reported."""
